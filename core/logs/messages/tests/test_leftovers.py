"""What a failure leaves on the disk must not be taken for something else after a power cut.

A failed write leaves bytes that look like frames, a failed roll a file that looks like a segment,
a retired segment may come back. None of it may displace, shadow or reorder what was acked later.
"""

import copy
import errno
from dataclasses import replace
from random import Random

import pytest

from kumquat.core.errors import StorageError
from kumquat.core.logs.messages.tests.test_rolling import about_to_roll, start_from_newest
from kumquat.core.logs.tests.disk import PAGE, Mood
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.logs.tests.power import Fault


def check_after_cuts(driver: Driver, mood: Mood | None = None, seeds: int = 60) -> None:
    """Whatever a power cut leaves now, the promises are kept."""
    for seed in range(seeds):
        left = driver.files.after_power_cut(Random(seed), mood)
        opened = Driver(left, driver.promises)
        assert not [line for line in opened.errors if ".index" not in line]
        opened.check()


@pytest.mark.parametrize("operation", ["reserve", "pwritev"])
def test_a_failed_roll_does_not_come_back_over_what_was_acked_later(operation: str) -> None:
    twin, driver = about_to_roll(), about_to_roll()
    twin.append("first", 100)
    path = twin.log.state.active.path
    driver.files.fail(Fault(operation, errno.ENOSPC, name=path.name, times=None))
    driver.append("first", 100)
    driver.log.options = replace(driver.options, segment_bytes=1 << 20)
    driver.append("first", 200)
    driver.settle()
    assert driver.told("first").end_of_acked() == 3
    assert len(driver.log.state.segments) == 1
    check_after_cuts(driver)


def two_subjects() -> Driver:
    driver = Driver()
    driver.create("a")
    driver.create("b")
    driver.settle()
    return driver


def test_a_frame_of_a_failed_write_does_not_stand_in_for_one_that_came_later() -> None:
    """Two writes to the same place, which ends with a page: the first failed, though its bytes had
    reached the file, and its pages may land in the place of the second's."""
    twin, driver = two_subjects(), two_subjects()
    size = 5000 + 2 * PAGE - twin.stage("a", 5000).end
    driver.files.fail(Fault("pwritev", errno.EIO, name=".log", written=1 << 20))
    assert driver.stage("a", size).end == 2 * PAGE
    with pytest.raises(StorageError):
        driver.write()
    driver.append("b", size)
    driver.append("b", size)
    driver.append("b", size)
    check_after_cuts(driver, "mostly", seeds=100)
    driver.settle()
    check_after_cuts(driver)


def test_frames_behind_a_failed_roll_do_not_come_back_later() -> None:
    """The failed roll's file is back after a cut; the log goes on where that file began."""
    twin, driver = about_to_roll(), about_to_roll()
    twin.append("first", 100)
    path = twin.log.state.active.path
    driver.files.fail(Fault("pwritev", errno.ENOSPC, name=path.name, times=None))
    driver.append("first", 100)
    for _ in range(3):
        driver.append("first", 5000)
    for seed in range(15):
        opened = Driver(driver.files.after_power_cut(Random(seed)), copy.deepcopy(driver.promises))
        opened.check()
        opened.append("first", 5000)
        check_after_cuts(opened, seeds=15)


def test_frames_of_a_failed_write_do_not_hide_the_segment_that_began_in_their_place() -> None:
    driver = Driver()
    driver.create("first")
    driver.append("first", 100)
    driver.settle()
    driver.append("first", 100)
    driver.sync()
    driver.files.fail(Fault("pwritev", errno.EIO, name=".log", written=1 << 20))
    driver.stage("first", 5000)
    with pytest.raises(StorageError):
        driver.write()
    driver.log.roll_when_ready()
    assert len(driver.log.state.segments) == 2
    driver.append("first", 300)
    check_after_cuts(driver)
    driver.sync()
    check_after_cuts(driver)


def test_a_control_frame_behind_a_failed_roll_is_kept() -> None:
    twin, driver = about_to_roll(), about_to_roll()
    twin.append("first", 100)
    path = twin.log.state.active.path
    driver.files.fail(Fault("pwritev", errno.ENOSPC, name=path.name))
    driver.append("first", 100)
    driver.log.options = replace(driver.options, segment_bytes=1 << 20)
    driver.create("second")
    driver.settle()
    check_after_cuts(driver)


def test_retired_segments_that_come_back_shadow_nothing() -> None:
    """Unlinks that were not synced are undone by a cut, in any combination."""
    driver = Driver(segment_bytes=3000)
    driver.create("first")
    driver.create("second")
    driver.settle()
    while len(driver.log.state.segments) < 4:
        driver.append("first", 900)
        driver.settle()
        driver.seal()
    driver.raise_earliest("first", driver.subject("first").readable_end)
    driver.settle()
    driver.create("third")
    driver.log.roll_when_ready()
    while driver.preamble():
        pass
    driver.sync()
    driver.seal()
    while driver.retire():
        pass
    assert len(driver.log.state.segments) == 1
    check_after_cuts(driver)


def test_an_empty_log_of_retired_segments_starts_from_the_newest_alone() -> None:
    driver = about_to_roll()
    driver.append("first", 10)
    start_from_newest(driver)
    base = driver.subject("first").next_sequence
    assert driver.append("first", 10).base_sequence == base


def test_a_file_that_is_none_of_ours_does_not_stop_the_start() -> None:
    driver = two_subjects()
    for name in ("notes.log", "00000000000000000000.index.tmp", "core"):
        driver.files.close(driver.files.open(driver.log.state.directory / name, create=True))
    driver.start()
    driver.check()
    assert {"notes.log", "core"} <= set(driver.files.listdir(driver.log.state.directory))
