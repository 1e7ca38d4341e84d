"""Deleted subjects, full disks, damaged records: messages wait or the log says so, nothing is silent."""

import errno
import logging

import pytest
import trio

from kumquat.core.errors import InvalidRecord, StorageError
from kumquat.core.logs.messages.parked import RECORD_HEAD_SIZE
from kumquat.core.logs.tests.power import Fault
from kumquat.core.wheel.tests.delays import (
    HOUR,
    START,
    Disk,
    at,
    later,
    plain,
    run,
    running,
)


def test_a_deleted_subject_takes_its_messages_along_and_says_how_many(
    caplog: pytest.LogCaptureFixture,
    disk: Disk,
) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"a", 1_000), later(b"b", 5 * HOUR))
            await broker.park("kept", later(b"c", 1_000))
            broker.log.delete_subject_nowait(broker.subject("s"))
            assert "2 parked messages" in caplog.text
            again = broker.subject("s")
            await broker.wait_for("kept", 1)
            disk.clock.jump(6 * HOUR)
            await trio.sleep(3)
            assert await broker.messages("s") == []
            assert again.next_sequence == 0
            statistics = broker.delay.statistics()
            assert (statistics.dropped, statistics.pending) == (2, 0)
        async with running(disk) as broker:
            await trio.sleep(3)
            assert await broker.messages("s") == []

    run(story)


def test_a_full_disk_holds_deliveries_up_loudly_once_and_they_come_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
    disk: Disk,
) -> None:
    files = disk.files

    async def story() -> None:
        async with running(disk, reserve_bytes=4_096) as broker:
            await broker.park("s", *(later(b"%d" % i + bytes(500), 1_500) for i in range(40)))
            files.capacity = files.used()
            await trio.sleep(20)
            statistics = broker.delay.statistics()
            assert statistics.failing is not None
            assert statistics.pending == 40
            assert statistics.overdue == 40
            told = [r for r in caplog.records if "cannot be delivered" in r.message]
            assert len(told) == 1
            files.heal()
            records = await broker.wait_for("s", 40)
            assert [(r.value or b"")[:-500] for r in records] == [b"%d" % i for i in range(40)]
            await trio.sleep(2)
            assert broker.delay.statistics().failing is None
            assert "delivered again" in caplog.text

    caplog.set_level(logging.WARNING)
    run(story)


def test_a_schedule_file_that_cannot_be_written_is_tried_again(
    caplog: pytest.LogCaptureFixture,
    disk: Disk,
) -> None:
    files = disk.files

    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"a", 2 * HOUR))
            files.fail(Fault("pwritev", errno.ENOSPC, name=".tmp", times=5))
            disk.clock.jump(2 * HOUR)
            await broker.wait_for("s", 1)
            told = [r for r in caplog.records if "cannot be kept" in r.message]
            assert len(told) == 1
            assert broker.delay.statistics().failing is not None, "delivered from the log meanwhile"
            await trio.sleep(10)
            assert "is kept again" in caplog.text
            assert broker.delay.statistics().failing is None

    run(story)


def test_a_broker_whose_first_fill_fails_starts_and_delivers_later(disk: Disk) -> None:
    files = disk.files

    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"a", 30_000))
        files.fail(Fault("rename", errno.EIO, name="manifest", times=3))
        async with running(disk) as broker:
            await broker.park("s", later(b"b", 60_000))
            records = await broker.wait_for("s", 2)
            assert [record.value for record in records] == [b"a", b"b"]

    run(story)


def test_a_damaged_record_is_given_up_loudly_and_the_others_come(
    caplog: pytest.LogCaptureFixture,
    disk: Disk,
) -> None:
    files = disk.files

    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", *(at(b"value-%d" % i, START + 3 * HOUR) for i in range(3)))
        for name in files.listdir(disk.schedule):
            if name.endswith(".schedule"):
                path = disk.schedule / name
                files.damage(path, files.content(path).replace(b"value-1", b"valuE-1"))
        disk.clock.jump(3 * HOUR)
        async with running(disk) as broker:
            records = await broker.wait_for("s", 2)
            assert [record.value for record in records] == [b"value-0", b"value-2"]
            statistics = broker.delay.statistics()
            assert (statistics.pending, statistics.damaged, statistics.delivered) == (0, 1, 2)
            assert "is lost" in caplog.text
        caplog.clear()
        async with running(disk) as broker:
            await trio.sleep(3)
            assert len(await broker.messages("s")) == 2
            assert "is lost" not in caplog.text

    run(story)


