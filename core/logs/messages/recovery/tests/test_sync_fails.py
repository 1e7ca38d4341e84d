"""A sync that fails: no ack, ever, for what it covered; the log is closed for writing, loudly;
reads go on.

And a sync that takes long: nothing that waits for it is answered before, a repetition no more than
its original.
"""

import errno
from collections.abc import Callable
from random import Random

import pytest

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.tests.batches import batch
from kumquat.core.logs.tests.driver import Driver, errors_told
from kumquat.core.logs.tests.power import Fault
from kumquat.core.logs.tests.promises import read_all


def one_subject(segment_bytes: int = 6000) -> Driver:
    driver = Driver(segment_bytes=segment_bytes)
    driver.create("a")
    driver.append("a", 100)
    driver.settle()
    return driver


class Answers:
    """What those who waited were told."""

    def __init__(self) -> None:
        self.given: list[KumquatError | None] = []

    def wait(self, driver: Driver, end: int) -> None:
        driver.log.call_when_synced(end, self.given.append)


@pytest.mark.parametrize("operation", ["fdatasync", "fsync_dir"])
def test_a_failed_sync_acks_nothing_and_closes_the_log(operation: str) -> None:
    driver, answers = one_subject(segment_bytes=800), Answers()
    appended = driver.append("a", 900)
    assert len(driver.log.state.segments) == 2
    answers.wait(driver, appended.end)
    driver.files.fail(Fault(operation, errno.EIO))
    with errors_told() as told:
        driver.sync()
    assert [type(answer) for answer in answers.given] == [StorageError]
    assert any("failed" in line and "closed for writing" in line for line in told)
    assert driver.subject("a").readable_end == 1
    assert driver.log.begin_sync() is None, "a failed sync is tried again"
    refused: list[Callable[[], object]] = [
        lambda: driver.append("a", 10),
        lambda: driver.create("b"),
        lambda: driver.delete("a"),
        lambda: driver.raise_earliest("a", 1),
        driver.take_producer_ids,
    ]
    for attempt in refused:
        with pytest.raises(StorageError, match="fenced"):
            attempt()
    answers.wait(driver, appended.end)
    assert len(answers.given) == 2
    assert isinstance(answers.given[1], StorageError)
    assert len(read_all(driver.reader, driver.subject("a"))) == 1


def test_what_a_failed_sync_covered_is_not_shown_after_a_restart_until_it_is_safe() -> None:
    """The kernel holds the pages, calls them clean, and the next sync succeeds without them."""
    driver = one_subject()
    driver.append("a", 5000)
    driver.append("a", 100)
    driver.files.fail(Fault("fdatasync", errno.EIO, name=".log"))
    driver.sync()
    driver.start()
    driver.look()
    for seed in range(30):
        opened = Driver(driver.files.after_power_cut(Random(seed)), driver.promises)
        opened.check()


def test_nobody_is_answered_before_a_held_sync_ends() -> None:
    driver, answers = one_subject(), Answers()
    data = batch(b"x", producer_id=3, epoch=0, first=0)
    original = driver.stage_batch("a", bytearray(data))
    driver.write()
    answers.wait(driver, original.end)
    job = driver.log.begin_sync()
    assert job is not None
    repeated = driver.stage_batch("a", bytearray(data))
    driver.write()
    answers.wait(driver, repeated.end)
    later = driver.append("a", 10)
    answers.wait(driver, later.end)
    assert (repeated.base_sequence, answers.given) == (original.base_sequence, [])
    assert driver.subject("a").readable_end == 1
    driver.run_job(job)
    assert answers.given == [None, None], "or what was written during the sync was acked by it"
    assert driver.subject("a").readable_end == 2
    driver.sync()
    assert answers.given == [None, None, None]


def test_a_repetition_of_what_a_failed_sync_covered_is_refused() -> None:
    driver, answers = one_subject(), Answers()
    data = batch(b"x", producer_id=3, epoch=0, first=0)
    original = driver.stage_batch("a", bytearray(data))
    driver.write()
    job = driver.log.begin_sync()
    assert job is not None
    answers.wait(driver, driver.log.append_nowait(driver.subject("a"), memoryview(data)).end)
    driver.files.fail(Fault("fdatasync", errno.EIO, name=".log"))
    driver.run_job(job)
    assert [type(answer) for answer in answers.given] == [StorageError]
    with pytest.raises(StorageError):
        driver.log.append_nowait(driver.subject("a"), memoryview(bytearray(data)))
    assert original.base_sequence == 1


def test_a_duplicate_after_a_restart_is_answered_at_once_since_all_is_synced_then() -> None:
    driver, answers = one_subject(), Answers()
    data = batch(b"x", producer_id=3, epoch=0, first=0)
    original = driver.stage_batch("a", bytearray(data))
    driver.write()
    driver.start()
    assert not [path for path in driver.files.unsynced() if path.endswith(".log")]
    repeated = driver.log.append_nowait(driver.subject("a"), memoryview(bytearray(data)))
    answers.wait(driver, repeated.end)
    assert (repeated.base_sequence, answers.given) == (original.base_sequence, [None])
