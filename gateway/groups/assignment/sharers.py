"""Which clients may share. In mode `auto` a group shares only while all its members are on this list.

A sharing member gets offsets of its own (see core/delivery/pull_log.py). A client shares correctly if it
begins to fetch where OffsetFetch says, accepts jumps in offsets, and commits what it was given. A client
that does something else with offsets may reset without a word, and then every member reads everything. So
a client is on the list when stories in compat_tests try it. Any other member keeps its group exclusive,
Kafka's way; the log, the group's description and the statistics say which. `consume.mode=shared`
overrides the list.

Who a client is
- From ApiVersions version 3 on it names itself, with its version. The list goes by names alone, and says
  which version was tried: a version that turns out not to bear it needs a rule here. Bindings of
  librdkafka give names of their own; only those of its makers are listed, the library below is the same.
- A client that asks an older version has no name. It is known by signs that no setting of its user changes:

      client    ApiVersions  JoinGroup   subscription
      aiokafka  0            5           version 0, for range, roundrobin or sticky
      kafka-go  0            up to 2     says version 1 and has the body of version 0
      KafkaJS   up to 2      up to 5     the assignor is called RoundRobinAssigner

  kafka-python 2.0 and 2.1, which have no name either, were looked at: they join in version 2 or 3. Where
  signs are in doubt a client is unnamed, and its group exclusive.
  The client id is no sign that a client shares: users set it. KafkaJS asks ApiVersions on its first
  connection only.

Kafka Connect's sink tasks are Java clients, and share badly: sinks that keep offsets themselves (S3, HDFS)
seek to them after a rebalance, and pull offsets have changed by then. Connect gives their consumers client
ids that begin with `connector-consumer-`. So a member with such a client id keeps its group exclusive.
Where that is a mistake, nothing is lost by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.gateway.groups.membership.members import Caller
    from kumquat.gateway.groups.membership.protocol import Subscription

UNNAMED = "unnamed"
"""What is stored of a client that neither names itself nor shows the signs of one on the list."""
ROUND_ROBIN_ASSIGNER = "RoundRobinAssigner"
AIOKAFKA, KAFKA_GO, KAFKA_JS, SARAMA = "aiokafka", "kafka-go", "KafkaJS", "sarama"
SINK_TASK = "connector-consumer-"
"""How the client ids of Connect's sink tasks begin."""
AIOKAFKA_ASSIGNORS = frozenset({"range", "roundrobin", "sticky"})


class Sharer(NamedTuple):
    tried: str
    """The version in the stories."""
    forgets: bool = False
    """When it rejoins it forgets every position and asks OffsetFetch again."""


_LIBRDKAFKA = Sharer("2.16.0", forgets=True)
SHARERS = {
    "apache-kafka-java": Sharer("4.3.1", forgets=True),
    "librdkafka": _LIBRDKAFKA,
    "confluent-kafka-python": _LIBRDKAFKA,
    "confluent-kafka-go": _LIBRDKAFKA,
    "confluent-kafka-dotnet": _LIBRDKAFKA,
    "confluent-kafka-javascript": _LIBRDKAFKA,
    "kafka-python": Sharer("3.0.12"),
    AIOKAFKA: Sharer("0.14.0"),
    "kgo": Sharer("1.22.2"),
    SARAMA: Sharer("1.61.1", forgets=True),
    KAFKA_GO: Sharer("0.4.51", forgets=True),
    KAFKA_JS: Sharer("2.2.4"),
}
"""sarama and kafka-go compare what OffsetFetch says with ListOffsets: see
gateway/handlers/common/askers.py. `kgo` is how franz-go calls itself."""


def software_of(
    caller: Caller, offered: Iterable[str] = (), subscription: Subscription | None = None
) -> str:
    """What a member's client is, as it is stored: its name and, if that is known, its version."""
    if caller.software:
        return f"{caller.software} {caller.software_version}".strip()
    names = frozenset(offered)
    if ROUND_ROBIN_ASSIGNER in names and caller.asked <= 2 and caller.api_version <= 5:
        return KAFKA_JS
    if caller.asked != 0 or subscription is None:
        return UNNAMED
    if caller.api_version <= 2 and subscription.short:
        return KAFKA_GO
    if caller.api_version == 5 and subscription.said == 0 and names <= AIOKAFKA_ASSIGNORS:
        return AIOKAFKA
    return UNNAMED


def name_of(software: str) -> str:
    return software.partition(" ")[0]


def may_share(software: str, client_id: str = "") -> bool:
    return name_of(software) in SHARERS and not is_sink_task(client_id)


def is_sink_task(client_id: str) -> bool:
    return client_id.startswith(SINK_TASK)


def forgets(software: str) -> bool:
    known = SHARERS.get(name_of(software))
    return known is not None and known.forgets
