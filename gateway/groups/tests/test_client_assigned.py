"""Groups in which a client assigns: the barrier holds, whatever happens in front of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kumquat.core.errors import KumquatError
from kumquat.gateway.groups.errors import (
    FencedInstance,
    GroupFull,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from kumquat.gateway.groups.membership.client_assigned_states import State
from kumquat.gateway.groups.membership.members import Caller
from kumquat.gateway.groups.membership.roster import Ticket
from kumquat.gateway.groups.tests.clients import Classic
from kumquat.gateway.groups.tests.simulation import GROUP, LIMITS, Simulation
from kumquat.gateway.wire import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

SESSION_MS, REBALANCE_MS = 10_000, 20_000


class Worker:
    """A client that leads if it is told to: it gives each member its own id to do."""

    def __init__(
        self, world: Simulation, *, instance: str | None = None, protocols: str = "a"
    ) -> None:
        self.world, self.instance, self.protocols = world, instance, protocols
        self.member_id, self.generation, self.leads = "", -1, False
        self.members: list[str] = []
        self.assignment: bytes | None = None
        self.ticket: Ticket | None = None
        self.waits_for = ""
        self.caller = Caller("w", "/h", {})

    def join(self, **changes: Any) -> Any:
        """The answer, if there is one already."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="connect",
            protocols=[
                JoinGroupRequestProtocol(name, b"m" + name.encode()) for name in self.protocols
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        can_skip = self.instance == "skips"
        answer = self.world.coordinator.join(
            request, self.caller, self.world.now, needs_id=False, can_skip=can_skip
        )
        return self._await(answer, "join")

    def sync(self) -> Any:
        given = [SyncGroupRequestAssignment(m, m.encode()) for m in self.members]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=given if self.leads else [],
        )
        answer = self.world.coordinator.sync(request, self.caller, self.world.now)
        return self._await(answer, "sync")

    def _await(self, answer: Any, what: str) -> Any:
        if isinstance(answer, Ticket):
            self.ticket, self.waits_for = answer, what
            return self.answered()
        return self._take(answer, what)

    def answered(self) -> Any:
        """The answer to what it waits for; None: not yet."""
        if self.ticket is None or self.ticket.answer is None:
            return None
        answer, self.ticket = self.ticket.answer, None
        return self._take(answer, self.waits_for)

    def _take(self, answer: Any, what: str) -> Any:
        if isinstance(answer, KumquatError):
            return answer
        if what == "join":
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads = answer.leader == answer.member_id
            self.members = [m.member_id for m in answer.members]
            self.assignment = None
        else:
            self.assignment = answer.assignment
        return answer

    def beat(self) -> None:
        answer = self.world.coordinator.heartbeat(
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance,
            ),
            self.caller,
            self.world.now,
        )
        if answer.error_code == RebalanceInProgress.error_code:
            raise RebalanceInProgress

    def commit(self, offset: int) -> int:
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, offset)])],
        )
        (code,) = self.world.coordinator.commit(request, self.caller, self.world.now)
        return code

    def leave(self) -> None:
        self.world.coordinator.leave(GROUP, self.member_id, None, self.caller, self.world.now)


def state(world: Simulation) -> State | None:
    group = world.groups.by_name.get(GROUP)
    client_assigned = world.coordinator.client_assigned(group) if group is not None else None
    return None if client_assigned is None else client_assigned.state


def working(*workers: Worker) -> None:
    """Have them join and sync."""
    for worker in workers:
        worker.join()
    for worker in workers:
        worker.answered()
    for worker in sorted(workers, key=lambda w: w.leads):
        worker.sync()
    for worker in workers:
        worker.answered()
        assert worker.assignment == worker.member_id.encode()


def pair() -> tuple[Simulation, Worker, Worker]:
    world = Simulation("t", checked=True)
    first, second = Worker(world), Worker(world)
    working(first)
    second.join()
    with pytest.raises(RebalanceInProgress):
        first.beat()
    first.join()
    second.answered()
    assert (first.leads, second.leads) == (True, False)
    return world, first, second


def test_a_follower_gets_nothing_before_the_leader_has_assigned() -> None:
    world, leader, follower = pair()
    assert follower.sync() is None
    assert state(world) is State.COMPLETING
    leader.sync()
    follower.answered()
    assert (leader.assignment, follower.assignment) == (
        leader.member_id.encode(),
        follower.member_id.encode(),
    )
    assert leader.generation == follower.generation == 2
    leader.beat()
    follower.beat()


