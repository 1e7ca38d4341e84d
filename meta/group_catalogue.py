"""Every config that a consumer group can have: Kafka's for share groups, and our own.

The bounds of those that begin with `share.` are what Kafka 4.3 allows with its default broker options
(`group.share.min.…`, `group.share.max.…`, which are no options here). What a group does with a config is
told where it is used; which values are in force, in group_configs.py.

`consumer.…` and `streams.…`, which Kafka has too, are unknown here: their sessions are what the broker's
options say.
"""

import re

from kumquat.meta.catalogue import CONSUME_MODES, Definition
from kumquat.meta.durations import read_iso_duration
from kumquat.meta.values import (
    BOOLEAN,
    INT_MAX,
    ConfigType,
    Kind,
    decimal,
    integer,
    one_of,
    whole,
)

MODE = "consume.mode"
DEAD_LETTERS = "errors.deadletterqueue.topic.name"
BY_DURATION = "by_duration:"
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def _read_reset(text: str) -> str | None:
    if text in ("latest", "earliest"):
        return text
    if not text.startswith(BY_DURATION):
        return None
    try:
        read_iso_duration(text.removeprefix(BY_DURATION))
    except ValueError:
        return None
    return text


def _read_dead_letters(text: str) -> str | None:
    """What the names are that stand in for the braces is not known here: they count one character."""
    name = text.replace("{subject}", "s").replace("{group}", "g")
    legal = _TOPIC.fullmatch(name) and name not in (".", "..") and not name.startswith("__")
    return text if legal or not text else None


_RESET = Kind(
    ConfigType.STRING, "latest, earliest or by_duration:<PnDTnHnMn.nS>, not negative", _read_reset
)
_DEAD_LETTERS = Kind(
    ConfigType.STRING,
    "nothing, or a topic name that does not begin with __, of the characters a-z A-Z 0-9 . _ - with "
    "{subject} and {group} for theirs",
    _read_dead_letters,
)

_DEFINITIONS = (
    Definition(
        "auto.exclusive.after.ms",
        whole(0),
        "60000",
        "real",
        "With consume.mode=auto: how long a single member must have been left, with all that was "
        "handed out acked, before it reads in order again.",
    ),
    Definition(
        "consume.auto.offset.reset",
        one_of("earliest", "latest"),
        "earliest",
        "real",
        "With consume.mode=shared: where the group begins on a subject of which it has committed "
        "nothing. In the other modes the first member's own auto.offset.reset decides.",
    ),
    Definition(
        MODE,
        CONSUME_MODES,
        "auto",
        "real",
        "exclusive: one member reads a subject, in order, the others stand by. shared: each message "
        "goes to one of the members, in no order. auto: exclusive while there is one member, shared "
        "from the second on.",
    ),
    Definition(
        "delivery.count.limit",
        integer(1, 1000),
        "16",
        "real",
        "How often a message is delivered, at most, before it becomes a dead letter. For share "
        "groups share.delivery.count.limit counts instead.",
    ),
    Definition(
        DEAD_LETTERS,
        _DEAD_LETTERS,
        "",
        "real",
        "The topic that the group's dead letters go to; {subject} and {group} stand for the names of "
        "the two. Nothing: {subject}.{group}.dlq. It is made when it is missing.",
    ),
    Definition(
        "lease.max.records",
        integer(1, INT_MAX),
        "2000",
        "real",
        "The most messages that a sharing member is handed in one answer.",
    ),
    Definition(
        "lease.steal.after.ms",
        whole(0),
        "1000",
        "real",
        "How long a sharing member waits with nothing to do before another one, that holds more than "
        "its pace explains, is told to give back what it has not acked.",
    ),
    Definition(
        "retry.backoff.max.ms",
        integer(0),
        "600000",
        "real",
        "The longest time that a message waits before it is delivered again.",
    ),
    Definition(
        "retry.backoff.ms",
        integer(0),
        "1000",
        "real",
        "How long a message waits before it is delivered again after its first delivery failed; 0: "
        "not at all. A client that asks for another delay itself gets that.",
    ),
    Definition(
        "retry.backoff.multiplier",
        decimal(1, 100),
        "2",
        "real",
        "How much longer than after the delivery before a message waits after each further one.",
    ),
    Definition(
        "share.auto.offset.reset",
        _RESET,
        "latest",
        "real",
        "Where a share group begins on a topic that it has not read.",
    ),
    Definition(
        "share.delivery.count.limit",
        integer(2, 10),
        "5",
        "real",
        "How often a message is delivered to a share group, at most, before it becomes a dead letter.",
    ),
    Definition(
        "share.heartbeat.interval.ms",
        integer(5000, 15_000),
        "5000",
        "real",
        "How often a member of a share group is to say that it is there.",
    ),
    Definition(
        "share.isolation.level",
        one_of("read_committed", "read_uncommitted"),
        "read_uncommitted",
        "real",
        "Whether a share group is given messages of transactions that are not committed.",
    ),
    Definition(
        "share.partition.max.record.locks",
        integer(100, 4000),
        "2000",
        "real",
        "How many messages of a topic each member of a share group holds at a time, at most. Kafka counts "
        "those of all members of a partition; here one partition serves all members.",
    ),
    Definition(
        "share.record.lock.duration.ms",
        integer(15_000, 60_000),
        "30000",
        "real",
        "How long a member of a share group has for a message before another one gets it.",
    ),
    Definition(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        "true",
        "real",
        "Whether a member of a share group may ask for more time for a message that it holds.",
    ),
    Definition(
        "share.session.timeout.ms",
        integer(45_000, 60_000),
        "45000",
        "real",
        "How long a member of a share group may be silent before it counts as gone.",
    ),
)

GROUP_DEFINITIONS = {definition.name: definition for definition in _DEFINITIONS}
assert list(GROUP_DEFINITIONS) == sorted(GROUP_DEFINITIONS), "kept in alphabetical order"
