"""Any history of share members that join, leave, die, lose answers and change their subscription, while
subjects come and go, the disk is full and the broker restarts: everybody is told what it is to read, in
epochs that grow, and each message is settled once.

What a ShareFetch and a ShareAcknowledge do is done here with the actions that they append."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.give_back import RetryPolicy
from kumquat.core.delivery.ranges import Range
from kumquat.core.delivery.state import Group
from kumquat.core.errors import KumquatError
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.tests.simulation import GROUP, Simulation
from kumquat.gateway.wire import ShareGroupHeartbeatRequest
from kumquat.gateway.wire.codes import ErrorCode

TOPICS = ["t", "u"]
SUBSCRIPTIONS = [["t"], ["t", "u"], ["u"], ["u", "later"]]
MOST_MEMBERS = 5
MOVES = {
    "live": 20, "beat": 15, "read": 20, "settle": 15, "come": 8, "go": 4, "die": 2, "lose": 6,
    "restart": 3, "subscribe": 5, "change_topics": 3,
}  # fmt: skip
"""How often each move is made in a long life."""
CLOSES = {**MOVES, "go_in_session": 8, "close": 4, "come_back": 4, "lose": 0}
"""Of members that leave before their sessions end."""


class World(Simulation):
    """What is given back is available at once."""

    def retry_policy(self, group: Group) -> RetryPolicy:
        return RetryPolicy(backoff_ms=0, limit=1_000_000)


@dataclass
class Sharer:
    world: World
    member_id: str
    topics: list[str]
    epoch: int = 0
    full: bool = True
    """It says its subscription: when it joins, after a failure, when it changes it."""
    next_beat: float = 0.0
    assigned: set[bytes] = field(default_factory=set)
    loses: bool = False
    """The next answer does not arrive."""
    held: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Subject id → what it has read and not settled."""

    def beat(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=self.topics if self.full else None,
        )
        answer = self._call(request)
        if answer is None:  # it says the same again
            return
        if isinstance(answer, ErrorCode):
            known = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
            assert answer in (*known, ErrorCode.GROUP_ID_NOT_FOUND), answer
            if answer != ErrorCode.FENCED_MEMBER_EPOCH:
                self.lost()
            self.epoch, self.full = 0, True
        else:
            self._told(answer)

    def _told(self, answer: Any) -> None:
        joined, self.full = self.epoch == 0, False
        assert answer.member_epoch >= max(1, self.epoch), "epochs grow"
        by_name = self.world.subjects.by_name
        wanted = {by_name[topic].topic_id for topic in self.topics if topic in by_name}
        if answer.assignment is None:
            assert not joined
            assert answer.member_epoch == self.epoch, "an epoch is new for a reason"
        else:
            self.assigned = {part.topic_id for part in answer.assignment.topic_partitions}
        assert self.assigned == wanted, "it reads all that it is subscribed to and that exists"
        self.epoch = answer.member_epoch
        self.next_beat = self.world.now + answer.heartbeat_interval_ms / 1000

    def _call(self, request: ShareGroupHeartbeatRequest, *, in_session: bool = False) -> Any:
        caller = Caller("c", "/h", {}, "librdkafka")
        answer: Any
        beat = self.world.coordinator.share_heartbeat
        try:
            answer = beat(request, caller, self.world.now, in_session=in_session)
        except KumquatError as error:
            answer = ErrorCode(error.error_code)
        if self.loses:
            self.loses, answer = False, None
        return answer

    def leave(self, *, in_session: bool = False) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=-1
        )
        self._call(request, in_session=in_session)
        if not in_session:
            self.lost()

    def lost(self) -> None:
        """What it holds is given to others, although it may have handled it."""
        self.end_session()
        self.held.clear()

    def end_session(self) -> None:
        """What it kept when it left is given back."""
        group, live = self.world.groups.by_name.get(GROUP), self._slots()
        for subject_id, progress in [] if group is None else list(group.progress.items()):
            log = progress.log_of(self.member_id)
            if group is not None and log is not None and live.get(subject_id) != log.slot:
                again = [[lease.first, lease.size, 2, 0] for lease in log.leases]
                self.world.append([actions.Retry(group.id, subject_id, log.slot, again)])
                self.world.append([actions.Release(group.id, subject_id, log.slot)])

    def forget_kept(self) -> None:
        """The broker restarts: it gives back what the member kept when it left."""
        live = self._slots()
        for subject_id in self._all_slots().keys() - live.keys():
            self.held.pop(subject_id, None)

    # --- messages --------------------------------------------------------------------------------

    def _slots(self) -> dict[int, int]:
        group = self.world.groups.by_name.get(GROUP)
        member = None if group is None else group.members.get(self.member_id)
        return {} if member is None else dict(member.holds)

    def _all_slots(self) -> dict[int, int]:
        """With those that it kept when it left."""
        group = self.world.groups.by_name.get(GROUP)
        logs = (
            {}
            if group is None
            else {s: p.log_of(self.member_id) for s, p in group.progress.items()}
        )
        return {
            subject_id: log.slot for subject_id, log in logs.items() if log is not None
        } | self._slots()

    def read(self, most: int) -> None:
        """As a ShareFetch of what it is assigned does."""
        for subject_id, slot in self._slots().items():
            subject = self.world.subjects.by_id[subject_id]
            if subject.topic_id not in self.assigned:
                continue
            group = self.world.groups.by_name[GROUP]
            progress = group.progress[subject_id]
            given = list(progress.redelivery.parts(most, 1))
            if not given and progress.cursor < subject.readable_end:
                left = subject.readable_end - progress.cursor
                given = [Range(progress.cursor, min(most, left), 1)]
            if given:
                log = progress.pull_logs[slot]
                self.world.append([engine.pull_action(group.id, subject_id, log, given)])
                for part in given:
                    self.held[subject_id].update(range(part.first, part.first + part.size))

    def settle(self, accept: bool) -> None:
        """As a ShareAcknowledge of all that it holds does: of subjects too that it no longer reads."""
        slots, group = self._all_slots(), self.world.groups.by_name.get(GROUP)
        for subject_id, sequences in list(self.held.items()):
            if subject_id in self.world.subjects.by_id and group is not None and sequences:
                assert subject_id in slots, "it could not acknowledge what it holds"
                log = group.progress[subject_id].pull_logs[slots[subject_id]]
                held = {n for lease in log.leases for n in range(lease.first, lease.behind)}
                assert held == sequences, "it holds what it was given, and nothing else"
                ranges = [[sequence, 1] for sequence in sorted(sequences)]
                if accept:
                    self.world.append(
                        [actions.Accept(group.id, subject_id, slots[subject_id], ranges)]
                    )
                    self.world.handled[str(subject_id)].update(sequences)
                else:
                    again = [[*part, 2, 0] for part in ranges]
                    self.world.append(
                        [actions.Retry(group.id, subject_id, slots[subject_id], again)]
                    )
            del self.held[subject_id]


class ShareGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(*TOPICS, checked=True)
        self.world.configs["share.auto.offset.reset"] = "earliest"
        self.members: list[Sharer] = []
        self.closing: list[Sharer] = []
        """They have left, and their share sessions are open."""
        self.count = 0

    def pick(self, number: int) -> Sharer | None:
        return self.members[number % len(self.members)] if self.members else None

    @precondition(lambda self: len(self.members) < MOST_MEMBERS)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS))
    def come(self, topics: list[str]) -> None:
        self.count += 1
        self.members.append(Sharer(self.world, f"m{self.count}", topics))
        self.members[-1].beat()

    @rule(number=st.integers(0, MOST_MEMBERS))
    def beat(self, number: int) -> None:
        member = self.pick(number)
        if member is not None:
            member.beat()

    @rule(number=st.integers(0, MOST_MEMBERS), most=st.integers(1, 8))
    def read(self, number: int, most: int) -> None:
        member = self.pick(number)
        if member is not None:
            member.read(most)

    @rule(number=st.integers(0, MOST_MEMBERS), accept=st.booleans())
    def settle(self, number: int, accept: bool) -> None:
        member = self.pick(number)
        if member is not None and member.member_id in self._alive():
            member.settle(accept)

    @rule(seconds=st.sampled_from([0.5, 5.0, 20.0]), rounds=st.integers(1, 6))
    def live(self, seconds: float, rounds: int) -> None:
        """Everybody does what it does."""
        for _ in range(rounds):
            self.world.pass_time(seconds)
            for member in self.members:
                if member.member_id not in self._alive():
                    member.lost()
                if self.world.now >= member.next_beat:
                    member.beat()

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 20))
    def produce(self, topic: str, count: int) -> None:
        self.world.produce(topic, count)

    @rule(number=st.integers(0, MOST_MEMBERS))
    def go(self, number: int) -> None:
        member = self.pick(number)
        if member is not None:
            member.leave()
            self.members.remove(member)

    @rule(number=st.integers(0, MOST_MEMBERS))
    def go_in_session(self, number: int) -> None:
        member = self.pick(number)
        if member is not None and member.member_id in self._alive():
            member.loses = False
            member.leave(in_session=True)
            self.members.remove(member)
            self.closing.append(member)

    @rule(accept=st.booleans())
    def close(self, accept: bool) -> None:
        """The acknowledgements of one that has left arrive, and its session ends."""
        if self.closing:
            member = self.closing.pop()
            member.settle(accept)
            member.lost()

    @rule()
    def come_back(self) -> None:
        """One that has left joins again, and its session goes on."""
        if self.closing and len(self.members) < MOST_MEMBERS:
            member = self.closing.pop()
            member.epoch, member.full = 0, True
            self.members.append(member)
            member.beat()

    @rule(number=st.integers(0, MOST_MEMBERS))
    def die(self, number: int) -> None:
        member = self.pick(number)
        if member is not None:
            member.end_session()
            self.members.remove(member)

    @rule(number=st.integers(0, MOST_MEMBERS))
    def lose(self, number: int) -> None:
        member = self.pick(number)
        if member is not None:
            member.loses = True

    @rule(number=st.integers(0, MOST_MEMBERS), topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, number: int, topics: list[str]) -> None:
        member = self.pick(number)
        if member is not None:
            member.topics, member.full = topics, True

    @rule()
    def change_topics(self) -> None:
        """A subject that members may be subscribed to is created, or deleted."""
        if "later" in self.world.subjects.by_name:
            self.world.delete("later")
        else:
            self.world.create("later")
            self.world.produce("later", 5)

    @rule()
    def restart(self) -> None:
        for member in [*self.members, *self.closing]:
            member.forget_kept()
        self.closing.clear()
        self.world.restart()

    def _alive(self) -> set[str]:
        group = self.world.groups.by_name.get(GROUP)
        return set() if group is None else set(group.members)

    @invariant()
    def everything_fits_together(self) -> None:
        self.world.check({member.member_id for member in [*self.members, *self.closing]})
        group = self.world.groups.by_name.get(GROUP)
        assert group is None or group.is_share

    def teardown(self) -> None:
        """Left alone, those who are there come to the end of everything."""
        for member in self.closing:
            member.lost()
        self.members.append(Sharer(self.world, "last", [*TOPICS, "later"]))
        for _ in range(100):
            for member in self.members:
                if member.member_id not in self._alive():
                    member.lost()
                member.beat()
                member.read(50)
                if member.member_id in self._alive():
                    member.settle(True)
            self.world.pass_time(1.0)
        group = self.world.groups.by_name[GROUP]
        for topic in TOPICS:
            subject = self.world.subjects.by_name[topic]
            progress = group.progress[subject.id]
            assert progress.unacked == 0
            handled = self.world.handled[str(subject.id)]
            begin = min(handled, default=subject.readable_end)
            wrong = {n: handled[n] for n in range(begin, progress.cursor) if handled[n] != 1}
            assert not wrong, f"{topic}: not settled once: {wrong}"
            assert progress.cursor == subject.readable_end
            assert begin == 0