def test_a_member_that_comes_in_between_sends_everybody_back() -> None:
    world, leader, follower = pair()
    follower.sync()
    Worker(world).join()
    assert isinstance(follower.answered(), RebalanceInProgress)
    with pytest.raises(RebalanceInProgress):
        leader.sync()


def test_a_member_that_does_not_rejoin_in_time_is_left_behind() -> None:
    world = Simulation("t", checked=True)
    silent, new = Worker(world), Worker(world)
    working(silent)
    new.join()
    for _ in range(REBALANCE_MS // 1000 + 1):
        world.pass_time(1.0)
        with pytest.raises((RebalanceInProgress, UnknownMember)):
            silent.beat()
    assert new.answered().members[0].member_id == new.member_id
    with pytest.raises(UnknownMember):
        silent.beat()


def test_a_leader_that_never_assigns_is_replaced() -> None:
    world, leader, follower = pair()
    follower.sync()
    world.pass_time(SESSION_MS / 1000 + 1)
    assert isinstance(follower.answered(), RebalanceInProgress)
    follower.join()
    assert follower.answered() is None or follower.leads
    world.pass_time(REBALANCE_MS / 1000 + 1)
    follower.answered()
    assert follower.leads
    with pytest.raises(UnknownMember):
        leader.beat()


def test_a_lost_answer_is_given_again_without_a_rebalance() -> None:
    world, leader, follower = pair()
    generation = follower.generation
    assert follower.join().generation_id == generation
    assert leader.join().generation_id == generation
    leader.sync()
    follower.sync()
    assert state(world) is State.STABLE
    assert follower.join().generation_id == generation
    assert leader.join() is None, "a leader that joins again means it"


def test_commits_count_when_the_member_has_an_assignment() -> None:
    world, leader, follower = pair()
    with pytest.raises(RebalanceInProgress):
        follower.commit(1)
    leader.sync()
    follower.sync()
    assert follower.commit(5) == 0
    follower.generation -= 1
    with pytest.raises(IllegalGeneration):
        follower.commit(6)
    group = world.groups.by_name[GROUP]
    assert group.progress[world.subjects.by_name["t"].id].position == 5


def test_members_without_a_common_protocol_are_refused() -> None:
    world = Simulation("t", checked=True)
    working(Worker(world, protocols="ab"))
    with pytest.raises(InconsistentGroupProtocol):
        Worker(world, protocols="c").join()
    with pytest.raises(InconsistentGroupProtocol):
        Worker(world, protocols="a").join(protocol_type="consumer")
    with pytest.raises(InconsistentGroupProtocol):
        Worker(world).join(protocols=[])
    with pytest.raises(GroupIdNotFound):
        world.coordinator.consumer_heartbeat(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id="m", subscribed_topic_names=["t"], rebalance_timeout_ms=1
            ),
            Caller("c", "/h", {}),
            world.now,
        )


def test_the_protocol_is_one_that_all_offer_and_most_prefer() -> None:
    world = Simulation("t", checked=True)
    workers = [Worker(world, protocols=offered) for offered in ("abc", "bca", "cba", "bac")]
    for worker in workers:
        worker.join()
    for worker in workers[:-1]:
        worker.answered()
        worker.join()
    answers = [worker.answered() for worker in workers]
    assert {answer.protocol_name for answer in answers if answer is not None} == {"b"}


def test_the_first_rebalance_waits_for_more_members() -> None:
    world = Simulation("t", checked=True, limits=replace(LIMITS, initial_delay_ms=3000))
    workers = [Worker(world) for _ in range(3)]
    for worker in workers:
        assert worker.join() is None
        world.pass_time(2.0)
        assert worker.answered() is None
    world.pass_time(4.0)
    assert {worker.answered().generation_id for worker in workers} == {1}


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = Simulation("t", checked=True)
    leader, follower = Worker(world, instance="skips"), Worker(world, instance="two")
    leader.join()
    follower.join()
    leader.join()
    leader.answered()
    follower.answered()
    leader.sync()
    follower.sync()
    again = Worker(world, instance="two")
    assert again.join().generation_id == follower.generation
    again.sync()
    assert again.assignment == follower.assignment
    with pytest.raises(FencedInstance):
        follower.beat()
    answer = Worker(world, instance="skips").join()
    assert answer.skip_assignment
    assert len(answer.members) == 2
    assert answer.leader == answer.member_id
    assert state(world) is State.STABLE


