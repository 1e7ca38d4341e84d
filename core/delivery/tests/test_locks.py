"""Locks of share groups: until when a member holds a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kumquat.core.delivery import actions
from kumquat.core.delivery.acknowledge import ACCEPT, RENEW, AckBatch
from kumquat.core.delivery.pull_log import Lease, ShareLog
from kumquat.core.delivery.sharing.locks import SPARE, Locks
from kumquat.core.delivery.sharing.shares import RETRY_MS
from kumquat.core.delivery.tests.rig import SID, Config, Rig, rig

if TYPE_CHECKING:
    import pytest

LOCKED = 30_000


def opened(it: Rig) -> ShareLog:
    log = it.join(1)
    assert isinstance(log, ShareLog)
    return log


def begun(it: Rig) -> ShareLog:
    it.make_group(1, share=True)
    it.subject.produce(100)
    return opened(it)


def say(it: Rig, log: ShareLog, kind: int, first: int, last: int) -> None:
    it.sharing.shares.acknowledge(
        it.groups.by_id[1], cast("Any", it.subject), log, [AckBatch(first, last, [kind])]
    )


def pass_time(it: Rig, ms: int) -> None:
    it.pass_time(ms)
    it.sharing.timers._fire()


def held(log: ShareLog) -> set[int]:
    return {s for lease in log.leases for s in range(lease.first, lease.behind)}


def waits(it: Rig) -> dict[int, int]:
    """Sequence → attempt of what waits."""
    return {s: w.attempt for w in it.progress(1).waiting for s in range(w.first, w.end)}


def test_a_lock_ends_at_its_time_and_the_attempt_counts() -> None:
    with rig() as it:
        log = begun(it)
        assert it.give(1, log, 3)
        pass_time(it, LOCKED - 1)
        assert held(log) == {0, 1, 2}
        pass_time(it, 2)
        assert not held(log)
        assert waits(it) == {0: 2, 1: 2, 2: 2}
        assert it.progress(1).waiting.next_due == it.now() + 1000
        assert it.sharing.shares.expired_locks == 3


def test_a_wall_clock_that_is_set_ends_no_lock_and_makes_none_longer() -> None:
    for change in (-3_600_000, 3_600_000):
        with rig() as it:
            log = begun(it)
            assert it.give(1, log, 3)
            it.wall += change
            pass_time(it, LOCKED - 1)
            assert held(log) == {0, 1, 2}
            pass_time(it, 2)
            assert not held(log)


def test_only_what_was_renewed_is_held_for_longer() -> None:
    with rig() as it:
        log = begun(it)
        assert it.give(1, log, 5)
        pass_time(it, LOCKED - 1000)
        say(it, log, RENEW, 1, 2)
        pass_time(it, 1001)
        assert held(log) == {1, 2}
        pass_time(it, LOCKED - 1002)
        assert held(log) == {1, 2}
        say(it, log, RENEW, 2, 2)
        pass_time(it, 2)
        assert held(log) == {2}
        pass_time(it, LOCKED)
        assert not held(log)


def test_a_message_that_comes_again_is_not_held_by_an_earlier_renewal() -> None:
    """It was renewed for long, given back, and is given to the same member once more."""
    with rig(Config(retry_backoff_ms=0)) as it:
        log = begun(it)
        assert it.give(1, log, 1)
        pass_time(it, LOCKED - 1)
        say(it, log, RENEW, 0, 0)
        it.sharing.shares.give_back_all(it.groups.by_id[1], log.member_id, lost=False)
        it.config.share_record_lock_duration_ms = 1000
        assert it.give(1, log, 1)
        assert held(log) == {0}
        pass_time(it, 1001)
        assert not held(log)


def test_a_lock_of_a_member_that_has_left_ends_for_nobody() -> None:
    with rig() as it:
        log = begun(it)
        assert it.give(1, log, 3)
        it.append(actions.Release(1, SID, log.slot), actions.Left(1, log.member_id))
        other = opened(it)
        pass_time(it, LOCKED - 10)
        assert it.give(1, other, 3)
        pass_time(it, 20)
        assert held(other) == {0, 1, 2}, "the lock of the first one took it from the second"


def test_a_lock_of_a_group_or_subject_that_is_gone_ends_for_nobody() -> None:
    for gone in (actions.Forget(1), actions.Gone(SID), actions.Drop(1, SID)):
        with rig() as it:
            log = begun(it)
            assert it.give(1, log, 3)
            it.append(gone)
            pass_time(it, LOCKED + 1)
            assert it.sharing.shares.expired_locks == 0


def test_the_end_of_a_lock_is_written_later_when_the_disk_is_full() -> None:
    with rig() as it:
        log = begun(it)
        assert it.give(1, log, 3)
        it.actions.full = True
        pass_time(it, LOCKED + 1)
        assert held(log) == {0, 1, 2}
        it.actions.full = False
        pass_time(it, RETRY_MS + 1)
        assert waits(it) == {0: 2, 1: 2, 2: 2}


def test_a_fault_of_one_group_does_not_keep_its_locks_or_those_of_others_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with rig() as it:
        log = begun(it)
        it.make_group(2, share=True)
        other = it.join(2)
        assert it.give(1, log, 3)
        assert it.give(2, other, 3)
        config, wrong = it.sharing.config, [ValueError("no such config")]

        def fails_once(name: str) -> Any:
            if wrong:
                raise wrong.pop()
            return config(name)

        it.sharing.config = fails_once
        pass_time(it, LOCKED + 1)
        assert held(log) == {0, 1, 2}
        assert not other.leases
        assert "locks of group 1 failed" in caplog.text
        assert it.sharing.shares.expired_locks == 3
        pass_time(it, RETRY_MS + 1)
        assert waits(it) == {0: 2, 1: 2, 2: 2}


def test_what_members_held_before_a_start_comes_at_once_although_the_disk_was_full_then() -> None:
    with rig() as it:
        log = begun(it)
        assert it.give(1, log, 3)
        it.start(it.actions.frames)
        it.actions.full = True
        it.sharing.shares.resume()
        assert it.progress(1).leased == 3
        it.actions.full = False
        pass_time(it, RETRY_MS)
        assert it.progress(1).leased == 0
        assert [tuple(r[:3]) for r in it.progress(1).redelivery] == [(0, 3, 1)]


def test_entries_of_acked_messages_do_not_pile_up_behind_one_that_is_held() -> None:
    locks, log = Locks(), ShareLog(1, "m")
    log.give(Lease(0, 0, 1, 1))
    locks.add(1, SID, log, 0, 0, 1, 1.0)
    for n in range(1, 20_000):
        log.give(Lease(n, n, 1, 1))
        locks.add(1, SID, log, n, n, 1, 2.0)
        log.take(n, n + 1)
    assert len(locks) <= 2 * SPARE + 4


def test_renewals_of_acked_messages_do_not_pile_up() -> None:
    with rig(Config(share_max_record_locks=10)) as it:
        log = begun(it)
        it.subject.produce(20_000)
        assert it.give(1, log, 1)  # one is always held
        say(it, log, RENEW, 0, 0)
        for n in range(1, 5_000):
            assert it.give(1, log, 1)
            say(it, log, RENEW, n, n)
            say(it, log, ACCEPT, n, n)
        renewed = it.sharing.shares._locks._renewed
        assert sum(map(len, renewed.values())) <= 2 * SPARE
