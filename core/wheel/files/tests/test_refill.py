"""A lost schedule file is made again while the log has it; else the log says so, and others are whole."""

import logging
from pathlib import Path

import pytest
import trio

from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.tests.delays import HOUR, START, Disk, at, later, run, running


def schedule_files(disk: Disk) -> list[Path]:
    names = disk.files.listdir(disk.schedule)
    return sorted(disk.schedule / name for name in names if name.endswith(".schedule"))


@pytest.mark.parametrize("how", ["deleted", "flipped", "cut"])
def test_a_file_that_is_gone_costs_no_message_while_the_log_has_it(
    tmp_path: Path, how: str
) -> None:
    disk = Disk(FakeFiles(tmp_path))

    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"soon", 1_000), later(b"late", 5 * HOUR))
            named = later(b"never", 6 * HOUR)
            named[1].append((b"qmq-delay-id", b"x"))
            await broker.park("s", named)
            await broker.wait_for("s", 1)
            await broker.delay.cancel(broker.subject("s"), delay_id="x")
        assert schedule_files(disk)
        for path in schedule_files(disk):
            content = disk.files.content(path)
            if how == "deleted":
                disk.files.unlink(path)
            elif how == "flipped":
                disk.files.damage(path, content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
            else:
                disk.files.damage(path, content[: len(content) // 2])
        async with running(disk) as broker:
            aside = [
                name for name in disk.files.listdir(disk.schedule) if name.endswith(".damaged")
            ]
            assert bool(aside) == (how != "deleted"), "what is left of it is kept aside"
            subject = broker.subject("s")
            assert await broker.delay.count(subject, 0, 1 << 60) == 1
            assert (await broker.delay.show(subject, "x")).status == "cancelled"
            disk.clock.jump(7 * HOUR)
            found = await broker.wait_for("s", 2)
            await broker.wait_until_idle()
            assert [record.value for record in found] == [b"soon", b"late"]
        async with running(disk) as broker:
            assert len(await broker.messages("s")) == 2

    run(story)


def test_what_was_delivered_since_is_not_delivered_again(tmp_path: Path) -> None:
    """Filed while it waited, delivered later, known as delivered by the frames behind the stretch."""
    disk = Disk(FakeFiles(tmp_path))

    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"first", HOUR), later(b"second", 3 * HOUR))
        before = schedule_files(disk)
        async with running(disk) as broker:
            disk.clock.jump(2 * HOUR)
            await broker.wait_for("s", 1)
        for path in before:
            disk.files.unlink(path)
        async with running(disk) as broker:
            disk.clock.jump(2 * HOUR)
            found = await broker.wait_for("s", 2)
            await broker.wait_until_idle()
            assert [record.value for record in found] == [b"first", b"second"]
            assert len(await broker.messages("s")) == 2

    run(story)


def test_what_the_log_no_longer_has_is_lost_loudly_and_not_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(FakeFiles(tmp_path))

    async def story() -> None:
        async with running(disk, segment_bytes=4_000, retention_ms=1) as broker:
            await broker.park("s", later(b"lost", 5 * HOUR), later(b"too", 5 * HOUR))
            gone = broker.log.log.state.active
        paths = schedule_files(disk)
        async with running(disk, segment_bytes=4_000, retention_ms=1) as broker:
            log = broker.log.log
            while gone.base == log.state.segments[0].base:
                disk.clock.jump(60_000)
                await broker.park("s", later(bytes(1_500), 6 * HOUR))
                await trio.sleep(2)  # for a fill: what is not in files keeps its segment
                await broker.log.apply_retention()
            left = broker.delay.statistics().pending - 2
        for path in paths:
            disk.files.unlink(path)
        caplog.clear()
        async with running(disk, segment_bytes=4_000, retention_ms=1) as broker:
            assert await broker.delay.count(broker.subject("s"), 0, 1 << 60) == left
            told = [r.message for r in caplog.records if r.levelno == logging.CRITICAL]
            assert len(told) == 1
            assert "2 messages" in told[0]
            disk.clock.jump(7 * HOUR)
            await broker.wait_until_idle()
            assert len(await broker.messages("s")) == left

    run(story)


def test_what_was_cancelled_or_moved_since_does_not_come_back(tmp_path: Path) -> None:
    """Its tombstone was merged away when its hour had passed; the frames behind the stretch tell."""
    disk = Disk(FakeFiles(tmp_path))
    start = START // HOUR * HOUR

    async def story() -> None:
        async with running(disk) as broker:
            cancelled = at(b"cancelled", start + 2 * HOUR, b"c")
            moved = at(b"moved", start + 2 * HOUR + 5, b"m")
            await broker.park("s", cancelled, moved, at(bytes(20_000), start + 300 * HOUR))
        async with running(disk) as broker:
            await broker.delay.cancel(broker.subject("s"), delay_id="c")
            await broker.delay.move(broker.subject("s"), delay_id="m", due=start + 3 * HOUR)
            await broker.park("s", at(b"tick", start + 4 * HOUR))
        for hour, count in ((4, 2), (6, 3)):
            async with running(disk) as broker:
                disk.clock.jump_to(start + (hour + 1) * HOUR)
                await broker.wait_for("s", count)
                await trio.sleep(60)  # for merges
                await broker.park("s", at(b"tick", start + (hour + 2) * HOUR))
        for path in schedule_files(disk):
            disk.files.unlink(path)
        async with running(disk) as broker:
            await trio.sleep(60)
            found = [record.value for record in await broker.messages("s")]
            assert found == [b"moved", b"tick", b"tick"]
            assert broker.delay.statistics().pending == 2

    run(story)
