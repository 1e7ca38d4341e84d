"""Retries live by a clock that nobody sets back; and logs of before there were retries are understood."""

from __future__ import annotations

import pytest

from kumquat.core.clock import SteadyClock
from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import from_json
from kumquat.core.delivery.state import FIRST_PULL, Groups
from kumquat.core.delivery.tests.rig import SID, Rig, rig

HOUR = 3_600_000


def retried(it: Rig) -> None:
    """Message 0 waits for a second."""
    it.make_group(1)
    it.subject.produce(10)
    log = it.join(1)
    assert it.give(1, log, 1)
    it.append(actions.Retry(1, SID, log.slot, [[0, 1, 2, it.now() + 1000]]))


@pytest.mark.parametrize("change", [-HOUR, HOUR])
def test_a_clock_that_is_set_while_the_broker_runs_changes_no_back_off(change: int) -> None:
    with rig() as it:
        retried(it)
        it.wall += change
        it.pass_time(999)
        assert not it.progress(1).wake(it.now())
        it.pass_time(1)
        assert it.progress(1).wake(it.now())


def test_a_clock_that_is_set_back_before_a_restart_makes_no_retry_wait_longer_than_its_back_off() -> (
    None
):
    with rig() as it:
        retried(it)
        it.wall -= HOUR
        it.start(it.actions.frames)
        it.pass_time(999)
        assert not it.progress(1).wake(it.now())
        it.pass_time(1)
        assert it.progress(1).wake(it.now())


def test_time_between_two_starts_is_what_the_wall_clock_says() -> None:
    """Nothing else knows how long the broker was down. So a clock that was set forward makes a retry early,
    by no more than that."""
    with rig() as it:
        retried(it)
        it.wall += 600
        it.start(it.actions.frames)
        it.pass_time(399)
        assert not it.progress(1).wake(it.now())
        it.pass_time(1)
        assert it.progress(1).wake(it.now())


def test_time_does_not_go_back_over_starts() -> None:
    with rig() as it:
        times = []
        retried(it)
        for _ in range(5):
            it.wall -= HOUR
            it.start(it.actions.frames)
            it.pass_time(10)
            it.append(actions.Joined(1))
            times.append(it.now())
        assert times == sorted(set(times))


def test_a_time_from_the_log_that_is_past_changes_nothing() -> None:
    with rig() as it:
        clock = SteadyClock()
        clock.not_before(it.wall - HOUR)
        assert clock() == it.wall


def test_a_log_of_before_there_were_retries_is_understood() -> None:
    """Its leases have no times, a release counted as an attempt, and there was no limit to them."""
    groups = Groups()
    for found in (
        ["numbers", 2, FIRST_PULL],
        ["slots", SID, 2, FIRST_PULL],
        ["group", 1, "g", 3],
        ["commit", 1, SID, 0, -1, ""],
        ["share", 1, SID, 10],
        ["again", 1, SID, 0, 2, 40],
        ["committed", 1, SID, 77],
        ["log", 1, SID, 1, "m", [FIRST_PULL] * 2 + [FIRST_PULL + 5], [], [[FIRST_PULL, 2, 5, 3]]],
        ["release", 1, SID, 1],
        ["slot", 1, SID, 2, "n", FIRST_PULL + 9],
        ["pull", 1, SID, 2, FIRST_PULL + 9, [[0, 2, 40], [2, 3, 4]]],
    ):
        groups.apply(from_json(found))
    progress = groups.by_id[1].progress[SID]
    assert [lease[1:4] for lease in progress.pull_logs[2].leases] == [(0, 2, 40), (2, 3, 4)]
    assert [tuple(part[:3]) for part in progress.redelivery] == [(5, 2, 3)]
    assert groups.joined == 0


def test_numbers_that_are_too_large_lose_no_message() -> None:
    """Nothing writes them; a message whose retry cannot be kept stays where it was."""
    with rig() as it:
        retried(it)
        progress = it.progress(1)
        log = next(iter(progress.pull_logs.values()))
        assert it.give(1, log, 3)
        before = progress.unacked
        for attempt, due in ((1 << 32, 5), (2, 1 << 63), (2, -1)):
            retry = actions.Retry(1, SID, log.slot, [[1, 1, attempt, due]])
            with pytest.raises(ValueError, match="cannot wait"):
                it.groups.apply(retry)
            assert progress.unacked == before
            assert log.leases[0].first == 1
