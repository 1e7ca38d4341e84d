"""A member of a classic group by hand: every request as a client sends it, every answer as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from compat_tests.support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.wire.connection import Message, Wire

JOIN_VERSION = 7
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
UNKNOWN_MEMBER_ID = 25
ILLEGAL_GENERATION = 22
COORDINATOR_LOADING = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
_NOT_YET = {COORDINATOR_LOADING, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
"""Error codes of a Kafka that is just making its offsets topic."""


def join(
    group: str,
    *,
    member_id: str = "",
    protocols: dict[str, bytes],
    protocol_type: str = "consumer",
    session_ms: int = 120_000,
    instance_id: str | None = None,
) -> Message:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=120_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[protocol(name=name, metadata=data) for name, data in protocols.items()],
        reason=None,
    )


def subscription(*topics: str) -> bytes:
    made = ConsumerProtocolSubscription(topics=list(topics), user_data=b"", version=0)
    return bytes(made.encode())


def topics_of(assignment: bytes) -> list[str]:
    if not assignment:
        return []
    decoded = ConsumerProtocolAssignment.decode(assignment)
    return [each.topic for each in decoded.assigned_partitions if each.partitions]


def commit(
    group: str,
    topic: str,
    offset: int,
    *,
    member_id: str = "",
    generation: int = -1,
    text: str = "",
) -> Message:
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = asked.OffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata=text,
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[asked(name=topic, partitions=[partition])],
    )


def commit_code(answer: Message) -> int:
    return int(answer.topics[0].partitions[0].error_code)


def offsets(group: str, topic: str | None) -> Message:
    """Works for versions 1 to 7 and 8 to 9 alike; None asks for all topics."""
    one, several = (
        OffsetFetchRequest.OffsetFetchRequestTopic,
        OffsetFetchRequest.OffsetFetchRequestGroup,
    )
    named = None if topic is None else [one(name=topic, partition_indexes=[0])]
    grouped = (
        None
        if topic is None
        else [several.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    return OffsetFetchRequest(
        group_id=group,
        topics=named,
        groups=[several(group_id=group, member_id=None, member_epoch=-1, topics=grouped)],
        require_stable=False,
    )


def fetched_offset(answer: Message, version: int) -> tuple[int, int, int, str]:
    """The group's error code, then the only partition's: code, offset, metadata."""
    group = answer.groups[0] if version >= 8 else answer
    partition = group.topics[0].partitions[0]
    return (
        group.error_code if version >= 2 else 0,
        partition.error_code,
        partition.committed_offset,
        partition.metadata,
    )


class RawMember:
    """Joins and syncs on one connection; `wire` may be replaced by another at any time."""

    def __init__(
        self,
        wire: Wire,
        group: str,
        *topics: str,
        protocol: str = "range",
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
    ) -> None:
        self.wire, self.group = wire, group
        self.protocols = protocols or {protocol: subscription(*topics)}
        self.protocol_type = protocol_type
        self.member_id, self.generation = "", -1
        self.chosen = ""

    def joining(self) -> Message:
        return join(
            self.group,
            member_id=self.member_id,
            protocols=self.protocols,
            protocol_type=self.protocol_type,
        )

    def join(self) -> Message:
        """All requests up to an answer with a generation."""
        self.start_join()
        return self.finish_join()

    def start_join(self) -> None:
        if not self.member_id:
            self.member_id = self._first(
                lambda: self.wire.call(self.joining(), JOIN_VERSION)
            ).member_id
        self.wire.send(self.joining(), JOIN_VERSION)

    def _first(self, ask: Callable[[], Message]) -> Message:
        answers: list[Message] = []

        def known() -> bool:
            answers[:] = [ask()]
            return answers[0].error_code not in _NOT_YET

        eventually(known, "a coordinator")
        assert answers[0].error_code == MEMBER_ID_REQUIRED, answers[0]
        return answers[0]

    def finish_join(self) -> Message:
        answer = self.wire.receive()
        assert answer.error_code == 0, answer
        self.generation, self.chosen = answer.generation_id, answer.protocol_name
        return answer

    def syncing(self, assignments: dict[str, bytes] | None = None) -> Message:
        one = SyncGroupRequest.SyncGroupRequestAssignment
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type=self.protocol_type,
            protocol_name=self.chosen,
            assignments=[
                one(member_id=member, assignment=data)
                for member, data in (assignments or {}).items()
            ],
        )

    def sync(self, assignments: dict[str, bytes] | None = None) -> bytes:
        answer = self.wire.call(self.syncing(assignments), 5)
        assert answer.error_code == 0, answer
        return bytes(answer.assignment)

    def heartbeat(self, wire: Wire | None = None, *, generation: int | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=None,
        )
        return int((wire or self.wire).call(request, 4).error_code)

    def commit(self, topic: str, offset: int, *, generation: int | None = None) -> int:
        number = self.generation if generation is None else generation
        request = commit(self.group, topic, offset, member_id=self.member_id, generation=number)
        return commit_code(self.wire.call(request, 8))

    def leave(self) -> int:
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=self.member_id, group_instance_id=None, reason=None
        )
        request = LeaveGroupRequest(group_id=self.group, members=[identity])
        return int(self.wire.call(request, 4).members[0].error_code)

    def rejoin_until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """Does as a client of the eager protocol does until its assignment is as wanted."""
        found: list[list[str]] = []

        def settled() -> bool:
            if self.generation < 0 or self.heartbeat() == REBALANCE_IN_PROGRESS:
                self.join()
                found[:] = [topics_of(self.sync())]
            return bool(found) and holds(found[0])

        eventually(settled, "the assignment that is wanted")
        return found[0]
