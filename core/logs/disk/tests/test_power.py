"""Is the fake disk mean enough? Toy logs with one mistake each must be caught, and a right one
must not.

The toys keep a log of fixed records, one sector long, in one file. `lost_records` is the checker
in small: run the toy once to count its steps, cut the power at every step, and see which acked
records recovery does not find.
"""

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from kumquat.core.logs.disk.files import Files, RealFiles, write_file_atomically
from kumquat.core.logs.tests.disk import PAGE, SECTOR
from kumquat.core.logs.tests.power import FakeFiles, Fault, HeldSync, PowerCut, When

DATA = Path("/data")
LOG = DATA / "log"
RECORDS = 12

Mistake = Literal["none", "no sync", "no directory sync", "ack before sync"]
WHENS: tuple[When, ...] = ("before", "middle", "after")


def record(number: int) -> bytes:
    return bytes([number + 1]) * SECTOR


def run_toy(files: Files, mistake: Mistake, acked: list[int]) -> None:
    fd = files.open(LOG, exclusive=True)
    if mistake != "no directory sync":
        files.fsync_dir(DATA)
    for number in range(RECORDS):
        files.pwritev(fd, [record(number)], number * SECTOR)
        if mistake == "ack before sync":
            acked.append(number)
        if mistake != "no sync":
            files.fdatasync(fd)
        if mistake != "ack before sync":
            acked.append(number)


def recover_toy(files: Files) -> set[int]:
    if not files.exists(LOG):
        return set()
    fd = files.open(LOG, readonly=True)
    return {
        number
        for number in range(RECORDS)
        if files.pread(fd, SECTOR, number * SECTOR) == record(number)
    }


def lost_records(mistake: Mistake) -> int:
    counted = FakeFiles(DATA)
    run_toy(counted, mistake, [])
    lost = 0
    for step in range(1, counted.steps + 1):
        for when in WHENS:
            files, acked = FakeFiles(DATA), list[int]()
            files.cut_power(step, when)
            with pytest.raises(PowerCut):
                run_toy(files, mistake, acked)
            for seed in range(10):
                lost += len(set(acked) - recover_toy(files.after_power_cut(Random(seed))))
    return lost


def test_a_log_that_syncs_before_it_acks_loses_nothing() -> None:
    assert lost_records("none") == 0


@pytest.mark.parametrize("mistake", ["no sync", "no directory sync", "ack before sync"])
def test_a_log_with_a_mistake_is_caught(mistake: Mistake) -> None:
    assert lost_records(mistake) > 0


def test_kill_keeps_what_was_written_and_a_later_power_cut_may_still_take_it() -> None:
    files = FakeFiles(DATA)
    run_toy(files, "no sync", [])
    killed = files.after_kill()
    assert recover_toy(killed) == set(range(RECORDS))
    assert killed.unsynced() == ["/data/log"]
    assert recover_toy(killed.after_power_cut(Random(0), "nothing")) == set()


def leavings(write: Callable[[FakeFiles, int], object], seeds: int = 300) -> set[bytes]:
    """What the file may hold after a cut that follows `write`, over a synced file of three 'o'
    pages."""
    files = FakeFiles(DATA)
    fd = files.open(LOG, create=True)
    files.pwritev(fd, [b"o" * PAGE * 3], 0)
    files.fdatasync(fd)
    files.fsync_dir(DATA)
    write(files, fd)
    return {files.after_power_cut(Random(seed)).content(LOG) for seed in range(seeds)}


def test_unsynced_pages_land_in_any_order() -> None:
    found = leavings(lambda files, fd: files.pwritev(fd, [b"n" * PAGE * 3], 0))
    whole = {"".join(chr(content[page * PAGE]) for page in range(3)) for content in found}
    assert whole == {"ooo", "oon", "ono", "onn", "noo", "non", "nno", "nnn"}
    assert any(len(set(content[:PAGE])) == 2 for content in found), "no page was torn"
    sectors = {
        content[start : start + SECTOR] for content in found for start in range(0, PAGE, 512)
    }
    assert sectors == {b"o" * SECTOR, b"n" * SECTOR}, "a sector was torn"


