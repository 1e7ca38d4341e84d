"""A disk that cannot read while a log is opened: sectors that are gone, errors that pass, no descriptors.

None of it may cost more than what cannot be read, and nothing at all once it can be read again.
"""

import copy
import errno
from pathlib import Path

import pytest

from core.delivery import actions
from core.errors import CorruptMessage, StartError, StorageError
from core.logs.action_service import ActionService
from core.logs.options import LogOptions
from core.logs.service import MessageService
from core.logs.tests.action_driver import ActionDriver
from core.logs.tests.driver import Driver
from core.logs.tests.power import FakeFiles, Fault
from core.logs.tests.promises import read_all
from core.logs.tests.test_action_damage import lived

LOG = "0" * 20 + ".log"
PAGE = 4096


def written(count: int = 12, size: int = 1500) -> Driver:
    """One segment of several pages, all synced, and the process killed."""
    driver = Driver(segment_bytes=1 << 20, tail_bytes=1)
    driver.create("a")
    driver.create("b")
    driver.settle()
    for n in range(count):
        driver.append("a" if n % 3 else "b", size + n)
        driver.sync()
    return driver


def readable(driver: Driver, name: str) -> dict[int, type[Exception] | None]:
    """What a read at each sequence comes to."""
    outcomes: dict[int, type[Exception] | None] = {}
    subject = driver.subject(name)
    for sequence in range(subject.high_watermark):
        try:
            driver.reader.read(subject, sequence, 1, True, nowait=False)
        except (CorruptMessage, StorageError) as error:
            outcomes[sequence] = type(error)
        else:
            outcomes[sequence] = None
    return outcomes


@pytest.mark.parametrize("page", range(5))
def test_a_sector_that_cannot_be_read_is_contained_and_healed_by_the_disk_alone(page: int) -> None:
    driver = written()
    before = {name: driver.subject(name).high_watermark for name in ("a", "b")}
    driver.files.bad_sectors.append((LOG, page * PAGE, (page + 1) * PAGE))
    if page == 0:  # who the subjects are is told there, and nowhere else
        with pytest.raises(OSError, match="Input/output"):
            driver.start()
        driver.files.heal()
        driver.start()
        driver.check()
        return
    driver.start()
    assert any("the disk cannot read it" in line for line in driver.errors)
    assert {name: driver.subject(name).high_watermark for name in ("a", "b")} == before
    outcomes = [*readable(driver, "a").values(), *readable(driver, "b").values()]
    assert 0 < outcomes.count(StorageError) <= 4
    assert CorruptMessage not in outcomes, "a verdict on what was never read"
    driver.files.heal()
    driver.check()
    driver.start()
    assert not driver.errors
    driver.check()


def test_a_sector_behind_all_that_is_known_to_be_synced_is_cut_off_loudly() -> None:
    driver = written()
    end = driver.log.written_end
    driver.append("a", 6000)
    driver.append("a", 100)
    sector = -(-end // PAGE) * PAGE
    driver.files.bad_sectors.append((LOG, sector, sector + PAGE))
    driver.start()
    assert any("cut off" in line and "kept aside" in line for line in driver.errors)
    driver.check()
    driver.files.heal()
    driver.append("a", 100)
    driver.settle()
    driver.start()
    assert not driver.errors
    driver.check()


@pytest.mark.parametrize("lost", ["checkpoint", "log"])
@pytest.mark.parametrize("times", [1, 2])
def test_an_error_that_passes_while_the_log_is_opened_is_no_damage(lost: str, times: int) -> None:
    driver = written()
    for skip in range(12):
        driver.files.fail(Fault("pread", errno.EIO, name=lost, skip=skip, times=times))
        driver.start()
        assert not driver.errors
        driver.files.heal()
        driver.check()
        assert len(read_all(driver.reader, driver.subject("a"))) == 8


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM, errno.EACCES])
@pytest.mark.parametrize("operation", ["open", "pread"])
def test_a_start_without_descriptors_or_memory_is_refused_and_takes_nothing_for_damaged(
    operation: str, error: int
) -> None:
    """A corrupt frame makes it worse: a checkpoint that is not read would make it a tear."""
    driver = written()
    driver.settle()
    path = driver.log.state.active.path
    content = bytearray(driver.files.content(path))
    content[driver.log.state.active.end - 100] ^= 1
    driver.files.damage(path, bytes(content))
    refused = 0
    for skip in range(20):
        driver.files.fail(Fault(operation, error, skip=skip))
        try:
            driver.start()
        except (OSError, StorageError):
            refused += 1
            driver.files.heal()
            driver.start()
        driver.files.heal()
        assert driver.subject("a").high_watermark == 8
        assert list(readable(driver, "a").values()) == [None] * 7 + [CorruptMessage]
    assert refused