def test_a_record_that_rots_in_the_log_is_given_up_loudly_and_the_others_come(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", *(later(b"value-%d" % i, 20_000) for i in range(3)))
            path = broker.log.log.state.active.path
            content = disk.files.content(path)
            disk.files.damage(path, content.replace(b"value-1", b"valuE-1"))
            records = await broker.wait_for("s", 2)
            assert [record.value for record in records] == [b"value-0", b"value-2"]
            statistics = broker.delay.statistics()
            assert (statistics.pending, statistics.damaged, statistics.delivered) == (0, 1, 2)
            assert "is lost" in caplog.text

    run(story)


def test_a_frame_whose_records_cannot_be_told_apart_is_filed_up_to_there(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", *(later(b"value-%d" % i, 5 * HOUR) for i in range(3)))
            path = broker.log.log.state.active.path
            content = bytearray(disk.files.content(path))
            begin = content.index(b"value-1") - len(b"_key_") - RECORD_HEAD_SIZE
            content[begin : begin + 4] = bytes(4)
            disk.files.damage(path, bytes(content))
            page = await broker.delay.list(None, 0, 1 << 60, None, 10)
            assert len(page.items) == 1
        assert "from position" in caplog.text
        disk.clock.jump(5 * HOUR)
        async with running(disk) as broker:
            [record] = await broker.wait_for("s", 1)
            assert record.value == b"value-0"

    run(story)


def test_what_is_parked_outlives_the_segments_of_the_log_that_held_it(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk, segment_bytes=4_000, retention_ms=60_000) as broker:
            dues = [30 * 60_000, 9 * HOUR]
            await broker.park("s", *(later(b"%d" % due, due) for due in dues))
            for _ in range(10):
                await broker.park("other", plain(bytes(1_000)))
                await trio.sleep(2)
            first = broker.log.log.state.segments[0]
            disk.clock.jump(120_000)
            await broker.log.apply_retention()
            assert first in broker.log.log.state.segments, "the wheel points into it"
            disk.clock.jump(dues[0])
            await broker.wait_for("s", 1)
            await broker.log.apply_retention()
            assert first not in broker.log.log.state.segments
            disk.clock.jump(dues[1])
            await broker.wait_until_idle()
            found = [record.value for record in await broker.messages("s")]
            assert b"%d" % dues[1] in found

    run(story)


def test_deliveries_wait_while_too_much_is_unsynced(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk, unsynced_max_bytes=2_000) as broker:
            await broker.park("s", *(later(bytes(900), 1_000) for _ in range(20)))
            await broker.wait_for("s", 20)

    run(story)


def test_a_batch_that_is_refused_stores_nothing(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            subject = broker.subject("s")
            with pytest.raises(InvalidRecord, match="record 1"):
                await broker.park("s", plain(b"a"), later(b"b", -5), later(b"c", 10))
            await trio.sleep(1)
            assert (subject.next_sequence, broker.delay.statistics().pending) == (0, 0)

    run(story)


def test_a_fenced_log_refuses_and_the_next_start_delivers(disk: Disk) -> None:
    files = disk.files

    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"a", 1_500))
            files.fail(Fault("fdatasync", errno.EIO, name=".log"))
            with pytest.raises(StorageError):
                await broker.park("s", later(b"b", 1_500))
            with pytest.raises(StorageError):
                await broker.park("s", later(b"c", 1_500))
            await trio.sleep(5)
            assert broker.delay.statistics().failing is not None
        async with running(disk) as broker:
            records = await broker.wait_for("s", 1)
            assert records[0].value == b"a"
            assert len(records) <= 2

    run(story)


def test_a_repeated_batch_of_an_idempotent_producer_is_scheduled_once_over_a_restart(
    disk: Disk,
) -> None:
    async def story() -> None:
        fields = {"producer_id": 7, "epoch": 0, "first": 0}
        async with running(disk) as broker:
            first = await broker.park("s", later(b"a", 2_000), **fields)
            again = await broker.park("s", later(b"a", 2_000), **fields)
            assert first == again
        async with running(disk) as broker:
            await broker.park("s", later(b"a", 2_000), **fields)
            await broker.park("s", later(b"b", 2_000), **{**fields, "first": 1})
            records = await broker.wait_for("s", 2)
            assert [record.value for record in records] == [b"a", b"b"]
            assert broker.delay.statistics().pending == 0

    run(story)