def test_a_page_may_land_as_it_was_between_two_writes() -> None:
    def twice(files: FakeFiles, fd: int) -> None:
        files.pwritev(fd, [b"1" * PAGE], 0)
        files.pwritev(fd, [b"2" * PAGE], 0)

    assert {content[:1] for content in leavings(twice)} == {b"o", b"1", b"2"}


def test_the_size_lands_without_the_page_and_the_page_without_the_size() -> None:
    found = leavings(lambda files, fd: files.pwritev(fd, [b"n" * 10], PAGE * 3))
    tails = {content[PAGE * 3 :] for content in found}
    assert tails == {b"", bytes(10), b"n" * 10}


def test_a_truncation_that_was_not_synced_may_be_undone() -> None:
    found = leavings(lambda files, fd: files.truncate(fd, 100))
    assert {len(content) for content in found} == {100, PAGE * 3}


def test_reserved_room_reads_zeros_before_and_after_the_cut() -> None:
    def reserve(files: FakeFiles, fd: int) -> None:
        files.reserve(fd, 0, PAGE * 5)
        assert files.pread(fd, PAGE * 9, PAGE * 3) == bytes(PAGE * 2)

    assert {content[PAGE * 3 :] for content in leavings(reserve)} == {b"", bytes(PAGE * 2)}


def test_names_land_in_any_subset_but_a_rename_is_atomic() -> None:
    files = FakeFiles(DATA)
    for name in ("old", "kept"):
        files.close(files.open(DATA / name, create=True))
    files.fsync_dir(DATA)
    files.close(files.open(DATA / "new", create=True))
    files.unlink(DATA / "old")
    files.rename(DATA / "kept", DATA / "moved")
    found = {
        tuple(sorted(files.after_power_cut(Random(seed)).listdir(DATA))) for seed in range(200)
    }
    assert len(found) == 8
    assert all(("kept" in names) != ("moved" in names) for names in found)


@pytest.mark.parametrize("step", range(1, 8))
def test_an_atomic_write_leaves_the_old_or_the_new(step: int) -> None:
    for when in WHENS:
        files = FakeFiles(DATA)
        write_file_atomically(files, LOG, b"old" * PAGE)
        already = files.steps
        files.cut_power(already + step, when)
        try:
            write_file_atomically(files, LOG, b"newer" * PAGE)
            done = True
        except PowerCut:
            done = False
        for seed in range(20):
            content = files.after_power_cut(Random(seed)).content(LOG)
            assert content == b"newer" * PAGE or (not done and content == b"old" * PAGE)
    assert done == (step == 7), "the write takes six steps"


def test_what_is_written_during_a_sync_is_not_covered_by_it() -> None:
    files = FakeFiles(DATA)
    fd = files.open(LOG, create=True)
    files.fsync_dir(DATA)
    files.pwritev(fd, [record(0)], 0)
    held = HeldSync()
    files.during_sync = held
    flusher = threading.Thread(target=files.fdatasync, args=(fd,))
    flusher.start()
    assert held.started.wait(timeout=120)
    assert recover_toy(files.after_power_cut(Random(0), "nothing")) == set()
    files.pwritev(fd, [record(1)], SECTOR)
    held.release()
    flusher.join(timeout=120)
    assert recover_toy(files.after_power_cut(Random(0), "nothing")) == {0}
    assert recover_toy(files.after_power_cut(Random(0), "all")) == {0, 1}


