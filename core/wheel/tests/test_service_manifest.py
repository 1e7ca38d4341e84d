"""The manifest of the schedule is lost: the broker starts, and delivers what waits."""

import errno
import logging
from functools import partial
from pathlib import Path

import pytest
import trio

from kumquat.core.errors import StartError
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.files import refill
from kumquat.core.wheel.files.manifest import COPY, MANIFEST
from kumquat.core.wheel.files.rebuild import rebuild
from kumquat.core.wheel.files.tests.schedules import FOLDER, NOON, Fill, fake_files, parked
from kumquat.core.wheel.files.tests.test_refill import schedule_files
from kumquat.core.wheel.tests.delays import HOUR, START, Disk, at, later, run, running
from kumquat.core.wheel.tests.test_service_read_errors import BadFiles, values
from kumquat.core.wheel.tests.test_service_read_errors import spoil as spoil_reads


def spoil(disk: Disk, name: str, how: str) -> None:
    path = disk.schedule / name
    content = disk.files.content(path)
    if how == "flipped":
        disk.files.damage(path, content[:30] + bytes([content[30] ^ 1]) + content[31:])
    elif how == "garbage behind":
        disk.files.damage(path, content + b"garbage")
    else:
        disk.files.unlink(path)


@pytest.mark.parametrize("how", ["flipped", "garbage behind", "gone"])
@pytest.mark.parametrize("names", [[MANIFEST], [COPY], [MANIFEST, COPY]])
def test_a_lost_manifest_does_not_stop_a_start_and_costs_no_message(
    disk: Disk, names: list[str], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", *(at(b"%d" % i, START + i * HOUR // 2) for i in range(1, 8)))
            await broker.park("t", at(b"t", START + 3 * HOUR, b"x"), at(b"u", START + HOUR))
            disk.clock.jump(HOUR + 60_000)
            await broker.wait_for("s", 2)
            await broker.wait_for("t", 1)
        async with running(disk) as broker:
            await broker.delay.cancel(broker.subject("t"), delay_id="x")
        for name in names:
            spoil(disk, name, how)
        caplog.clear()
        async with running(disk) as broker:
            lost = len(names) == 2 and how != "garbage behind"
            told = [r for r in caplog.records if r.levelno == logging.CRITICAL]
            assert len(told) == lost
            await trio.sleep(30)
            assert len(await broker.messages("s")) == 2, "none is delivered again"
            assert broker.delay.statistics().pending == 5
            assert await broker.delay.count(broker.subject("s"), 0, 1 << 60) == 5
            await broker.park("s", later(b"fresh", 1_000))
            await broker.wait_for("s", 3)
        disk.clock.jump(5 * HOUR)
        for _ in range(2):
            async with running(disk) as broker:
                await trio.sleep(30)
                values = [record.value for record in await broker.messages("s")]
                assert values == [b"1", b"2", b"fresh", b"3", b"4", b"5", b"6", b"7"]
                assert [r.value for r in await broker.messages("t")] == [b"u"], (
                    "the other is cancelled"
                )
                assert broker.delay.statistics().pending == 0

    run(story)


def lose_the_manifest(disk: Disk) -> None:
    for name in (MANIFEST, COPY):
        spoil(disk, name, "flipped")


def test_what_could_not_be_read_when_the_manifest_was_lost_is_delivered_and_nothing_else_again(
    tmp_path: Path,
) -> None:
    """Others were delivered past it: the last one that was does not tell that it was."""
    files = BadFiles(tmp_path)
    disk = Disk(files)

    async def story() -> None:
        due = START + 2 * HOUR
        async with running(disk) as broker:
            await broker.park("s", *(at(b"value-%d" % i, due + i * 1_000) for i in range(5)))
            await broker.park("s", at(b"cancelled", due, b"x"))
        disk.clock.jump_to(due - 60_000)
        async with running(disk) as broker:
            await broker.delay.cancel(broker.subject("s"), delay_id="x")
            spoil_reads(files, b"value-2", suffix=".schedule")
            await trio.sleep(120)
            assert len(await values(broker)) == 4
        files.is_bad = None
        lose_the_manifest(disk)
        for _ in range(2):
            async with running(disk) as broker:
                await trio.sleep(120)
                assert await values(broker) == [b"value-%d" % i for i in (0, 1, 3, 4, 2)]
                assert broker.delay.statistics().pending == 0

    run(story)


def test_what_was_delivered_before_the_log_begins_is_not_delivered_again(tmp_path: Path) -> None:
    """Its frames are cut off the log; the order in which messages are delivered tells."""
    disk = Disk(FakeFiles(tmp_path))
    start = partial(running, disk, segment_bytes=4_000, retention_ms=1)

    async def story() -> None:
        async with start() as broker:
            far = [at(bytes(20_000), START + 400 * HOUR) for _ in range(3)]
            await broker.park("s", at(b"early", START + 2 * HOUR), *far)
        async with start() as broker:
            log = broker.log.log
            await broker.park("t", at(b"late", START + 4 * HOUR))
            await trio.sleep(2)
            disk.clock.jump_to(START + 2 * HOUR + 1)
            await broker.wait_for("s", 1)
            written = log.written_end
            while log.state.segments[0].base < written:
                disk.clock.jump(60_000)
                await broker.park("t", later(bytes(1_500), 300 * HOUR))
                await trio.sleep(2)
                await broker.log.apply_retention()
            disk.clock.jump_to(START + 5 * HOUR)
            await broker.wait_for("t", 1)
        lose_the_manifest(disk)
        async with start() as broker:
            await trio.sleep(120)
            assert broker.delay.statistics().delivered == 0

    run(story)


def test_a_start_that_fails_before_it_knows_what_is_delivered_leaves_no_manifest_behind(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            far = [at(b"far", START + 400 * HOUR) for _ in range(3)]
            await broker.park("s", at(b"one", START + 2 * HOUR), *far)
        async with running(disk) as broker:
            await broker.park("s", at(b"far", START + 500 * HOUR))
        disk.clock.jump_to(START + 2 * HOUR + 1)
        async with running(disk) as broker:
            await broker.wait_for("s", 1)
            await broker.park("s", at(b"far", START + 600 * HOUR))
        lose_the_manifest(disk)
        last = schedule_files(disk)[-1]
        disk.files.damage(last, disk.files.content(last)[:-1])

        def fails(*_: object) -> None:
            raise OSError(errno.EIO, "made to fail")

        with monkeypatch.context() as patch:
            patch.setattr(refill, "find_done", fails)
            with pytest.raises(StartError):
                async with running(disk):
                    pass
        (disk.directory / ".lock").unlink()
        async with running(disk) as broker:
            await trio.sleep(30)
            assert await values(broker) == [b"one"]
            assert broker.delay.statistics().pending == 5

    run(story)


def test_a_damaged_file_is_not_taken_in_the_place_of_whole_ones() -> None:
    files = fake_files()
    wholes = [Fill((k, k + 100), [parked(NOON, k + 1)]).write(files) for k in (0, 100)]
    merged = Fill((0, 300), [parked(NOON, 1), parked(NOON, 101), parked(NOON, 201)]).write(files)
    assert [one.stretch for one in rebuild(files, FOLDER).files] == [(0, 300)]
    files.damage(merged.path, files.content(merged.path)[:-1])
    listed = rebuild(files, FOLDER).files
    assert [one.name for one in listed[:2]] == [file.path.name for file in wholes]
    assert [(one.stretch, one.size) for one in listed[2:]] == [((200, 300), 0)]