TestShareGroups = ShareGroups.TestCase
TestShareGroups.settings = settings(
    max_examples=settings().max_examples * 3 // 5, stateful_step_count=30, deadline=None
)
LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6)]


@pytest.mark.parametrize("seed", [0, 1, *LONG])
def test_a_long_life_of_a_share_group(seed: int) -> None:
    _live_long(seed, MOVES)


@pytest.mark.parametrize("seed", range(4))
def test_a_long_life_of_members_that_leave_before_their_sessions_end(seed: int) -> None:
    _live_long(seed, CLOSES)


def _live_long(seed: int, moves: dict[str, int]) -> None:
    choose = random.Random(seed)
    life = ShareGroups()
    for _ in range(300):
        number = choose.randrange(MOST_MEMBERS)
        move = choose.choices(list(moves), list(moves.values()))[0]
        if move == "live":
            life.live(choose.choice([0.5, 5.0, 20.0]), choose.randint(1, 4))
        elif move == "read":
            life.produce(choose.choice(TOPICS), choose.randint(1, 6))
            life.read(number, choose.randint(1, 8))
        elif move == "settle":
            life.settle(number, choose.random() < 0.7)
        elif move == "come":
            if len(life.members) < MOST_MEMBERS:
                life.come(choose.choice(SUBSCRIPTIONS))
        elif move == "subscribe":
            life.subscribe(number, choose.choice(SUBSCRIPTIONS))
        elif move in ("restart", "change_topics", "come_back"):
            getattr(life, move)()
        elif move == "close":
            life.close(choose.random() < 0.7)
        else:
            getattr(life, move)(number)
        life.everything_fits_together()
    life.teardown()
