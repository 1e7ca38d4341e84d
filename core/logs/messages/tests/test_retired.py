"""All that a subject ever held is deleted by retention: it is still the same subject after a
restart.

Its sequences go on, what was deleted stays deleted, its producers are remembered, and ids are not
given again. The log may have nothing but its newest segment by then.
"""

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from kumquat.core.errors import OffsetOutOfRange, OutOfOrderSequence
from kumquat.core.logs.messages.retention import Retention
from kumquat.core.logs.tests.batches import batch
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.logs.tests.power import Fault

DAY = 24 * 3_600_000
Restart = Callable[[Driver], None]


def kill(driver: Driver) -> None:
    driver.start()


def stop(driver: Driver) -> None:
    driver.log.close()
    driver.start()


def cut_power(driver: Driver) -> None:
    driver.files = driver.files.after_power_cut(Random(5), "nothing")
    driver.start()


RESTARTS: list[Restart] = [kill, stop, cut_power]


def first_batch() -> bytearray:
    return batch(b"x" * 100, b"y", producer_id=4, epoch=1, first=10)


def limit(driver: Driver, **limits: int) -> None:
    driver.log.options = replace(driver.options, **limits)  # type: ignore[arg-type]
    driver.log.state.subjects.defaults.retention_ms = driver.log.options.retention_ms


def retired_log(**limits: int) -> Driver:
    """`quiet` wrote long ago; then `busy` filled segments, and the old ones went."""
    driver = Driver(segment_bytes=2000)
    driver.create("quiet")
    driver.create("busy")
    driver.create("empty")
    driver.take_producer_ids()
    driver.stage_batch("quiet", first_batch())
    driver.append("quiet", 50)
    driver.settle()
    while len(driver.log.state.segments) < 4:
        driver.append("busy", 500)
        driver.settle()
        driver.seal()
    driver.now += DAY // 2
    limit(driver, **limits)
    while driver.retire():
        pass
    assert len(driver.log.state.segments) == 1
    return driver


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("limits", [{"retention_ms": 1000}, {"total_bytes": 1}])
def test_sequences_go_on_when_every_segment_of_a_subject_is_gone(
    restart: Restart, limits: dict[str, int]
) -> None:
    driver = retired_log(**limits)
    for _ in range(2):
        restart(driver)
        assert not driver.errors
        driver.check()
    quiet = driver.subject("quiet")
    assert (quiet.earliest, quiet.readable_end, quiet.next_sequence) == (3, 3, 3)
    with pytest.raises(OffsetOutOfRange):
        driver.reader.read(quiet, 2, 1000, True, nowait=False)
    assert driver.reader.read(quiet, 3, 1000, True, nowait=False) == []
    assert driver.reader.max_timestamp(quiet) is None
    assert driver.append("quiet", 10).base_sequence == 3
    assert driver.append("empty", 10).base_sequence == 0
    driver.settle()
    driver.check()
    restart(driver)
    driver.check()


@pytest.mark.parametrize("restart", RESTARTS)
def test_a_producer_is_remembered_when_its_batches_are_gone(restart: Restart) -> None:
    driver = retired_log(retention_ms=1000)
    restart(driver)
    quiet = driver.subject("quiet")
    repeated = driver.log.append_nowait(quiet, memoryview(first_batch()))
    assert (repeated.base_sequence, quiet.next_sequence) == (0, 3)
    late = batch(b"z", producer_id=4, epoch=1, first=20)
    with pytest.raises(OutOfOrderSequence):
        driver.log.append_nowait(quiet, memoryview(late))
    assert driver.log.state.producer_ceiling == 1000


def test_a_producer_that_was_silent_too_long_is_forgotten_with_the_next_segment() -> None:
    driver = retired_log(retention_ms=1000)
    driver.now += 2 * DAY
    driver.log.roll_when_ready()
    driver.settle()
    driver.start()
    late = batch(b"z", producer_id=4, epoch=1, first=20)
    assert driver.log.append_nowait(driver.subject("quiet"), memoryview(late)).base_sequence == 3


def test_a_subject_recreated_under_an_old_name_has_nothing_of_the_old_one() -> None:
    driver = retired_log(retention_ms=1000)
    old = driver.subject("quiet")
    driver.delete("quiet")
    new = driver.create("quiet")
    driver.settle()
    driver.start()
    found = driver.subject("quiet")
    assert (found.id, found.topic_id) == (new.id, new.topic_id)
    assert old.id < found.id
    assert (found.earliest, found.next_sequence, found.producers) == (0, 0, None)
    driver.check()


def aged_log(kept: int) -> Driver:
    """`kept` wrote long ago, `busy` filled segments behind it, and all are past `log.retention.ms`."""
    driver = Driver(segment_bytes=2000)
    for name in ("kept", "busy"):
        driver.create(name)
    driver.append("kept", 50)
    driver.settle()
    while len(driver.log.state.segments) < 4:
        driver.append("busy", 500)
        driver.settle()
        driver.seal()
    driver.now += DAY // 2
    limit(driver, retention_ms=1000)
    config = driver.subject("kept").config
    driver.subject("kept").config = replace(config, retention_ms=kept)
    return driver


@pytest.mark.parametrize("kept", [-1, 1001, DAY, 2**63 - 1])
def test_a_subject_that_keeps_longer_than_the_log_holds_its_segments(kept: int) -> None:
    driver = aged_log(kept)
    assert not driver.retire()
    held = Retention(driver.log, driver.reader).held(driver.now)
    assert held is not None
    assert [subject.name for subject in held[1]] == ["kept"]
    driver.check()


@pytest.mark.parametrize("kept", [0, 999, 1000])
def test_a_subject_that_keeps_no_longer_than_the_log_holds_nothing(kept: int) -> None:
    driver = aged_log(kept)
    assert Retention(driver.log, driver.reader).held(driver.now) is None
    while driver.retire():
        pass
    assert len(driver.log.state.segments) == 1


def test_held_segments_go_when_the_records_are_deleted_or_the_subject_is() -> None:
    for deleted in (False, True):
        driver = aged_log(-1)
        assert not driver.retire()
        if deleted:
            driver.delete("kept")
        else:
            driver.raise_earliest("kept", 1)
        driver.settle()
        while driver.retire():
            pass
        assert len(driver.log.state.segments) == 1


def test_a_full_log_takes_held_segments_too() -> None:
    driver = aged_log(-1)
    limit(driver, retention_ms=1000, total_bytes=1)
    assert driver.retire()
    assert driver.subject("kept").earliest == 1


@pytest.mark.parametrize("operation", ["unlink", "fsync_dir"])
def test_a_segment_that_could_not_be_deleted_goes_before_the_next(operation: str) -> None:
    """Else it is there at the next start, with a hole behind it."""
    driver = Driver(segment_bytes=2000)
    driver.create("a")
    driver.settle()
    while len(driver.log.state.segments) < 4:
        driver.append("a", 500)
        driver.settle()
        driver.seal()
    driver.log.options = replace(driver.options, total_bytes=1)
    driver.files.fail(Fault(operation, errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        driver.retire()
    held = driver.log.state.segments[0]
    assert [segment.base for segment in driver.log.doomed] == [0]
    while driver.retire():
        pass
    assert not driver.log.doomed
    left = driver.files.listdir(driver.log.state.directory)
    assert [name for name in left if name.endswith(".log")] == [driver.log.state.active.path.name]
    assert held.base > 0
    driver.start()
    assert not driver.errors
    driver.check()
