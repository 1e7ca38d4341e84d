"""A disk that cannot be read for a while: affected messages come late, all others come in time.

Only a wrong checksum or length means damage. After EIO, no descriptors or no memory it is tried again.
"""

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from kumquat.core.errors import StorageError
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.files.writing import merge
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.tests.delays import (
    HOUR,
    START,
    Broker,
    Disk,
    at,
    cancel,
    due_of,
    later,
    run,
    running,
)

ERRORS = [errno.EIO, errno.EMFILE, errno.ENOMEM]


class BadFiles(FakeFiles):
    """Chosen reads fail for as long as the test says."""

    is_bad: Callable[[Path, int, int], bool] | None = None
    error = errno.EIO

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        path = self._handles[fd].path
        if self.is_bad is not None and self.is_bad(path, offset, offset + size):
            raise OSError(self.error, "made to fail", str(path))
        return super().pread(fd, size, offset)


@pytest.fixture
def files(tmp_path: Path) -> BadFiles:
    return BadFiles(tmp_path)


@pytest.fixture
def disk(files: BadFiles) -> Disk:
    return Disk(files)


def spoil(files: BadFiles, content: bytes, *, suffix: str) -> None:
    """Reads of these bytes fail."""

    def is_bad(path: Path, begin: int, end: int) -> bool:
        place = files.content(path).find(content) if path.suffix == suffix else -1
        return begin < place + len(content) and place < end and place >= 0

    files.is_bad = is_bad


async def values(broker: Broker, name: str = "s") -> list[bytes]:
    return [record.value or b"" for record in await broker.messages(name)]


