"""Finding the subject that a request names, by name or by topic id, and its only partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import Refused
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker


def find_subject(broker: Broker, name: str | None, topic_id: bytes = b"") -> Subject:
    """The subject of this name or, where there is no name, of this id. Raises Refused."""
    subjects = broker.log.subjects
    if name or not topic_id:
        subject = subjects.by_name.get(name or "")
        if subject is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return subject
    subject = subjects.by_topic_id.get(topic_id)
    if subject is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
    return subject


def find_partition(
    broker: Broker, name: str | None, partition: int, topic_id: bytes = b""
) -> Subject:
    """The same, for a request that names a partition too."""
    subject = find_subject(broker, name, topic_id)
    if partition != 0:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {subject.name!r} has partition 0 only, not {partition}",
        )
    return subject
