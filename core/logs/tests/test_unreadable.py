"""A disk that cannot read while a log is opened: sectors that are gone, errors that pass, no descriptors.

None of it may cost more than what cannot be read, and nothing at all once it can be read again.
"""

import copy
import errno
from contextlib import suppress
from pathlib import Path

import pytest

from kumquat.core.delivery import actions
from kumquat.core.errors import CorruptMessage, StartError, StorageError
from kumquat.core.logs.actions.service import ActionService
from kumquat.core.logs.actions.tests.driver import FOLDER, ActionDriver
from kumquat.core.logs.actions.tests.test_action_damage import lived
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.tests.driver import DATA, Driver
from kumquat.core.logs.tests.power import FakeFiles, Fault
from kumquat.core.logs.tests.promises import read_all

LOG = "0" * 20 + ".log"
MESSAGES = DATA / "messages"
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
    for sequence in range(subject.readable_end):
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
    before = {name: driver.subject(name).readable_end for name in ("a", "b")}
    driver.files.bad_sectors.append((LOG, page * PAGE, (page + 1) * PAGE))
    last = driver.log.written_end // PAGE
    if page in (0, last):
        # In the first, and nowhere else, is told who the subjects are. In the last there may be more that
        # was acked than is known.
        with pytest.raises(StartError, match=r"Input/output.*heck the disk.*dd if="):
            driver.start()
        driver.files.heal()
        driver.start()
        driver.check()
        return
    driver.start()
    assert any("the disk cannot read it" in line for line in driver.errors)
    assert {name: driver.subject(name).readable_end for name in ("a", "b")} == before
    outcomes = [*readable(driver, "a").values(), *readable(driver, "b").values()]
    assert 0 < outcomes.count(StorageError) <= 4
    assert CorruptMessage not in outcomes, "a verdict on what was never read"
    driver.files.heal()
    driver.check()
    driver.start()
    assert not driver.errors
    driver.check()


def contents(files: FakeFiles, folder: Path) -> dict[str, bytes]:
    return {name: files.content(folder / name) for name in files.listdir(folder)}


def give_up(files: FakeFiles, path: Path) -> None:
    """What `dd conv=noerror,sync` makes of a file: zeros where it cannot be read."""
    content = bytearray(files.content(path))
    for _, begin, end in files.bad_sectors:
        content[begin:end] = bytes(len(content[begin:end]))
    files.damage(path, bytes(content))
    files.heal()