def test_a_static_leader_whose_client_cannot_skip_comes_back_as_a_follower() -> None:
    world = Simulation("t", checked=True)
    leader = Worker(world, instance="one")
    working(leader)
    again = Worker(world, instance="one")
    answer = again.join()
    assert not again.leads
    assert not answer.members
    again.sync()
    assert again.assignment == leader.assignment


def test_members_go_on_in_the_last_stable_generation_after_a_restart() -> None:
    world, leader, follower = pair()
    leader.sync()
    follower.sync()
    third = Worker(world)
    third.join()
    world.restart()
    for worker in (leader, follower):
        worker.beat()
        worker.sync()
        assert worker.assignment == worker.member_id.encode()
    assert third.join() is None
    with pytest.raises(RebalanceInProgress):
        leader.beat()


def test_a_group_is_of_one_sort_while_it_has_members() -> None:
    world = Simulation("t", checked=True)
    worker = Worker(world)
    working(worker)
    consumer = Classic(world, "c", ["t"])
    with pytest.raises(AssertionError, match="INCONSISTENT_GROUP_PROTOCOL"):
        consumer.step()
    worker.leave()
    assert not world.groups.by_name[GROUP].members
    for _ in range(3):
        consumer.step()
    with pytest.raises(InconsistentGroupProtocol):
        Worker(world).join()


def test_a_group_that_shared_reads_on_from_the_lowest_unacked() -> None:
    world = Simulation("t", checked=True, mode="shared")
    world.produce("t", 10)
    consumer = Classic(world, "c", ["t"])
    for _ in range(3):
        consumer.step()
    consumer.read(4)
    consumer.commit()
    consumer.read(4)
    consumer.member_id, member_id = "", consumer.member_id
    world.coordinator.leave(GROUP, member_id, None, consumer.caller, world.now)
    working(worker := Worker(world))
    (position,) = world.coordinator.fetch(GROUP, None, -1, [("t", [0])], worker.caller)
    assert position.offset == 4


def test_a_group_that_is_full_takes_nobody() -> None:
    world = Simulation("t", checked=True, limits=replace(LIMITS, max_size=1))
    working(Worker(world))
    with pytest.raises(GroupFull):
        Worker(world).join()


class Barrier(RuleBasedStateMachine):
    """Workers come, go, die and forget to rejoin; those who are left always come to one generation."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Simulation("t", checked=True)
        self.workers: list[Worker] = []

    def act(self, worker: Worker) -> None:
        """The next thing that a worker does."""
        try:
            if worker.ticket is not None:
                if isinstance(worker.answered(), KumquatError):
                    worker.generation = -1
            elif worker.generation < 0:
                worker.join()
            elif worker.assignment is None:
                worker.sync()
            else:
                worker.beat()
        except UnknownMember:
            worker.member_id, worker.generation = "", -1
        except (RebalanceInProgress, IllegalGeneration):
            worker.generation = -1

    @precondition(lambda self: len(self.workers) < 4)
    @rule()
    def come(self) -> None:
        self.workers.append(Worker(self.world))

    @precondition(lambda self: self.workers)
    @rule(number=st.integers(0, 3), times=st.integers(1, 3))
    def step(self, number: int, times: int) -> None:
        for _ in range(times):
            self.act(self.workers[number % len(self.workers)])

    @precondition(lambda self: self.workers)
    @rule(number=st.integers(0, 3), politely=st.booleans())
    def go(self, number: int, politely: bool) -> None:
        worker = self.workers.pop(number % len(self.workers))
        if politely and worker.member_id:
            try:
                worker.leave()
            except UnknownMember:
                worker.member_id = ""

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        for worker in self.workers:
            if worker.ticket is not None:
                worker.ticket, worker.generation = None, -1

    def teardown(self) -> None:
        for _ in range(60):
            for worker in self.workers:
                self.act(worker)
            self.world.pass_time(1.0)
        if not self.workers:
            return
        assert state(self.world) is State.STABLE
        assert len({worker.generation for worker in self.workers}) == 1
        assert sum(worker.leads for worker in self.workers) <= 1
        for worker in self.workers:
            assert worker.assignment == worker.member_id.encode()
        group = self.world.groups.by_name[GROUP]
        assert group.members.keys() == {worker.member_id for worker in self.workers}


TestBarrier = Barrier.TestCase
TestBarrier.settings = settings(stateful_step_count=30, deadline=None)
