"""Disks that run full or fail under the action log, and rolls that come to nothing."""

import copy
import errno
from contextlib import suppress
from random import Random

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.pull_log import JUMP
from kumquat.core.delivery.state import Group, PullLog
from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.actions.recovery import open_action_log
from kumquat.core.logs.actions.tests.driver import DATA, ActionDriver, shape
from kumquat.core.logs.disk.rolling import RETRY_SECONDS
from kumquat.core.logs.tests.power import FakeFiles, Fault


def begun() -> tuple[ActionDriver, Group, PullLog]:
    driver = ActionDriver(segment_bytes=3000)
    assert driver.found() == 0
    log = driver.join("g", 1)
    driver.pull(driver.group("g"), 1, log, 10)
    driver.settle()
    driver.stop()
    driver.start()
    assert driver.found() == driver.before
    group, log = driver.groups.slots[1][1]
    return driver, group, log


@pytest.mark.parametrize("written", [0, 1, 44, 60, 10_000])
def test_a_failed_write_changes_nothing_and_is_never_seen_again(written: int) -> None:
    driver, group, log = begun()
    before = shape(driver.groups)
    driver.files.fail(Fault("pwritev", errno.EIO, written=written))
    with pytest.raises(StorageError):
        driver.ack(group, 1, log, log.next)
    assert shape(driver.groups) == before
    driver.files.heal()
    driver.pull(group, 1, log, 5)
    driver.settle()
    driver.start()
    assert not driver.errors
    assert driver.found() == driver.before


def test_a_process_killed_after_a_failed_write_starts_with_what_was_before_or_after_it() -> None:
    for written in range(0, 70, 3):
        driver, group, log = begun()
        driver.files.fail(Fault("pwritev", errno.EIO, written=written))
        with pytest.raises(StorageError):
            driver.ack(group, 1, log, log.next)
        opened = ActionDriver(driver.files.after_kill(), copy.deepcopy(driver.book))
        assert not opened.errors
        if opened.groups.by_name["g"].progress[1].settled:
            continue  # all of it had reached the file
        assert opened.found() == opened.before


def test_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    driver, group, log = begun()
    driver.files.capacity = driver.files.used()
    with suppress(StorageError):
        for _ in range(200):
            driver.pull(group, 1, log, 1)
    for _ in range(5):
        with pytest.raises(StorageError, match="No space left"):
            driver.pull(group, 1, log, 1)
    driver.files.heal()
    driver.pull(group, 1, log, 1)
    driver.settle()
    driver.start()
    assert not driver.errors
    assert driver.found() == driver.before
    driver.goes_on()


def test_a_failed_sync_fences_the_log_and_is_told_to_all_who_wait() -> None:
    driver, group, log = begun()
    told: list[KumquatError | None] = []
    position = driver.log.append([actions.Ack(group.id, 1, log.slot, log.next)])
    driver.log.call_when_synced(position, told.append)
    driver.files.fail(Fault("fdatasync", errno.EIO))
    driver.sync()
    assert isinstance(told[0], StorageError)
    with pytest.raises(StorageError, match="fenced"):
        driver.pull(group, 1, log, 1)
    driver.log.call_when_synced(position, told.append)
    assert isinstance(told[1], StorageError)
    assert driver.log.begin_sync() is None
    driver.log.close()
    for seed in range(10):
        left = driver.files.after_power_cut(Random(seed))
        groups = open_action_log(left, DATA, driver.clock).groups
        assert {"g"} == groups.by_name.keys()


def test_what_a_failed_sync_covered_is_safe_before_a_start_builds_on_it() -> None:
    """The kernel holds the pages, calls them clean, and the next sync succeeds without them."""
    driver, group, log = begun()
    driver.pull(group, 1, log, 5)
    driver.do(actions.Commit(group.id, 9, 1, -1, "x" * 9000))
    driver.ack(group, 1, log, log.next)
    driver.files.fail(Fault("fdatasync", errno.EIO))
    driver.sync()
    assert driver.log.fenced is not None
    driver.start()
    assert driver.found() == driver.before
    for seed in range(30):
        opened = ActionDriver(
            driver.files.after_power_cut(Random(seed)), copy.deepcopy(driver.book)
        )
        opened.found()


