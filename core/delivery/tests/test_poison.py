"""A message that kills its consumers: it alone becomes a dead letter, and nobody starves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.engine import ALONE_MS, Caution
from kumquat.core.delivery.give_back import RetryPolicy, give_back
from kumquat.core.delivery.pull_log import PullLog, ShareLog
from kumquat.core.delivery.tests.rig import SID, Config, Rig, rig


def die(it: Rig, gid: int, log: PullLog) -> None:
    group = it.groups.by_id[gid]
    policy = it.sharing.retry_policy(group)
    given = give_back(gid, SID, log.slot, log.leases, policy, it.now())
    it.append(*given, actions.Release(gid, SID, log.slot), actions.Left(gid, log.member_id))


def ack(it: Rig, gid: int, log: PullLog) -> None:
    if isinstance(log, ShareLog):
        ranges = [[lease.first, lease.size] for lease in log.leases]
        it.append(actions.Accept(gid, SID, log.slot, ranges))
    else:
        done = engine.ack(gid, SID, log, log.next)
        assert done is not None
        it.append(done)


def wait_alone(it: Rig, attempt: int = 15) -> None:
    """Message 0 waits for a member that holds nothing else."""
    first = it.join(1)
    assert it.give(1, first, 1)
    it.append(actions.Retry(1, SID, first.slot, [[0, 1, attempt, 0]]))
    it.append(actions.Release(1, SID, first.slot), actions.Left(1, first.member_id))


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("limit", [2, 3, 5, 16])
@pytest.mark.parametrize("poison", [{57}, {0, 199}, {10, 11, 12}])
def test_only_what_kills_its_consumers_becomes_a_dead_letter(
    share: bool, limit: int, poison: set[int]
) -> None:
    config = Config(
        delivery_count_limit=limit, share_delivery_count_limit=limit, retry_backoff_max_ms=2000
    )
    with rig(config) as it:
        it.make_group(1, share=share)
        it.subject.produce(200)
        logs = [it.join(1) for _ in range(3)]
        progress, deaths = it.progress(1), 0
        for _ in range(2000):
            it.pass_time(500)
            for log in list(logs):
                it.give(1, log)
                held = {s for one in log.leases for s in range(one.first, one.behind)}
                if held & poison:
                    logs.remove(log)
                    die(it, 1, log)
                    logs.append(it.join(1))
                    deaths += 1
                elif held:
                    ack(it, 1, log)
            if progress.cursor == 200 and progress.settled:
                break
        dead = {s for each in progress.doomed.values() for s in range(each.first, each.end)}
        assert dead == poison
        assert progress.settled
        assert deaths <= limit * len(poison)


def test_neighbours_are_parted_from_it_before_their_attempts_are_used_up() -> None:
    caution = Caution(limit=16, most=500)
    parts = [caution.part(attempt) for attempt in range(1, 17)]
    assert parts[0] == 500
    assert parts == sorted(parts, reverse=True)
    assert [caution.alone(attempt) for attempt in (1, 2, 8, 14, 15, 16, 33, 4000)] == [
        *(False, False, False),
        *(True, True, True, True, True),
    ]
    assert Caution(limit=1, most=1).alone(1) is False
    assert Caution(limit=2, most=500).alone(2)


def test_a_member_that_acks_only_after_many_is_not_starved_by_a_message_for_one_alone() -> None:
    """It is reserved for the message, and does not ack, for it waits for more."""
    with rig() as it:
        it.make_group(1)
        it.subject.produce(1000)
        wait_alone(it)
        member = it.join(1)
        it.append(actions.Pull(1, SID, member.slot, member.next, [[1, 5, 1]]))
        for _ in range(9):
            assert not it.give(1, member, 1), "it is reserved"
            it.pass_time(1000)
        it.pass_time(1001)
        assert it.give(1, member, 1)
        assert member.leases[-1][1:4] == (0, 1, 15), "then it gets the message beside others"
        assert it.give(1, member, 1)


def test_a_message_for_one_alone_goes_to_another_member_that_holds_nothing() -> None:
    with rig() as it:
        it.make_group(1)
        it.subject.produce(1000)
        wait_alone(it)
        sits, works = it.join(1), it.join(1)
        for log in (sits, works):
            it.append(actions.Pull(1, SID, log.slot, log.next, [[it.progress(1).cursor, 5, 1]]))
        assert not it.give(1, sits, 5)
        ack(it, 1, works)
        assert it.give(1, works, 1)
        assert [lease[1:4] for lease in works.leases] == [(0, 1, 15)]


def test_a_member_that_has_it_alone_is_given_nothing_else_for_a_while() -> None:
    with rig() as it:
        it.make_group(1)
        it.subject.produce(1000)
        wait_alone(it)
        member = it.join(1)
        assert it.give(1, member)
        assert [lease[1:4] for lease in member.leases] == [(0, 1, 15)]
        it.pass_time(ALONE_MS - 1)
        assert not it.give(1, member)
        it.pass_time(1)
        assert it.give(1, member)


def test_the_back_off_is_bounded_whatever_the_configs_say() -> None:
    for attempt in (1, 2, 33, 65, 2**31):
        policy = RetryPolicy(2**31, 100.0, 2**40)
        assert 2**31 <= policy.backoff(attempt) <= 2**40
        assert RetryPolicy(0, 100.0, 2**40).backoff(attempt) == 0
        assert RetryPolicy(1000, 1.0, 600_000).backoff(attempt) == 1000


COMMIT_MS = 5000
"""How often a client acks that commits by itself."""


class Crowd:
    """Members that ack every few seconds, and die of a poisonous message without an ack."""

    def __init__(self, it: Rig, members: int, poison: set[int]) -> None:
        self.it, self.poison = it, poison
        self.logs = {it.join(1): it.now() for _ in range(members)}
        """With when each acked last."""
        self.seen: set[int] = set()
        """Messages that a member has handled."""

    def step(self, ms: int = 500) -> None:
        self.it.pass_time(ms)
        for log, acked in list(self.logs.items()):
            self.it.give(1, log)
            held = {s for one in log.leases for s in range(one.first, one.behind)}
            if held & self.poison:
                del self.logs[log]
                die(self.it, 1, log)
                self.logs[self.it.join(1)] = self.it.now()
                continue
            self.seen |= held
            if self.it.now() - acked >= COMMIT_MS:
                self.logs[log] = self.it.now()
                if held:
                    ack(self.it, 1, log)

    @property
    def finished(self) -> bool:
        progress = self.it.progress(1)
        return progress.cursor == self.it.subject.readable_end and progress.settled


def dead(it: Rig) -> set[int]:
    return {s for each in it.progress(1).doomed.values() for s in range(each.first, each.end)}


@settings(max_examples=60, deadline=None)
@given(
    limit=st.sampled_from([2, 3, 4, 5, 16]),
    members=st.integers(1, 3),
    count=st.integers(1, 60),
    poison=st.sets(st.integers(0, 59), min_size=1, max_size=2),
)
def test_members_that_ack_rarely_get_all_that_is_healthy_in_few_hand_outs(
    limit: int, members: int, count: int, poison: set[int]
) -> None:
    poison = {each % count for each in poison}
    with rig(Config(delivery_count_limit=limit, retry_backoff_max_ms=2000)) as it:
        it.make_group(1)
        it.subject.produce(count)
        crowd = Crowd(it, members, poison)
        for _ in range(20_000):
            crowd.step()
            if crowd.finished:
                break
        assert crowd.finished
        assert dead(it) == poison
        assert crowd.seen == set(range(count)) - poison
        assert it.sharing.hand_outs <= count + 8 * limit * len(poison) + 8 * members


def test_with_one_attempt_nothing_is_delivered_twice() -> None:
    """What a member holds when it dies is lost with it: that is what a limit of one says."""
    with rig(Config(delivery_count_limit=1)) as it:
        it.make_group(1)
        it.subject.produce(40)
        crowd = Crowd(it, 1, {7})
        for _ in range(200):
            crowd.step()
        assert crowd.finished
        assert {7} <= dead(it)
        assert crowd.seen | dead(it) == set(range(40))
        assert not crowd.seen & dead(it)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("limit", [2, 3, 16])
def test_suspects_take_half_of_the_time_at_most_from_fresh_messages(
    limit: int, members: int
) -> None:
    with rig(Config(delivery_count_limit=limit)) as it:
        it.make_group(1)
        it.subject.produce(200)
        crowd = Crowd(it, members, {0})
        crowd.step()
        steps = 240
        late = 0
        for _ in range(steps):
            it.subject.produce(1)
            crowd.step()
            late += 1 if it.subject.readable_end - it.progress(1).cursor > 2 * members else 0
        assert late <= steps / 2 + 2 * COMMIT_MS / 500
        assert it.progress(1).cursor >= it.subject.readable_end - 2 * ALONE_MS // 500


def test_one_failure_does_not_make_a_group_with_a_low_limit_handle_each_message_alone() -> None:
    with rig(Config(delivery_count_limit=3)) as it:
        it.make_group(1)
        it.subject.produce(40)
        first = it.join(1)
        assert it.give(1, first)
        die(it, 1, first)
        crowd = Crowd(it, 1, set())
        for _ in range(150):  # 75 s
            crowd.step()
        assert crowd.seen == set(range(40))
        assert it.sharing.hand_outs <= 8
