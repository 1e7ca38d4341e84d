"""Rolling in the middle of something: what a frame says must not fall between two segments.

The write that takes a segment past its size rolls it. Whatever that write was, a start from the
newest segment alone, which is all that retention may leave, must know it.
"""

import errno
from dataclasses import replace

import pytest

from kumquat.core.logs.disk.rolling import RETRY_SECONDS
from kumquat.core.logs.messages import preamble
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.logs.tests.power import Fault


def about_to_roll() -> Driver:
    """A log whose next write rolls the segment."""
    driver = Driver(segment_bytes=6000)
    driver.create("first")
    driver.settle()
    driver.append("first", 4000)
    driver.settle()
    driver.log.options = type(driver.options)(
        directory=driver.options.directory, segment_bytes=1000
    )
    return driver


def start_from_newest(driver: Driver) -> None:
    driver.settle()
    driver.seal()
    before = len(driver.log.state.segments)
    driver.log.options = replace(driver.options, total_bytes=1)
    while driver.log.state.segments[:-1]:
        assert driver.retire()
    assert before > 1, "nothing was rolled"
    driver.start()
    assert not driver.errors
    driver.check()


def test_a_subject_created_by_the_write_that_rolls_is_not_lost() -> None:
    driver = about_to_roll()
    driver.create("second")
    driver.append("second", 10)
    start_from_newest(driver)
    assert "second" in driver.log.state.subjects.by_name


def test_producer_ids_taken_by_the_write_that_rolls_are_not_given_twice() -> None:
    driver = about_to_roll()
    driver.take_producer_ids()
    start_from_newest(driver)
    assert driver.log.state.producer_ceiling == 1000


def test_an_earliest_raised_by_the_write_that_rolls_stays() -> None:
    driver = about_to_roll()
    driver.raise_earliest("first", 1)
    start_from_newest(driver)
    assert driver.subject("first").earliest == 1


def test_a_subject_deleted_by_the_write_that_rolls_stays_dead() -> None:
    driver = about_to_roll()
    driver.create("second")
    driver.settle()
    driver.delete("first")
    start_from_newest(driver)
    assert list(driver.log.state.subjects.by_name) == ["second"]


@pytest.mark.parametrize("operation", ["create", "reserve", "pwritev"])
def test_a_roll_that_fails_is_done_later_and_loses_nothing(operation: str) -> None:
    twin, driver = about_to_roll(), about_to_roll()
    twin.append("first", 100)
    driver.files.fail(Fault(operation, errno.ENOSPC, name=twin.log.state.active.path.name))
    driver.append("first", 100)
    assert len(driver.log.state.segments) == 1
    driver.append("first", 100)
    assert len(driver.log.state.segments) == 1, "not tried again at once"
    driver.now += int(RETRY_SECONDS * 1000)
    driver.append("first", 100)
    assert len(driver.log.state.segments) == 2
    start_from_newest(driver)


def test_a_roll_that_is_wanted_before_the_segment_is_full_is_not_forgotten_while_producers_are_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preamble, "MANY", 3)
    driver = Driver()
    driver.create("first")
    for producer in range(8):
        driver.append("first", 10, producer=(producer, 0, 0))
    driver.settle()
    driver.log.roll_when_ready()
    assert driver.log.has_chores
    while driver.log.pack_step(3):
        assert len(driver.log.state.segments) == 1
    assert len(driver.log.state.segments) == 2
    start_from_newest(driver)


def test_a_preamble_that_ends_behind_a_tear_is_not_relied_on() -> None:
    """Its last frames landed, one before them did not: with the tear goes the end of the preamble."""
    driver = about_to_roll()
    driver.create("second")
    driver.append("first", 10)
    driver.sync()
    active = driver.log.state.active
    torn = driver.append("first", 300).end - active.base
    assert not driver.preamble(100)
    files = driver.files.after_kill()
    content = bytearray(files.content(active.path))
    content[torn - 100 : torn] = bytes(100)
    files.damage(active.path, bytes(content))
    opened = Driver(files, driver.promises)
    assert not [line for line in opened.errors if ".index" not in line]
    opened.check()
    opened.settle()
    opened.check()


def test_handles_do_not_grow_with_segments_and_none_is_left_at_the_end() -> None:
    driver = Driver(segment_bytes=300)
    driver.create("first")
    driver.settle()
    while len(driver.log.state.segments) < 100:
        driver.append("first", 300)
        driver.settle()
        driver.seal()
    driver.check()
    assert driver.files.open_handles() < 70
    driver.log.close()
    assert driver.files.open_handles() == 0