@pytest.mark.parametrize("error", ERRORS)
def test_a_frame_that_cannot_be_read_during_a_fill_is_not_dropped(
    disk: Disk, files: BadFiles, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        files.error = error
        async with running(disk) as broker:
            await broker.park("s", at(b"one", START + 3 * HOUR))
            await broker.park("s", at(b"two", START + 3 * HOUR))
            await broker.park("s", at(b"other", START + 3 * HOUR))
            spoil(files, b"two", suffix=".log")
            disk.clock.jump(3 * HOUR)
            await trio.sleep(60)
            assert await values(broker) == [b"one", b"other"], "only what it touches waits"
            assert broker.delay.statistics().failing is not None
            files.is_bad = None
            await trio.sleep(120)
            assert sorted(await values(broker)) == [b"one", b"other", b"two"]
            assert (broker.delay.statistics().pending, broker.delay.statistics().failing) == (
                0,
                None,
            )
        disk.clock.jump(HOUR)
        async with running(disk) as broker:
            await trio.sleep(60)
            assert len(await values(broker)) == 3
        assert 0 < len([r for r in caplog.records if r.levelno >= logging.ERROR]) < 10

    run(story)


def test_a_frame_that_cannot_be_read_during_a_load_is_not_loaded_a_second_time(
    disk: Disk, files: BadFiles
) -> None:
    """One of its messages was in the wheel before the load, the other was to come with it."""

    async def story() -> None:
        async with running(disk) as broker:
            await trio.sleep(5)
            loaded_until = broker.delay.statistics().loaded_until
            soon, next_window = at(b"soon", loaded_until - 60_000), loaded_until + 600_000
            await broker.park("s", soon, at(b"in the next window", next_window))
            spoil(files, b"in the next window", suffix=".log")
            disk.clock.jump_to(loaded_until - 301_000)
            await trio.sleep(20)
            assert broker.delay.statistics().failing is not None
            files.is_bad = None
            await trio.sleep(30)
            assert broker.delay.statistics().loaded == 2
            disk.clock.jump_to(next_window + 1)
            await trio.sleep(60)
            assert await values(broker) == [b"soon", b"in the next window"]
        async with running(disk) as broker:
            await trio.sleep(60)
            assert len(await values(broker)) == 2

    run(story)


def test_a_frame_that_can_be_read_again_during_the_next_load_is_loaded_once(
    disk: Disk, files: BadFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is due in the window that is being loaded: the load brings it."""

    async def story() -> None:
        async with running(disk) as broker:
            await trio.sleep(5)
            loaded_until = broker.delay.statistics().loaded_until
            due = loaded_until + HOUR + 600_000
            await broker.park("s", at(b"value", due))
            spoil(files, b"value", suffix=".log")
            disk.clock.jump_to(loaded_until - 301_000)
            await trio.sleep(20)
            begin_load = Schedule.begin_load

            def read_again_from_here(schedule: Schedule, until: int, log_end: int) -> None:
                files.is_bad = None
                begin_load(schedule, until, log_end)

            monkeypatch.setattr(Schedule, "begin_load", read_again_from_here)
            disk.clock.jump_to(loaded_until + HOUR - 290_000)
            await trio.sleep(20)
            assert broker.delay.statistics().loaded == 1
            disk.clock.jump_to(due + 1)
            await trio.sleep(20)
            assert await values(broker) == [b"value"]

    run(story)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("suffix", [".log", ".schedule"])
def test_a_record_that_cannot_be_read_when_it_is_due_is_not_given_up(
    disk: Disk, files: BadFiles, error: int, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        files.error = error
        due = START + 2 * HOUR if suffix == ".schedule" else START + 20_000
        async with running(disk) as broker:
            await broker.park("s", *(at(b"value-%d" % i, due + i) for i in range(5)))
            if suffix == ".log":
                await unreadable_at_delivery(broker)
        if suffix == ".schedule":
            disk.clock.jump_to(due - 60_000)
            async with running(disk) as broker:
                await unreadable_at_delivery(broker)
        disk.clock.jump(HOUR)
        async with running(disk) as broker:
            await trio.sleep(60)
            assert len(await values(broker)) == 5, "none twice"
            assert broker.delay.statistics().pending == 0

    async def unreadable_at_delivery(broker: Broker) -> None:
        spoil(files, b"value-2", suffix=suffix)
        await trio.sleep(120)
        assert await values(broker) == [b"value-%d" % i for i in (0, 1, 3, 4)]
        statistics = broker.delay.statistics()
        assert (statistics.pending, statistics.damaged, statistics.overdue) == (1, 0, 1)
        assert statistics.failing is not None
        files.is_bad = None
        await trio.sleep(120)
        assert await values(broker) == [b"value-%d" % i for i in (0, 1, 3, 4, 2)]
        assert broker.delay.statistics().failing is None

    run(story)
    assert 0 < len([r for r in caplog.records if r.levelno >= logging.ERROR]) < 10


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_waits_for_the_disk_comes_once_after_a_restart_and_nothing_else_comes_again(
    disk: Disk, files: BadFiles, how: str
) -> None:
    """All others were delivered past it, and filed as delivered."""

    async def story() -> None:
        due = START + 2 * HOUR
        async with running(disk) as broker:
            await broker.park("s", *(at(b"value-%d" % i, due + i * 1_000) for i in range(5)))
        disk.clock.jump_to(due - 60_000)
        left = disk
        async with running(disk) as broker:
            spoil(files, b"value-2", suffix=".schedule")
            await trio.sleep(30)
            await broker.park("s", later(b"fresh", 40_000))
            await trio.sleep(120)
            assert len(await values(broker)) == 5
            if how == "killed":
                await broker.delay.count(None, 0, 1 << 60)
                left = Disk(disk.files.after_kill())
                left.clock = disk.clock
        for _ in range(2):
            left.clock.jump(3 * HOUR)
            files.is_bad = None
            async with running(left) as broker:
                await trio.sleep(60)
                assert sorted(await values(broker)) == [
                    b"fresh",
                    *(b"value-%d" % i for i in range(5)),
                ]
                assert broker.delay.statistics().pending == 0

    run(story)


@pytest.mark.parametrize("error", ERRORS)
def test_a_schedule_file_that_cannot_be_read_does_not_hold_up_the_others(
    disk: Disk, files: BadFiles, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        files.error = error
        due = START + 5 * HOUR
        for name in ("a", "b", "c"):
            async with running(disk) as broker:
                await broker.park(name, at(name.encode(), due), at(name.encode() * 2, due))
        [bad] = [
            path
            for path in map(disk.schedule.joinpath, files.listdir(disk.schedule))
            if path.suffix == ".schedule" and b"\x04bb" in files.content(path)
        ]
        async with running(disk) as broker:
            await broker.log.wait_synced()
            files.is_bad = lambda path, _, __: path == bad
            disk.clock.jump_to(due - 60_000)
            await broker.park("d", later(b"fresh", 61_000))
            await trio.sleep(300)
            found = [await values(broker, name) for name in "abcd"]
            assert found == [[b"a", b"aa"], [], [b"c", b"cc"], [b"fresh"]]
            assert broker.delay.statistics().failing is not None
            files.is_bad = None
            await trio.sleep(120)
            assert await values(broker, "b") == [b"b", b"bb"]
            assert (broker.delay.statistics().failing, broker.delay.statistics().damaged) == (
                None,
                0,
            )
        disk.clock.jump(2 * HOUR)
        async with running(disk) as broker:
            await trio.sleep(60)
            found = [await values(broker, name) for name in "abcd"]
            assert found == [[b"a", b"aa"], [b"b", b"bb"], [b"c", b"cc"], [b"fresh"]]
        assert 0 < len([r for r in caplog.records if r.levelno >= logging.ERROR]) < 10

    run(story)


def test_what_a_cancel_that_cannot_be_read_is_about_does_not_arrive(
    disk: Disk, files: BadFiles
) -> None:
    async def story() -> None:
        due = START + 5 * HOUR
        async with running(disk) as broker:
            await broker.park("s", at(b"cancelled", due, b"x"), at(b"one", due + 1))
            await broker.park("t", at(b"other", due))
        async with running(disk) as broker:
            await broker.park("s", cancel(b"x"))
        names = sorted(name for name in files.listdir(disk.schedule) if name.endswith(".schedule"))
        async with running(disk) as broker:
            await broker.log.wait_synced()
            files.is_bad = lambda path, _, __: path.name == names[-1]
            disk.clock.jump_to(due - 60_000)
            await trio.sleep(300)
            assert b"cancelled" not in await values(broker)
            files.is_bad = None
            await trio.sleep(120)
            assert await values(broker) == [b"one"]
            assert await values(broker, "t") == [b"other"]
            assert broker.delay.statistics().pending == 0

    run(story)


def test_a_cancel_of_what_cannot_be_looked_at_is_a_storage_error(
    disk: Disk, files: BadFiles
) -> None:
    async def story() -> None:
        due = START + 5 * HOUR
        async with running(disk) as broker:
            await broker.park("s", at(b"one", due, b"x"))
        async with running(disk) as broker:
            await broker.log.wait_synced()
            assert (await broker.delay.show(broker.subject("s"), "x")).status == "pending"
            files.is_bad = lambda path, _, __: path.suffix == ".schedule"
            disk.clock.jump_to(due + 1)
            await trio.sleep(60)
            with pytest.raises(StorageError):
                await broker.delay.cancel(broker.subject("s"), delay_id="x")
            files.is_bad = None
            await trio.sleep(120)
            [record] = await broker.messages("s")
            assert due_of(record) == due

    run(story)


def test_a_file_that_cannot_be_merged_does_not_keep_others_from_it(
    disk: Disk, files: BadFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        due = START + 50 * HOUR
        for i in range(5):
            async with running(disk) as broker:
                await broker.park("s", at(bytes(2_000), due + i))
        monkeypatch.setattr(merge, "AT_ONCE", 2)
        names = sorted(name for name in files.listdir(disk.schedule) if name.endswith(".schedule"))
        async with running(disk) as broker:
            files.is_bad = lambda path, *_: path.name == names[2]
            await trio.sleep(120)
            left = sorted(n for n in files.listdir(disk.schedule) if n.endswith(".schedule"))
            assert names[2] in left
            assert names[0] not in left
            assert names[4] not in left
            files.is_bad = None
            monkeypatch.setattr(merge, "AT_ONCE", 3)
            await trio.sleep(120)
            assert broker.delay.statistics().files == 1
        disk.clock.jump(51 * HOUR)
        async with running(disk) as broker:
            await broker.wait_until_idle()
            assert len(await values(broker)) == 5

    run(story)


class NoMemory(FakeFiles):
    """Reads of one sort of file find no memory for as long as the test says."""

    suffix: str | None = None

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        if self._handles[fd].path.suffix == self.suffix:
            raise MemoryError
        return super().pread(fd, size, offset)


@pytest.mark.parametrize("suffix", [".log", ".schedule"])
def test_a_read_that_finds_no_memory_does_not_end_the_broker(tmp_path: Path, suffix: str) -> None:
    files = NoMemory(tmp_path)
    disk = Disk(files)

    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"value", 60_000))
            if suffix == ".log":
                await without_memory(broker)
        if suffix == ".schedule":
            async with running(disk) as broker:
                await without_memory(broker)

    async def without_memory(broker: Broker) -> None:
        await trio.sleep(1)
        files.suffix = suffix
        await trio.sleep(120)
        assert broker.delay.statistics().failing is not None
        files.suffix = None
        await trio.sleep(120)
        assert await values(broker) == [b"value"]
        assert broker.delay.statistics().failing is None

    run(story)