def test_a_sector_behind_all_that_is_known_to_be_synced_refuses_the_start_and_is_not_cut_off() -> (
    None
):
    """It may have been acked. (It was cut off once, loudly: an error of the machine, and a verdict on
    data.)"""
    driver = written()
    end = driver.log.written_end
    driver.append("a", 6000)
    driver.append("a", 100)
    sector = -(-end // PAGE) * PAGE
    before = contents(driver.files, MESSAGES)
    driver.files.bad_sectors.append((LOG, sector, sector + PAGE))
    for _ in range(2):
        with pytest.raises(
            StartError, match=rf"{LOG}: .*position {sector}.*heck the disk.*start again.*dd if="
        ):
            driver.start()
    assert contents(driver.files, MESSAGES) == before
    give_up(driver.files, MESSAGES / LOG)
    driver.start()
    assert not driver.errors, "zeros are a tear"
    assert any(".cut-" in name for name in driver.files.listdir(MESSAGES)), "kept aside"
    driver.check()


@pytest.mark.parametrize("times", [3, 4, 20, None])
def test_acked_messages_without_a_checkpoint_survive_a_disk_that_cannot_read_for_a_while(
    times: int | None,
) -> None:
    """A checkpoint is never synced, so a power cut takes it, and all that told of the last round."""
    driver = written()
    before = {name: driver.subject(name).readable_end for name in ("a", "b")}
    driver.files.unlink(driver.log.state.active.checkpoint_path)
    last = driver.log.written_end - 1000
    for skip in range(8 if times else 1):
        if times is None:
            driver.files.bad_sectors.append((LOG, last, last + 1))
        else:
            driver.files.fail(Fault("pread", errno.EIO, name=".log", skip=skip, times=times))
        with suppress(StartError, OSError):
            driver.start()
        driver.files.heal()
        driver.start()
        assert {name: driver.subject(name).readable_end for name in ("a", "b")} == before
        driver.check()


def test_a_later_segment_that_cannot_be_read_is_not_dropped_with_a_tear() -> None:
    driver = Driver(segment_bytes=3 * PAGE, tail_bytes=1)
    driver.create("a")
    driver.settle()
    while len(driver.log.state.segments) < 2:
        driver.append("a", 300)
        driver.settle()
    driver.append("a", 300)
    driver.settle()
    first, second = driver.log.state.segments
    for name in driver.files.listdir(MESSAGES):
        if name.endswith(".checkpoint"):
            driver.files.unlink(MESSAGES / name)
    content = bytearray(driver.files.content(first.path))
    content[-100] ^= 1
    driver.files.damage(first.path, bytes(content))
    before = contents(driver.files, MESSAGES)
    driver.files.bad_sectors.append((second.path.name, 0, PAGE))
    with pytest.raises(StartError, match=f"{second.path.name}.*position {second.base}"):
        driver.start()
    assert contents(driver.files, MESSAGES) == before
    driver.files.heal()
    driver.start()
    assert driver.subject("a").readable_end == len(driver.told("a").acked)


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
        assert driver.subject("a").readable_end == 8
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


def test_a_subject_that_only_an_unreadable_frame_tells_of_is_not_forgotten() -> None:
    """The segment before is read instead, but it was begun before that subject was made."""
    driver = Driver(segment_bytes=1 << 20, tail_bytes=1)
    driver.create("a")
    driver.settle()
    driver.append("a", 300)
    driver.log.roll_when_ready()
    driver.settle()
    driver.seal()
    segment = driver.log.state.active
    driver.append("a", 2 * PAGE)
    created = driver.log.written_end
    driver.create("b")
    driver.append("b", 2 * PAGE)
    driver.append("a", 2 * PAGE)
    driver.sync()
    before = contents(driver.files, MESSAGES)
    name, at = segment.path.name, created - segment.base
    driver.files.bad_sectors.append((name, at + HEADER_SIZE, at + HEADER_SIZE + 1))
    with pytest.raises(StartError, match=rf"{name}: .*subject created.*heck the disk.*dd if="):
        driver.start()
    assert contents(driver.files, MESSAGES) == before
    driver.files.heal()
    driver.start()
    assert not driver.errors
    driver.check()


# --- the action log ----------------------------------------------------------------------------


def reopened(driver: ActionDriver, files: FakeFiles) -> ActionDriver:
    return ActionDriver(files, copy.deepcopy(driver.book), driver.segment_bytes)


def test_a_sector_of_the_action_log_that_cannot_be_read_is_contained() -> None:
    driver = ActionDriver(segment_bytes=1 << 20)
    for n in range(50):
        group = driver.group(f"g{n}")
        driver.do(actions.Commit(group.id, 9, n, -1, "x" * 300))
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


@pytest.mark.parametrize("times", [3, 4, None])
def test_what_groups_did_last_survives_a_disk_that_cannot_read_for_a_while(
    times: int | None,
) -> None:
    """The file that tells how far the log is synced may be lost to a power cut."""
    driver = ActionDriver(segment_bytes=1 << 20)
    for n in range(20):
        group = driver.group(f"g{n}")
        driver.do(actions.Commit(group.id, 9, n, -1, "x" * 300))
        driver.sync()
    path = driver.log.active.path
    for skip in range(6 if times else 1):
        files = driver.files.after_kill()
        files.damage(FOLDER / "synced", b"")
        before = contents(files, FOLDER)
        if times is None:
            end = driver.log.written_end
            files.bad_sectors.append((path.name, end - 100, end - 99))
            with pytest.raises(StartError, match=rf"{path.name}: .*heck the disk.*dd if="):
                reopened(driver, files)
            assert contents(files, FOLDER) == before
        else:
            files.fail(Fault("pread", errno.EIO, name=".actions", skip=skip, times=times))
            with suppress(StartError, OSError):
                reopened(driver, files)
        files.heal()
        opened = reopened(driver, files)
        assert opened.groups.by_name.keys() == driver.groups.by_name.keys()


def test_what_groups_did_last_can_be_given_up_on_purpose() -> None:
    driver = ActionDriver(segment_bytes=1 << 20)
    for n in range(20):
        driver.group(f"g{n}")
        driver.sync()
    files, path, end = driver.files.after_kill(), driver.log.active.path, driver.log.written_end
    files.damage(FOLDER / "synced", b"")
    files.bad_sectors.append((path.name, end - 10, end))
    give_up(files, path)
    driver.book.promised -= 2
    opened = reopened(driver, files)
    assert not opened.errors
    assert len(opened.groups.by_name) == 19


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
