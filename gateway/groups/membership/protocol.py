"""What classic consumers say in JoinGroup's metadata, and how they are told their assignment.

Both are structs of their own inside a bytes field, an int16 version in front. A subscription of a
version that we do not know is read as the newest that we do, as clients do; what is behind it is
ignored. Where the body is shorter than its version says, it is read as the newest version that fits:
kafka-go says version 1 and sends the body of version 0. Kafka's broker accepts that, since it reads
the topics alone.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, NamedTuple

from kumquat.gateway.groups.assignment.sharers import ROUND_ROBIN_ASSIGNER, forgets
from kumquat.gateway.wire import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kumquat.gateway.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kumquat.gateway.wire import JoinGroupRequestProtocol

CONSUMER = "consumer"
COOPERATIVE_STICKY = "cooperative-sticky"
STANDARD = frozenset(
    {
        *("range", "roundrobin", "sticky", COOPERATIVE_STICKY),
        "rack-affinity",  # kafka-go
        ROUND_ROBIN_ASSIGNER,  # KafkaJS
    }
)
"""Assignors that the broker stands in for: with one partition a topic they come to the same."""
EAGER, COOPERATIVE, KIP_848, CLIENT_ASSIGNED = "eager", "cooperative", "consumer", "client"
"""Kinds of members: see kumquat.core.delivery.state.Member."""
FORGETFUL = "forgetful"
"""The manner of eager members whose client forgets every position when it rejoins."""
_NEWEST = ConsumerProtocolSubscription.valid_versions.stop - 1


class Subscription(NamedTuple):
    topics: list[str]
    owned: frozenset[str] | None
    """The topics that the member says it holds; None: it does not say."""
    said: int = 0
    """The version that it says it has."""
    short: bool = False
    """That is one with owned partitions, and there are none."""


def read_subscription(metadata: bytes) -> Subscription:
    """Raises WireError."""
    if len(metadata) < 2:
        raise WireError("a subscription has a version in front")
    said = int.from_bytes(metadata[:2], "big", signed=True)
    version, decoded = _decode(metadata, min(max(said, 0), _NEWEST))
    owned = None
    if version >= 1:
        owned = frozenset(part.topic for part in decoded.owned_partitions if part.partitions)
    return Subscription(list(dict.fromkeys(decoded.topics)), owned, said, version < min(said, 1))


def _decode(metadata: bytes, version: int) -> tuple[int, ConsumerProtocolSubscription]:
    """By the newest version up to this one that fits."""
    while True:
        try:
            return version, ConsumerProtocolSubscription.decode(metadata, version, 2)[0]
        except WireError:
            if version == 0:
                raise
            version -= 1


def assignment_bytes(topics: Iterable[str]) -> bytes:
    partitions = [AssignmentTopicPartition(topic, [0]) for topic in topics]
    message = ConsumerProtocolAssignment(assigned_partitions=partitions)
    return b"\0\0" + b"".join(ConsumerProtocolAssignment.encode(message, 0))


def choose_standard(
    protocols: Sequence[JoinGroupRequestProtocol],
) -> JoinGroupRequestProtocol | None:
    """The first offered that the broker can stand in for."""
    return next((offered for offered in protocols if offered.name in STANDARD), None)


def kind_of(protocols: Sequence[JoinGroupRequestProtocol]) -> str:
    """How a consumer rebalances: cooperatively only if no eager assignor is in its list."""
    names = {offered.name for offered in protocols}
    return COOPERATIVE if names == {COOPERATIVE_STICKY} else EAGER


def manner_of(kind: str, software: str) -> str:
    return FORGETFUL if kind == EAGER and forgets(software) else kind


def pack(data: bytes) -> str:
    return b64encode(data).decode()


def unpack(text: str) -> bytes:
    return b64decode(text)
