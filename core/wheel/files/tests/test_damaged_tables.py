"""A damaged table of a schedule file costs what its block held, with an error; all else is delivered."""

from contextlib import suppress
from pathlib import Path

import pytest
import trio

from kumquat.core.logs.messages.parked import pack_parked
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.files import blocks
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.manifest_format import Manifest
from kumquat.core.wheel.files.tests.schedules import (
    EVER,
    NOON,
    Fill,
    fake_files,
    parked,
    small_blocks,
)
from kumquat.core.wheel.files.writing.writer import write_schedule_file
from kumquat.core.wheel.format import (
    ENTRY,
    ENTRY_SIZE,
    MESSAGE,
    TOMBSTONE,
    Parked,
    ScheduleDamaged,
)
from kumquat.core.wheel.tests.delays import HOUR, START, Disk, at, cancel, later, run, running

PER_BLOCK = 128 // ENTRY_SIZE


def spoil_table(disk: Disk, kind: int) -> None:
    """One bit in the first entry of each file that has such a table."""
    for name in disk.files.listdir(disk.schedule):
        if name.endswith(".schedule"):
            path = disk.schedule / name
            footer = ScheduleFile(disk.files, path).footer
            count = footer.parked if kind == MESSAGE else footer.tombstones
            first = footer.records + (0 if kind == MESSAGE else footer.parked * ENTRY_SIZE)
            if count:
                flip(disk, path, first + 5)


def flip(disk: Disk, path: Path, at: int) -> None:
    content = bytearray(disk.files.content(path))
    content[at] ^= 1
    disk.files.damage(path, bytes(content))


def test_only_the_entries_of_the_damaged_block_are_lost() -> None:
    fill = Fill((0, 100), [parked(NOON + i, i) for i in range(11)])
    with small_blocks():
        files = fake_files()
        file = fill.write(files)
        content = files.content(file.path)
        [row] = file.rows(MESSAGE)
        for i in range(11):
            at_byte = file.footer.records + i * ENTRY_SIZE + i
            files.damage(
                file.path,
                content[:at_byte] + bytes([content[at_byte] ^ 4]) + content[at_byte + 1 :],
            )
            table, [damage], lost = ScheduleFile(files, file.path).salvage(row, NOON + 1, NOON + 9)
            block = i // PER_BLOCK
            assert f"tables, block {block}" in str(damage)
            expected = [k for k in range(1, 9) if k // PER_BLOCK != block]
            assert [entry[1] for entry in ENTRY.iter_unpack(table)] == expected
            assert lost == min(PER_BLOCK, 11 - block * PER_BLOCK)
    files.damage(file.path, content)
    assert file.salvage(row, 0, EVER) == (file.entries(row, 0, EVER), [], 0)


def test_the_others_are_delivered(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        with small_blocks():
            async with running(disk) as broker:
                due = START + 3 * HOUR
                await broker.park("s", *(at(b"%d" % i, due + i) for i in range(10)))
            spoil_table(disk, MESSAGE)
            disk.clock.jump(2 * HOUR)
            async with running(disk) as broker:
                disk.clock.jump(HOUR)
                await broker.park("s", later(b"fresh", 2_000))
                records = await broker.wait_for("s", 7)
                values = [record.value for record in records]
                assert values == [*(b"%d" % i for i in range(4, 10)), b"fresh"]
                await trio.sleep(5)
                statistics = broker.delay.statistics()
                assert (statistics.damaged, statistics.failing) == (4, None)
            assert "up to 4 messages for later are lost" in caplog.text

    run(story)


def test_a_damaged_tombstone_does_not_hold_up_the_others(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """What it had cancelled comes, and the log says that a cancel is lost."""

    async def story() -> None:
        due = START + 3 * HOUR
        async with running(disk) as broker:
            await broker.park("s", at(b"a", due, b"a"), at(b"b", due))
        async with running(disk) as broker:
            await broker.park("s", cancel(b"a"))
        async with running(disk):
            pass
        spoil_table(disk, TOMBSTONE)
        disk.clock.jump(3 * HOUR)
        async with running(disk) as broker:
            await broker.park("s", later(b"fresh", 2_000))
            values = [record.value for record in await broker.wait_for("s", 3)]
            assert values == [b"a", b"b", b"fresh"]
        assert "up to 1 cancels of messages for later are lost" in caplog.text

    run(story)


def test_a_file_that_cannot_be_merged_does_not_keep_others_from_it() -> None:
    files = FakeFiles(Path("/data"))
    file_set = FileSet(files, files.directory)
    for number in range(20):
        waiting = [
            Parked(START + number, 100 * number, 1, pack_parked(START + number, 0, b"", bytes(500)))
        ]
        stretch = (100 * number, 100 * number + 100)
        file_set.add(
            write_schedule_file(files, file_set.directory, stretch, waiting, [], []), Manifest()
        )
    bad = file_set.current[9]
    content = bytearray(files.content(bad.path))
    content[content.index(ENTRY.pack(START + 9, 900, 0, 526, 1))] ^= 1
    files.damage(bad.path, bytes(content))
    merged: list[ScheduleFile] = []
    for _ in range(10):
        inputs = file_set.plan(0)
        with suppress(ScheduleDamaged):
            if inputs and (made := file_set.merge(inputs, 0, lambda _: True)) is not None:
                merged.append(made)
                file_set.replace(inputs, made, Manifest())
    assert bad in file_set.current
    assert len(merged) == 2, "eight before it, and eight behind it"
    assert file_set.plan(START + 2 * HOUR)[0] in file_set.current


@pytest.mark.parametrize("of_cancels", [False, True])
def test_rows_that_are_damaged_while_the_broker_runs_hold_up_only_their_file(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, of_cancels: bool
) -> None:
    monkeypatch.setattr(blocks, "KEPT_BLOCKS", 0)  # as in a file with many

    async def story() -> None:
        async with running(disk) as broker:
            gone, kept = at(b"cancelled", START + 3 * HOUR, b"x"), at(b"kept", START + 3 * HOUR)
            await broker.park("s", gone, kept)
        async with running(disk) as broker:
            await broker.park("s", cancel(b"x"))
            await broker.park("t", at(b"filed", START + 4 * HOUR))
        async with running(disk) as broker:
            await broker.park("u", at(b"fresh", START + 4 * HOUR))
            paths = sorted(
                disk.schedule / name
                for name in disk.files.listdir(disk.schedule)
                if name.endswith(".schedule")
            )
            bad = ScheduleFile(disk.files, paths[of_cancels])
            entries = bad.footer.parked + bad.footer.tombstones
            flip(disk, bad.path, bad.footer.records + entries * ENTRY_SIZE + 5)
            disk.clock.jump_to(START + 5 * HOUR)
            await trio.sleep(600)
            assert len(await broker.messages("u")) == 1
            assert await broker.messages("s") == []
            assert len(await broker.messages("t")) == (not of_cancels)
            assert "rows" in str(broker.delay.statistics().failing)
        assert 0 < len([r for r in caplog.records if "made again by a restart" in r.message]) < 15
        async with running(disk) as broker:
            await broker.wait_until_idle()
            found = [[r.value for r in await broker.messages(name)] for name in "stu"]
            assert found == [[b"kept"], [b"filed"], [b"fresh"]]

    run(story)
