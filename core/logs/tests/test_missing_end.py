"""A folder that was copied while its broker ran: told once, and nothing hidden."""

import copy

import pytest

from kumquat.core.delivery import actions
from kumquat.core.errors import CorruptMessage
from kumquat.core.logs.actions.tests.driver import ActionDriver
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.logs.tests.promises import read_all


def copied(early: int, late: int) -> tuple[Driver, FakeFiles, bytes, int]:
    """A log, and its file before `late` more batches were synced, of which the checkpoint knows."""
    driver = Driver(segment_bytes=1 << 20, tail_bytes=1, index_max_entries=1 << 20)
    driver.create("a")
    driver.create("b")
    driver.settle()
    for n in range(early):
        driver.append("ab"[n % 2], 300 + n)
        driver.sync()
    path = driver.log.state.active.path
    content, size = driver.files.content(path), driver.log.state.active.size
    for n in range(late):
        driver.append("ab"[n % 2], 300 + n)
        driver.sync()
    return driver, driver.files, content, size


@pytest.mark.parametrize("reserved", [True, False])
@pytest.mark.parametrize("late", [1, 40])
def test_a_live_copy_is_told_of_in_one_line_and_once(late: int, reserved: bool) -> None:
    driver, files, content, size = copied(10, late)
    high = driver.subject("a").high_watermark
    path = driver.log.state.active.path
    end = driver.log.written_end
    files.damage(path, content if reserved else content[:size])
    driver.start()
    [line] = driver.errors
    assert f"the end of the log is missing: it was synced up to position {end}" in line
    assert "made while its broker ran" in line
    assert f"'a' 5 to {high - 1} ({high - 5})" in line
    subject = driver.subject("a")
    assert subject.high_watermark == high, "a sequence that was given is given again"
    assert len(driver.reader.read(subject, 0, 1 << 20, True, nowait=False)) == 5
    with pytest.raises(CorruptMessage):
        driver.reader.read(subject, 5, 1, True, nowait=False)
    assert driver.append("a", 10).base_sequence == high
    driver.settle()
    driver.seal()
    for _ in range(2):
        driver.start()
        assert not driver.errors, "said at every start"
        assert driver.reader.read(driver.subject("a"), high, 1, True, nowait=False)
        with pytest.raises(CorruptMessage):
            driver.reader.read(driver.subject("a"), high - 1, 1, True, nowait=False)


@pytest.mark.parametrize("more", [30, 70, 200])
def test_a_live_copy_that_ends_within_a_frame_is_told_of_in_one_line(more: int) -> None:
    driver, files, content, size = copied(10, 5)
    path = driver.log.state.active.path
    later = files.content(path)
    files.damage(path, later[: size + more] + content[size + more :])
    driver.start()
    [line] = driver.errors
    assert "the end of the log is missing" in line
    assert "'a' 5 to 7 (3)" in line


def test_a_sealed_segment_that_lacks_its_end_is_told_of_once() -> None:
    driver = Driver(segment_bytes=3000, tail_bytes=1)
    driver.create("a")
    driver.settle()
    while len(driver.log.state.segments) < 3:
        driver.append("a", 500)
        driver.settle()
    driver.seal()
    first = driver.log.state.segments[0]
    driver.files.damage(first.path, driver.files.content(first.path)[:2000])
    driver.start()
    [line] = driver.errors
    assert "corruption at position 2000" in line
    assert "the end of the log is missing" in line
    driver.start()
    assert not driver.errors
    with pytest.raises(CorruptMessage):
        read_all(driver.reader, driver.subject("a"))


def test_frames_that_are_damaged_one_behind_the_other_are_one_line() -> None:
    driver, files, _, _ = copied(20, 0)
    path = driver.log.state.active.path
    content = bytearray(files.content(path))
    content[3000:6000] = bytes(3000)
    files.damage(path, bytes(content))
    driver.start()
    [line] = driver.errors
    assert "frames up to position" in line
    assert "messages that cannot be read: " in line
    driver.settle()
    driver.start()
    assert not driver.errors


def test_a_live_copy_of_the_action_log_is_told_of_once() -> None:
    driver = ActionDriver(segment_bytes=1 << 20)
    group = driver.group("g")
    driver.settle()
    path = driver.log.active.path
    content = driver.files.content(path)
    for n in range(30):
        driver.do(actions.Commit(group.id, 9, n, -1, "x"))
        driver.sync()
    driver.files.damage(path, content)
    opened = ActionDriver(driver.files, copy.deepcopy(driver.book), driver.segment_bytes)
    [line] = opened.errors
    assert "the end of the log is missing: it was synced up to position" in line
    assert "g" in opened.groups.by_name
    opened.settle()
    again = ActionDriver(driver.files, copy.deepcopy(driver.book), driver.segment_bytes)
    assert not again.errors
