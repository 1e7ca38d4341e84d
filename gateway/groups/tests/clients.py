"""Clients that do what real ones were seen to do, one step at a time, in a Simulation.

- Classic, eager: commits, then JoinGroup. `keeps=True`: like kafka-python, does not ask OffsetFetch
  for what it gets again
- Classic, cooperative: JoinGroup at once, says what it owns; what it loses it commits in the new
  generation; then joins again
- Modern: KIP-848

An answer may be lost (`loses`): the connection is cut behind the request. A client *handles* a
message the moment it reads it; the Simulation's `handled` counts how often each was.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field

from kumquat.core.errors import KumquatError
from kumquat.gateway.groups.coordinator import Coordinator
from kumquat.gateway.groups.errors import GroupError, StaleMemberEpoch, UnknownMember
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.membership.roster import Ticket
from kumquat.gateway.groups.tests.simulation import (
    GROUP,
    HEARTBEAT,
    REBALANCE_MS,
    SESSION_MS,
    Simulation,
)
from kumquat.gateway.wire import (
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OwnedTopicPartitions,
    SubscriptionTopicPartition,
    SyncGroupRequest,
)
from kumquat.gateway.wire.codes import ErrorCode


@dataclass
class Client:
    world: Simulation
    name: str
    topics: list[str]
    positions: dict[str, int | None] = field(default_factory=dict)
    """Assigned topics; None: it has to ask where to begin."""
    committed: dict[str, int] = field(default_factory=dict)
    uncommitted: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    member_id: str = ""
    generation: int = -1
    next_beat: float = 0.0
    software: str = "kafka-python"
    commits: bool = True
    loses: bool = False
    """The next answer does not arrive."""
    caller: Caller = field(init=False)

    def __post_init__(self) -> None:
        self.reconnect()

    def reconnect(self) -> None:
        self.caller = Caller("client", "/127.0.0.1", {}, self.software)
        self.world.bindings.append(self.caller.bound)

    @property
    def coordinator(self) -> Coordinator:
        return self.world.coordinator

    def step(self) -> None:
        """Do the next thing that is due."""
        raise NotImplementedError

    def broker_restarted(self) -> None:
        self.reconnect()

    def read(self, most: int) -> None:
        """Ask for positions that are missing, then read and handle."""
        self.world.check()
        for topic, position in list(self.positions.items()):
            if position is None:
                position = self._ask(topic)
            if position is None or topic not in self.world.subjects.by_name:
                continue
            self._check_space(topic, position)
            handled, self.positions[topic] = self.world.read(topic, position, most)
            self.uncommitted[topic] += handled
            self.world.handled[topic].update(handled)

    def _check_space(self, topic: str, position: int) -> None:
        group = self.world.groups.by_name.get(GROUP)
        subject_id = self.world.subjects.by_name[topic].id
        progress = group.progress.get(subject_id) if group is not None else None
        is_member = group is not None and self.member_id in group.members
        if is_member and progress is not None and progress.shared:
            assert position >> 48, f"{self.name} slipped onto plain offset {position}"

    def _ask(self, topic: str) -> int | None:
        (found,) = self.coordinator.fetch(GROUP, None, -1, [(topic, [0])], self.caller)
        if found.error_code:
            return None
        return max(found.offset, 0)

    def commit(self) -> None:
        topics = {t: p for t, p in self.positions.items() if p is not None}
        self._commit(topics)

    def _commit(self, positions: dict[str, int]) -> None:
        if not positions or not self.commits:
            return
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[
                OffsetCommitRequestTopic(topic, [OffsetCommitRequestPartition(0, offset)])
                for topic, offset in positions.items()
            ],
        )
        try:
            self.coordinator.commit(request, self.caller, self.world.now)
        except GroupError:
            return
        for topic in positions:
            self.uncommitted.pop(topic, None)

    def lost(self) -> None:
        """What it had read and not committed may be handled by others."""
        for topic, sequences in self.uncommitted.items():
            self.world.excused[topic].update(sequences)
        self.uncommitted.clear()
        self.positions.clear()

    def leave(self) -> None:
        raise NotImplementedError

    def subscribe(self, topics: list[str]) -> None:
        """Change what it reads."""
        raise NotImplementedError

    def _give_up(self, topics: set[str]) -> None:
        """Commit these, and read them no longer."""
        lost = {t: p for t, p in self.positions.items() if t in topics}
        self._commit({t: p for t, p in lost.items() if p is not None})
        for topic in lost:
            del self.positions[topic]

    def call(self, request: object, method: str, **more: bool) -> object:
        """The answer, the code of an error, or None where the answer is lost."""
        answer: object
        try:
            answer = getattr(self.coordinator, method)(request, self.caller, self.world.now, **more)
        except KumquatError as error:
            answer = ErrorCode(error.error_code)
        if self.loses:
            self.loses = False
            self.reconnect()
            return None
        return answer


@dataclass
class Classic(Client):
    protocol: str = "range"
    rebalance_ms: int = REBALANCE_MS
    keeps: bool = False
    state: str = "out"
    """out, joining (its JoinGroup is held), joined, in"""
    ticket: Ticket | None = None
    kept: dict[str, int | None] = field(default_factory=dict)
    joined_for: list[str] = field(default_factory=list)
    """The subscription in its last JoinGroup."""

    @property
    def cooperative(self) -> bool:
        return self.protocol == "cooperative-sticky"

    def broker_restarted(self) -> None:
        super().broker_restarted()
        if self.state == "joining":
            self.state, self.ticket = "out", None

    def step(self) -> None:
        if self.state == "out":
            self._join()
        elif self.state == "joining":
            assert self.ticket is not None
            if self.ticket.answer is not None:
                self._joined(self.ticket.answer)
        elif self.state == "joined":
            self._sync()
        elif self.topics != self.joined_for:
            self.subscribe(self.topics)
        elif self.world.now >= self.next_beat:
            self._beat()

    def _join(self) -> None:
        self.joined_for = self.topics
        owned = [
            SubscriptionTopicPartition(topic, [0]) for topic in self.positions if self.cooperative
        ]
        metadata = ConsumerProtocolSubscription(topics=self.topics, owned_partitions=owned)
        data = b"\0\1" + b"".join(ConsumerProtocolSubscription.encode(metadata, 1))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(self.protocol, data)],
        )
        answer = self.call(request, "join", needs_id=True, can_skip=False)
        if isinstance(answer, ErrorCode):
            self._failed(answer)
        elif isinstance(answer, Ticket):
            self.state, self.ticket = "joining", answer
        elif answer is not None:
            self._joined(answer)

    def _joined(self, answer: object) -> None:
        self.ticket = None
        if isinstance(answer, GroupError):
            self._failed(answer.error_code)
            return
        code = answer.error_code  # type: ignore[attr-defined]
        self.member_id = answer.member_id  # type: ignore[attr-defined]
        if code:
            assert code == ErrorCode.MEMBER_ID_REQUIRED
            self.state = "out"
            return
        self.generation = answer.generation_id  # type: ignore[attr-defined]
        self.state = "joined"

    def _sync(self) -> None:
        answer = self.call(
            SyncGroupRequest(
                group_id=GROUP, generation_id=self.generation, member_id=self.member_id
            ),
            "sync",
        )
        if answer is None:
            self.state = "out"
            return
        if isinstance(answer, ErrorCode):
            self._failed(answer)
            return
        data = answer.assignment  # type: ignore[attr-defined]
        decoded, _ = ConsumerProtocolAssignment.decode(data, 0, 2)
        topics = {part.topic for part in decoded.assigned_partitions}
        self.state, self.next_beat = "in", self.world.now + HEARTBEAT
        if self.cooperative:
            self._reconcile(topics)
        else:
            kept = self.kept if self.keeps else {}
            self.positions = {topic: kept.get(topic) for topic in topics}

    def _reconcile(self, topics: set[str]) -> None:
        revoked = self.positions.keys() - topics
        self._give_up(revoked)
        for topic in topics:
            self.positions.setdefault(topic, None)
        if revoked:
            self.state = "out"

    def subscribe(self, topics: list[str]) -> None:
        self.topics = topics
        if self.state == "in" and self.cooperative:
            self._give_up(self.positions.keys() - set(topics))
            self.state = "out"
        elif self.state == "in":
            self._rejoin()

    def _beat(self) -> None:
        self.next_beat = self.world.now + HEARTBEAT
        answer = self.call(
            HeartbeatRequest(
                group_id=GROUP, generation_id=self.generation, member_id=self.member_id
            ),
            "heartbeat",
        )
        if answer is None:
            return
        code = answer if isinstance(answer, ErrorCode) else answer.error_code  # type: ignore[attr-defined]
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin()
        elif code:
            self._failed(code)

    def _rejoin(self) -> None:
        if not self.cooperative:
            self.commit()
            self.kept, self.positions = self.positions, {}
        self.state = "out"
        self._join()

    def _failed(self, code: int) -> None:
        assert code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ), code
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.kept = {}
        self.lost()
        self.state = "out"

    def leave(self) -> None:
        if self.state == "in":
            self.commit()
        self.lost()
        if self.member_id:
            with contextlib.suppress(GroupError):
                self.coordinator.leave(GROUP, self.member_id, None, self.caller, self.world.now)


@dataclass
class Modern(Client):
    """KIP-848. `explicit`: names itself in OffsetFetch, as Java does; librdkafka does not."""

    explicit: bool = False
    epoch: int = 0
    owned: list[str] = field(default_factory=list)
    full: bool = True
    """It says all about itself: when it joins, and after a failure."""

    def step(self) -> None:
        if self.world.now < self.next_beat and self.epoch:
            return
        self.member_id = self.member_id or f"m-{self.name}"
        reported = sorted(self.positions)
        by_name = self.world.subjects.by_name
        partitions = [
            OwnedTopicPartitions(by_name[t].topic_id, [0]) for t in reported if t in by_name
        ]
        full, self.full = self.full, False
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=self.topics if full else None,
            topic_partitions=partitions if full or reported != self.owned else None,
        )
        self.owned = reported
        answer = self.call(request, "consumer_heartbeat")
        if answer is None:
            self.full = True
            return
        if isinstance(answer, ErrorCode):
            assert answer in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH), answer
            self.epoch, self.generation, self.full = 0, -1, True
            self.lost()
            self.owned = []
            return
        self.epoch = self.generation = answer.member_epoch  # type: ignore[attr-defined]
        interval = answer.heartbeat_interval_ms  # type: ignore[attr-defined]
        self.next_beat = self.world.now + interval / 1000
        assignment = answer.assignment  # type: ignore[attr-defined]
        if assignment is not None:
            names = {s.topic_id: s.name for s in self.world.subjects}
            self._reconcile({names[p.topic_id] for p in assignment.topic_partitions})

    def subscribe(self, topics: list[str]) -> None:
        self.topics, self.full, self.next_beat = topics, True, 0.0

    def _reconcile(self, topics: set[str]) -> None:
        if revoked := self.positions.keys() - topics:
            self._give_up(revoked)
            self.next_beat = 0.0
        for topic in topics:
            if topic not in self.positions:
                self.positions[topic] = None
                self.next_beat = 0.0

    def _ask(self, topic: str) -> int | None:
        if not self.explicit:
            return super()._ask(topic)
        try:
            (found,) = self.coordinator.fetch(
                GROUP, self.member_id, self.epoch, [(topic, [0])], self.caller
            )
        except (StaleMemberEpoch, UnknownMember):
            return None
        return None if found.error_code else max(found.offset, 0)

    def leave(self) -> None:
        self.commit()
        self.lost()
        if self.epoch:
            self.call(
                ConsumerGroupHeartbeatRequest(
                    group_id=GROUP, member_id=self.member_id, member_epoch=-1
                ),
                "consumer_heartbeat",
            )
