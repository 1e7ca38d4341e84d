"""Every call to the disk fails once, then all is well: nothing acked is lost, and the logs go on.

One life of each log with rolls, indexes, retention and a restart; again for each operation, each error and
each time that it is called. Only a failed sync may end a log's writing, until the next start.
"""

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from kumquat.core.errors import StorageError
from kumquat.core.logs.actions.tests.driver import ActionDriver, told_by
from kumquat.core.logs.messages.index import IndexDamaged
from kumquat.core.logs.tests.driver import Driver, errors_told
from kumquat.core.logs.tests.power import FakeFiles, Fault

READS = ["open", "pread"]
WRITES = ["pwritev", "create", "reserve", "truncate", "rename", "unlink"]
SYNCS = ["fdatasync", "fsync_dir"]
ERRORS = [errno.EIO, errno.EMFILE]
MOST_CALLS = 100


def tried(action: Callable[[], object]) -> None:
    with suppress(StorageError, OSError, IndexDamaged):
        action()


def started(driver: Driver | ActionDriver) -> None:
    """A start that is refused is tried again."""
    try:
        driver.start()
    except (StorageError, OSError):
        driver.start()


def message_life(driver: Driver) -> None:
    for name in ("a", "b"):
        if name not in driver.log.state.subjects.by_name:
            tried(lambda name=name: driver.create(name))  # type: ignore[misc]
    for n in range(36):
        name = "ab"[n % 2]
        if name not in driver.log.state.subjects.by_name:
            driver.create(name)
        tried(lambda name=name, n=n: driver.append(name, 150 + n))  # type: ignore[misc]
        for every, action in (
            (3, driver.sync),
            (4, driver.preamble),
            (7, driver.seal),
            (9, driver.retire),
        ):
            if n % every == 0:
                tried(action)
        if n == 20:
            started(driver)
        driver.now += 600


def faults(operation: str, error: int) -> list[Fault]:
    return [Fault(operation, error, skip=skip) for skip in range(MOST_CALLS)]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("operation", [*READS, *WRITES, *SYNCS])
def test_the_message_log_keeps_its_promises_and_goes_on(operation: str, error: int) -> None:
    for fault in faults(operation, error):
        driver = Driver(FakeFiles(), segment_bytes=2500, total_bytes=9000, tail_bytes=500)
        driver.files.fail(fault)
        with errors_told():
            message_life(driver)
            if fault.times:
                return  # it is not called so often
            driver.files.heal()
            if driver.log.fenced is None:
                driver.now += 5000
                driver.append("a", 5)
                driver.settle()
                driver.check()
            else:
                assert operation in SYNCS
            driver.start()
            driver.check()
        assert driver.reader.corrupt_reads == 0
        assert not [line for line in driver.errors if ".index" not in line]


def action_life(driver: ActionDriver) -> None:
    for n in range(50):
        if n % 10 == 0:
            tried(lambda n=n: driver.join(f"g{n % 3}", 1))  # type: ignore[misc]
        elif driver.groups.slots.get(1):
            group, log = next(iter(driver.groups.slots[1].values()))
            tried(lambda group=group, log=log: driver.pull(group, 1, log, 2))  # type: ignore[misc]
            if n % 4 == 0:
                tried(lambda group=group, log=log: driver.ack(group, 1, log, log.next))  # type: ignore[misc]
        for every, action in (
            (2, lambda: driver.log.snapshot_step(1)),
            (3, driver.sync),
            (7, driver.tidy),
        ):
            if n % every == 0:
                tried(action)
        if n == 25:
            started(driver)
            driver.found()
        driver.now += 600


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("operation", [*READS, *WRITES, *SYNCS])
def test_the_action_log_keeps_its_promises_and_goes_on(operation: str, error: int) -> None:
    for fault in faults(operation, error):
        driver = ActionDriver(FakeFiles(), segment_bytes=1200)
        driver.found()
        driver.files.fail(fault)
        with told_by("kumquat.actions"):
            action_life(driver)
            if fault.times:
                return
            driver.files.heal()
            if driver.log.fenced is None:
                driver.now += 5000
                driver.settle()
            else:
                assert operation in SYNCS
            driver.start()
        assert not driver.errors
        driver.found()
