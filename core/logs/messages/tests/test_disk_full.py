"""A full disk: a clear error to the producer, reads go on, and writes resume when there is room.

What failed has not happened: sequences, producers and positions are as before, and a power cut at
any time still keeps every promise. Derived files may fail at any time; nobody but the log's own
words notices.
"""

import errno
from random import Random

import pytest

from kumquat.core.errors import StorageError
from kumquat.core.logs.tests.batches import batch
from kumquat.core.logs.tests.damage import next_sequences
from kumquat.core.logs.tests.disk import PAGE
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.logs.tests.power import Fault
from kumquat.core.logs.tests.promises import read_all


def two_subjects(segment_bytes: int = 6000) -> Driver:
    driver = Driver(segment_bytes=segment_bytes)
    driver.create("a")
    driver.create("b")
    driver.settle()
    driver.append("a", 100)
    driver.append("b", 100)
    driver.settle()
    return driver


def check_after_cuts(driver: Driver) -> None:
    for seed in range(20):
        opened = Driver(driver.files.after_power_cut(Random(seed)), driver.promises)
        assert not [line for line in opened.errors if ".index" not in line]
        opened.check()


def append_until_refused(driver: Driver) -> StorageError:
    for size in (500, 5000, 5000, 5000):
        driver.stage("a", size)
        driver.stage("b", size)
        try:
            driver.write()
        except StorageError as error:
            return error
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(
    "fault",
    [
        Fault("reserve", errno.ENOSPC, times=2),
        Fault("pwritev", errno.ENOSPC, name=".log"),
        Fault("pwritev", errno.ENOSPC, name=".log", written=10),
        Fault("pwritev", errno.ENOSPC, name=".log", written=3000),
        Fault("pwritev", errno.EIO, name=".log", written=1 << 20),
        Fault("truncate", errno.EIO, name=".log", skip=1),
    ],
    ids=lambda fault: f"{fault.operation}-{fault.written}",
)
def test_an_append_that_fails_has_not_happened(fault: Fault) -> None:
    driver = two_subjects()
    before = next_sequences(driver)
    driver.files.fail(fault)
    if fault.operation == "truncate":
        driver.files.fail(Fault("pwritev", errno.EIO, name=".log", times=2))
    error = append_until_refused(driver)
    assert (error.error_code, "cannot be written" in str(error)) == (56, True)
    driver.sync()
    assert {name: len(read_all(driver.reader, driver.subject(name))) for name in before}
    driver.files.heal()
    driver.append("a", 300)
    driver.append("b", 300)
    driver.settle()
    driver.check()
    check_after_cuts(driver)


def test_an_idempotent_batch_that_failed_is_new_when_it_comes_again() -> None:
    driver = two_subjects()
    data = batch(b"x" * 50, producer_id=7, epoch=0, first=0)
    driver.files.fail(Fault("pwritev", errno.ENOSPC, name=".log", written=100))
    driver.stage_batch("a", bytearray(data))
    with pytest.raises(StorageError):
        driver.write()
    again = driver.stage_batch("a", bytearray(data))
    driver.write()
    assert again.base_sequence == 1
    driver.settle()
    assert driver.stage_batch("a", bytearray(data)).base_sequence == 1
    assert driver.subject("a").next_sequence == 2


def test_a_disk_that_fills_up_stops_producers_and_goes_on_when_there_is_room() -> None:
    driver = two_subjects(segment_bytes=6000)
    driver.files.capacity = driver.files.used() + 10 * PAGE
    refused = 0
    for _ in range(60):
        try:
            driver.append("a", 900)
            driver.settle()
            driver.seal()
        except (StorageError, OSError):
            refused += 1
            driver.sync()
            read_all(driver.reader, driver.subject("a"))
        driver.check()
    assert refused > 10
    full = driver.subject("a").next_sequence
    check_after_cuts(driver)
    driver.files.heal()
    driver.append("a", 900)
    driver.settle()
    driver.seal()
    assert driver.subject("a").readable_end == full + 1
    driver.check()
    driver.start()
    driver.check()


@pytest.mark.parametrize("operation", ["create", "pwritev", "fdatasync", "rename"])
def test_an_index_that_cannot_be_written_is_written_later(operation: str) -> None:
    driver = two_subjects(segment_bytes=3000)
    driver.append("a", 3000)
    driver.settle()
    assert len(driver.log.state.segments) == 2
    driver.files.fail(Fault(operation, errno.ENOSPC, name=".index"))
    with pytest.raises(OSError, match="No space left"):
        driver.seal()
    driver.check()
    driver.start()
    driver.check()
    driver.seal()
    assert driver.log.unindexed_segments() == []
    driver.check()


def test_a_checkpoint_that_cannot_be_written_costs_nothing() -> None:
    driver = two_subjects(segment_bytes=3000)
    for operation in ("create", "truncate", "pwritev"):
        driver.files.fail(Fault(operation, errno.ENOSPC, name=".checkpoint", times=3, written=20))
    for _ in range(12):
        driver.append("a", 700)
        driver.settle()
    check_after_cuts(driver)
    driver.start()
    assert not [line for line in driver.errors if ".index" not in line]
    driver.check()


def test_a_preamble_that_cannot_be_written_is_written_later() -> None:
    driver = two_subjects(segment_bytes=3000)
    driver.append("a", 3000)
    assert len(driver.log.state.segments) == 2
    driver.files.fail(Fault("pwritev", errno.ENOSPC, name=".log", written=100, times=3))
    for _ in range(3):
        with pytest.raises(StorageError):
            driver.preamble(1)
        driver.sync()
        check_after_cuts(driver)
    driver.settle()
    assert driver.log.state.active.preamble_complete
    driver.append("b", 10)
    driver.settle()
    driver.check()
    check_after_cuts(driver)