@pytest.mark.parametrize("operation", ["create", "truncate", "reserve", "pwritev", "rename"])
def test_a_roll_that_fails_is_done_later_and_loses_nothing(operation: str) -> None:
    driver, group, log = begun()
    driver.files.fail(Fault(operation, errno.ENOSPC, name="unnamed"))
    while driver.log.active.end - driver.log.active.snapshot_end < 3000:
        driver.pull(group, 1, log, 1)
    assert len(driver.log.segments) == 1
    for seed in range(5):
        left = driver.files.after_power_cut(Random(seed))
        opened = ActionDriver(left, copy.deepcopy(driver.book))
        assert not opened.errors
        opened.found()
    driver.now += int(RETRY_SECONDS * 1000)
    driver.pull(group, 1, log, 1)
    assert len(driver.log.segments) == 2
    driver.settle()
    driver.start()
    assert not driver.errors
    assert driver.found() == driver.before


def test_more_than_a_leap_is_never_handed_out_unsynced() -> None:
    driver, group, log = begun()
    driver.pull(group, 1, log, 100)
    half = [actions.Pull(group.id, 1, log.slot, log.next, [[110, JUMP - 200, 1]])]
    driver.log.append(half)
    refused = [actions.Pull(group.id, 1, log.slot, log.next, [[JUMP - 90, 200, 1]])]
    with pytest.raises(StorageError, match="does not keep up"):
        driver.log.append(refused)
    job = driver.log.begin_sync()
    assert job is not None
    with pytest.raises(StorageError):
        driver.log.append(refused)
    driver.run_job(job)
    driver.log.append(refused)


def test_two_starts_after_one_clean_stop_are_not_both_taken_for_clean() -> None:
    driver, _, _ = begun()
    driver.stop()
    driver.start()
    driver.found()
    group, log = driver.groups.slots[1][1]
    driver.pull(group, 1, log, 7)
    files: FakeFiles = driver.files.after_power_cut(Random(0), "nothing")
    opened = ActionDriver(files, copy.deepcopy(driver.book))
    opened.found()
    opened.goes_on()


def test_old_segments_go_and_the_newest_two_stay() -> None:
    driver, group, log = begun()
    for _ in range(400):
        driver.pull(group, 1, log, 1)
        driver.ack(group, 1, log, log.next)
        driver.settle()
        driver.tidy()
        assert len(driver.log.segments) <= 2
    names = [name for name in driver.files.listdir(DATA / "actions") if name.endswith(".actions")]
    assert len(names) == 2
    total = sum(len(driver.files.content(DATA / "actions" / name)) for name in names)
    assert total < 20_000, "the log grows with what was consumed"
    driver.start()
    assert driver.found() == driver.before


def test_a_pull_log_whose_member_is_gone_is_released_at_the_next_start() -> None:
    driver, group, log = begun()
    driver.do(actions.Left(group.id, log.member_id))
    driver.start()
    assert driver.found() == driver.before
    progress = driver.group("g").progress[1]
    assert not progress.pull_logs
    assert progress.redelivery.total == 10


def test_a_member_does_not_hold_a_slot_that_is_gone() -> None:
    driver, group, log = begun()
    driver.do(actions.Release(group.id, 1, log.slot))
    driver.start()
    assert driver.found() == driver.before
    assert [member.holds for member in driver.group("g").members.values()] == [{}]


def test_what_cannot_be_written_as_json_is_refused_before_it_is_written() -> None:
    driver, group, _ = begun()
    end = driver.log.written_end
    with pytest.raises(TypeError):
        driver.log.append([actions.Commit(group.id, 1, 5, -1, b"bytes")])  # type: ignore[arg-type]
    assert driver.log.written_end == end


@pytest.mark.parametrize("name", ["", "ä", "\ud800", "\0", "\U0001f34a" * 100, "aKQA"])
def test_any_group_name_survives(name: str) -> None:
    driver, _, _ = begun()
    driver.group(name)
    driver.settle()
    driver.start()
    assert driver.found() == driver.before
    assert name in driver.groups.by_name
