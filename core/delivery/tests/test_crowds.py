"""Thousands at once: how much of it one step does, and that the rest is done soon after."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.delivery.acknowledge import ACCEPT, AckBatch, acknowledge
from kumquat.core.delivery.give_back import RetryPolicy
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.pull_log import Lease, PullLog, ShareLog, Walk
from kumquat.core.delivery.ranges import Range, Ranges
from kumquat.core.delivery.sharing.hand_outs import LOOKS, HandOuts, Waiter
from kumquat.core.delivery.sharing.shares import LOCKS_AT_ONCE
from kumquat.core.delivery.sharing.timers import AT_ONCE, Timers
from kumquat.core.delivery.tests.rig import Config, Rig, rig
from kumquat.core.errors import InvalidRecordState

CROWD = 5 * LOOKS


def waiting(it: Rig) -> tuple[HandOuts, list[Waiter]]:
    """Members of a share group that wait, more than one step looks at."""
    it.make_group(1, share=True)
    group = it.groups.by_id[1]
    logs = [it.join(1) for _ in range(CROWD)]
    hand_outs = it.sharing.hand_outs_of(group, cast("Any", it.subject))
    waiters = [Waiter(hand_outs, log, 1 << 20, 1) for log in logs]
    for waiter in waiters:
        hand_outs.enter(waiter, lambda: None)
    return hand_outs, waiters


def given_to(waiters: list[Waiter]) -> int:
    return sum(bool(waiter.log.leases) for waiter in waiters)


def test_a_step_hands_out_to_some_of_those_who_wait_and_the_timer_to_the_others() -> None:
    with rig(Config()) as it:
        hand_outs, waiters = waiting(it)
        it.subject.produce(CROWD)
        steps = [given_to(waiters)]
        while hand_outs.waiting:
            it.sharing.timers._fire()
            steps.append(given_to(waiters))
            assert steps[-1] - steps[-2] <= LOOKS
            assert len(steps) < CROWD
        assert steps[0] == LOOKS
        assert steps[-1] == CROWD


def test_news_during_a_round_reaches_those_who_were_looked_at_before_it() -> None:
    with rig(Config()) as it:
        hand_outs, waiters = waiting(it)
        it.subject.produce(LOOKS + 1)  # the next step has one left to give
        assert given_to(waiters) == LOOKS
        late = Waiter(hand_outs, waiters[0].log, 1 << 20, 1)
        hand_outs.enter(late, lambda: None)
        it.subject.produce(CROWD)
        for _ in range(CROWD):
            it.sharing.timers._fire()
        assert not hand_outs.waiting
        assert given_to(waiters) == CROWD
        assert waiters[0].log.unacked == 2


def test_a_hand_out_that_fails_does_not_end_the_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with rig(Config()) as it:
        _, waiters = waiting(it)
        unlucky, give = waiters[3].log, HandOuts.give

        def failing(
            self: HandOuts, log: PullLog, limit: int, wanted: int | None = None, *, whole: bool
        ) -> bool:
            if log is unlucky:
                raise ValueError("broken")
            return give(self, log, limit, wanted, whole=whole)

        monkeypatch.setattr(HandOuts, "give", failing)
        it.subject.produce(CROWD)
        for _ in range(CROWD):
            it.sharing.timers._fire()
        assert given_to(waiters) == CROWD - 1
        assert "handed nothing" in caplog.text


def test_locks_that_end_together_end_some_at_a_time_and_all_of_them_soon() -> None:
    with rig(Config()) as it:
        it.make_group(1, share=True)
        logs = [it.join(1) for _ in range(3 * LOCKS_AT_ONCE)]
        it.subject.produce(len(logs))
        for log in logs:
            assert it.give(1, log, 1)
        it.pass_time(31_000)
        held = [len(logs)]
        while held[-1]:
            it.sharing.timers._fire()
            it.pass_time(1)
            held.append(sum(log.unacked for log in logs))
            assert held[-2] - held[-1] <= LOCKS_AT_ONCE
            assert len(held) < 20
        assert it.progress(1).retries == len(logs)


class Bell:
    def __init__(self) -> None:
        self.rung = 0

    def feed(self) -> None:
        self.rung += 1


def test_timers_that_are_due_together_go_off_some_at_a_time() -> None:
    timers = Timers(lambda: 100)
    bells = [Bell() for _ in range(3 * AT_ONCE)]
    for bell in bells:
        timers.set(bell, 50)
    for step in (1, 2, 3):
        timers._fire()
        assert sum(bell.rung for bell in bells) == step * AT_ONCE
    timers._fire()
    assert [bell.rung for bell in bells] == [1] * len(bells)


# --- acknowledgements ----------------------------------------------------------------------------


def test_no_more_acknowledgements_are_looked_at_than_messages_are_held() -> None:
    progress, log = Progress(), ShareLog(1, "m")
    progress.begin_sharing(0)
    progress.pull_logs[1] = log
    progress.lease(log, 0, [[0, 10, 1]], 1)
    progress.cursor = 1_000_000
    batches = iter([AckBatch(n, n, [ACCEPT]) for n in range(1000)])
    with pytest.raises(InvalidRecordState, match="from 10 to 10"):
        acknowledge(1, 1, progress, log, batches, RetryPolicy(), earliest=0, now_ms=1)
    assert next(batches).first == 11


LEASES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 3)), max_size=8)
RANGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=12)


def shared(leases: list[tuple[int, int, int]]) -> ShareLog:
    log, at = ShareLog(1, "m"), 0
    for number, (gap, size, attempt) in enumerate(leases):
        log.give(Lease(number * 10, at + gap, size, attempt, number, number))
        at += gap + size
    return log


@given(LEASES, RANGES, st.booleans())
def test_one_walk_takes_what_taking_one_by_one_does(
    leases: list[tuple[int, int, int]], steps: list[tuple[int, int]], ascending: bool
) -> None:
    at, ranges = 0, []
    for gap, size in steps:
        ranges.append([at + gap, size])
        at += gap + size
    if not ascending:
        ranges.reverse()
    walked, naive = shared(leases), shared(leases)
    walk = Walk(naive.leases)
    if ascending:
        for first, size in ranges:
            assert walk.held(first, first + size) == naive.held(first, first + size)
    whole = walked.take_whole(ranges)
    for first, size in ranges:
        expected = naive.take(first, first + size)
        lease = whole.pop(first, None) if size else None
        if lease is not None:
            assert [lease] == expected
        else:
            assert walked.take(first, first + size) == expected
    assert not whole
    assert (walked.leases, walked.unacked) == (naive.leases, naive.unacked)


# --- ranges --------------------------------------------------------------------------------------

PLACES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 2), st.booleans()), max_size=40
)


@given(PLACES, st.randoms())
def test_many_ranges_are_added_as_if_one_by_one(
    places: list[tuple[int, int, int, bool]], random: Random
) -> None:
    at = 0
    there, new = Ranges(), []
    for gap, size, attempt, is_there in places:
        one = Range(at + gap, size, attempt)
        at += gap + size
        if is_there:
            there.add(one)
        else:
            new.append(one)
    random.shuffle(new)
    naive = there.copy()
    for one in new:
        naive.add(one)
    there.add_all(new)
    assert list(there) == list(naive)
    assert there.total == naive.total