def test_a_failed_sync_loses_its_pages_though_the_next_one_succeeds() -> None:
    files = FakeFiles(DATA)
    fd = files.open(LOG, create=True)
    files.fsync_dir(DATA)
    files.pwritev(fd, [record(0)], 0)
    files.fail(Fault("fdatasync", errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        files.fdatasync(fd)
    files.fdatasync(fd)
    assert recover_toy(files) == {0}
    assert recover_toy(files.after_power_cut(Random(0), "nothing")) == set()
    files.pwritev(fd, [record(0)], 0)
    files.pwritev(fd, [record(1)], SECTOR)
    files.fdatasync(fd)
    assert recover_toy(files.after_power_cut(Random(0), "nothing")) == {0, 1}


def test_a_full_disk_stops_writes_short_and_reserved_room_stays_usable() -> None:
    files = FakeFiles(DATA)
    fd = files.open(LOG, create=True)
    files.capacity = PAGE * 4
    files.reserve(fd, 0, PAGE * 2)
    other = files.open(DATA / "other", create=True)
    with pytest.raises(OSError, match="No space left"):
        files.pwritev(other, [b"x" * PAGE * 3], 0)
    assert files.size(other) == PAGE * 2
    files.pwritev(fd, [b"x" * PAGE * 2], 0)
    with pytest.raises(OSError, match="No space left"):
        files.reserve(fd, PAGE * 2, PAGE)
    files.unlink(DATA / "other")
    with pytest.raises(OSError, match="No space left"):
        files.reserve(fd, PAGE * 2, PAGE)
    files.close(other)
    files.reserve(fd, PAGE * 2, PAGE)


def test_faults_strike_the_calls_they_name() -> None:
    files = FakeFiles(DATA)
    fd = files.open(LOG, create=True)
    files.fail(Fault("pwritev", errno.ENOSPC, name="log", skip=1, written=3))
    files.pwritev(fd, [b"first"], 0)
    with pytest.raises(OSError, match="No space left"):
        files.pwritev(fd, [b"second"], 5)
    assert files.content(LOG) == b"firstsec"
    files.pwritev(fd, [b"third"], 5)
    files.fail(Fault("rename", errno.ENOSPC, times=None))
    with pytest.raises(OSError, match="No space left"):
        write_file_atomically(files, DATA / "checkpoint", b"x")
    assert files.listdir(DATA) == ["log"], "the temporary file was left behind"
    files.heal()
    write_file_atomically(files, DATA / "checkpoint", b"x")


@pytest.mark.parametrize("kind", ["real", "fake"])
def test_the_fake_answers_as_the_operating_system_does(kind: str, tmp_path: Path) -> None:
    files: Files = RealFiles() if kind == "real" else FakeFiles(tmp_path)
    path = tmp_path / "sub" / "file"
    files.mkdir(path.parent)
    files.mkdir(path.parent)
    with pytest.raises(FileNotFoundError):
        files.open(path)
    fd = files.open(path, exclusive=True)
    with pytest.raises(FileExistsError):
        files.open(path, exclusive=True)
    assert files.pwritev(fd, [b"ab", bytearray(b"cd"), memoryview(b"ef")], 2) == 6
    assert files.pwritev(fd, [b"."] * 3000, 8) == 3000
    assert (files.size(fd), files.pread(fd, 9, 0)) == (3008, b"\0\0abcdef.")
    assert files.pread(fd, 9, 3005) == b"..."
    assert files.pread(fd, 9, 5000) == b""
    buffer = bytearray(4)
    assert files.preadv_into(fd, buffer, 3006, nowait=False) == 2
    assert files.preadv_into(fd, memoryview(buffer), 2, nowait=False) == 4
    assert buffer == b"abcd"
    files.truncate(fd, 3)
    files.reserve(fd, 0, 6)
    assert files.pread(fd, 9, 0) == b"\0\0a\0\0\0"
    files.reserve(fd, 0, 2)
    assert files.size(fd) == 6
    files.fdatasync(fd)
    files.fsync_dir(path.parent)
    files.rename(path, path.with_name("other"))
    assert files.listdir(path.parent) == ["other"]
    assert (files.exists(path), files.exists(path.parent)) == (False, True)
    reader = files.open(path.with_name("other"), readonly=True)
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.pwritev(reader, [b"x"], 0)
    files.unlink(path.with_name("other"))
    assert files.pread(reader, 3, 0) == b"\0\0a"
    for handle in (fd, reader):
        files.close(handle)
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.size(fd)


def test_a_cold_page_blocks_a_reader_that_will_not_wait() -> None:
    files = FakeFiles(DATA)
    fd = files.open(LOG, create=True)
    files.pwritev(fd, [b"x"], 0)
    assert files.preadv_into(fd, bytearray(1), 0, nowait=True) == 1
    files.cold = True
    with pytest.raises(BlockingIOError):
        files.preadv_into(fd, bytearray(1), 0, nowait=True)