@pytest.mark.parametrize(
    ("error", "advice"),
    [(errno.EMFILE, "ulimit -n"), (errno.ENOMEM, "memory"), (errno.EIO, "check the disk")],
)
def test_a_start_that_is_refused_says_what_to_do(tmp_path: Path, error: int, advice: str) -> None:
    files = FakeFiles(tmp_path)
    files.fail(Fault("open", error, name="messages"))
    with pytest.raises(StartError, match=advice):
        MessageService.open(LogOptions(directory=tmp_path), files)
    files.fail(Fault("open", error, name="actions"))
    with pytest.raises(StartError, match=advice):
        ActionService.open(tmp_path, files)


def test_an_index_is_not_made_of_what_could_not_be_read() -> None:
    """Else a message would count as lost for good that can be read tomorrow."""
    driver = Driver(segment_bytes=3 * PAGE, tail_bytes=1)
    driver.create("a")
    driver.settle()
    while len(driver.log.state.segments) < 3:
        driver.append("a", 300)
        driver.settle()
    driver.seal()
    driver.files.unlink(driver.log.state.segments[0].index_path)
    driver.start()
    driver.files.bad_sectors.append((LOG, PAGE, 2 * PAGE))
    for _ in range(3):
        with pytest.raises(StorageError):
            driver.reader.read(driver.subject("a"), 0, 1, True, nowait=False)
    driver.files.heal()
    driver.check()
    assert CorruptMessage not in readable(driver, "a").values()


# --- the action log ----------------------------------------------------------------------------


def reopened(driver: ActionDriver, files: FakeFiles) -> ActionDriver:
    return ActionDriver(files, copy.deepcopy(driver.book), driver.segment_bytes)


def test_a_sector_of_the_action_log_that_cannot_be_read_is_contained() -> None:
    driver = ActionDriver(segment_bytes=1 << 20)
    for n in range(50):
        group = driver.group(f"g{n}")
        driver.do((actions.COMMIT, group.id, 9, n, -1, "x" * 300))
        driver.sync()
    driver.settle()
    files = driver.files.after_kill()
    files.bad_sectors.append((driver.log.active.path.name, PAGE, 2 * PAGE))
    opened = reopened(driver, files)
    assert any("the disk cannot read it" in line for line in opened.errors)
    lost = driver.groups.by_name.keys() - opened.groups.by_name.keys()
    assert 0 < len(lost) < 12, "no more than lay in that sector"
    opened.settle()
    again = reopened(opened, files)
    assert not again.errors, "a segment with damage is left behind"
    assert again.groups.by_name.keys() == opened.groups.by_name.keys()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", ["actions", "synced"])
def test_an_error_that_passes_while_the_action_log_is_opened_is_no_damage(
    name: str, times: int
) -> None:
    driver = lived()
    for skip in range(8):
        driver.files.fail(Fault("pread", errno.EIO, name=name, skip=skip, times=times))
        driver.start()
        assert not driver.errors
        assert driver.found() == driver.before
        driver.files.heal()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM])
@pytest.mark.parametrize("operation", ["open", "pread"])
def test_an_action_log_is_not_opened_without_descriptors_or_memory(
    operation: str, error: int
) -> None:
    driver = lived()
    refused = 0
    for skip in range(12):
        driver.files.fail(Fault(operation, error, skip=skip))
        try:
            driver.start()
        except (OSError, StorageError):
            refused += 1
            driver.files.heal()
            driver.start()
        assert not driver.errors
        assert driver.found() == driver.before
        driver.files.heal()
    assert refused
