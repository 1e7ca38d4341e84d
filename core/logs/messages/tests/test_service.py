"""The running log, on real files: what waits, what wakes, what a restart finds."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from kumquat.core.errors import CorruptMessage, KumquatError, OffsetOutOfRange
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject, SubjectConfig
from kumquat.core.logs.tests.batches import TIME, batch, body
from kumquat.core.records import read_head

Story = Callable[[Path], Awaitable[None]]


def run(story: Story, tmp_path: Path) -> None:
    trio.run(story, tmp_path)


@asynccontextmanager
async def service(directory: Path, **options: Any) -> AsyncIterator[MessageService]:
    options.setdefault("reserve_bytes", 64 << 10)
    now_ms = options.pop("now_ms", lambda: TIME)
    opened = MessageService.open(LogOptions(directory=directory, **options), now_ms=now_ms)
    async with trio.open_nursery() as nursery:
        await nursery.start(opened.run)
        yield opened
        nursery.cancel_scope.cancel()


def append(log: MessageService, subject: Subject, *values: bytes, **fields: int) -> int:
    return log.append_nowait(subject, memoryview(batch(*values, **fields))).base_sequence


async def everything(log: MessageService, subject: Subject) -> list[bytes]:
    found, at = [], subject.earliest
    while at < subject.readable_end:
        for data in await log.read(subject, at, 5_000, True):
            head = read_head(data)
            assert head.base_offset == at
            found.append(body(data))
            at += head.record_count
    return found


def test_messages_are_invisible_until_they_are_synced(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory) as log:
            subject = log.create_subject_nowait("s")
            append(log, subject, b"a")
            assert await log.read(subject, 0, 1_000, True) == []
            with pytest.raises(OffsetOutOfRange):
                await log.read(subject, 1, 1_000, True)
            await log.wait_synced()
            assert subject.readable_end == 1
            assert len(await log.read(subject, 0, 1_000, True)) == 1

    run(story, tmp_path)


def test_a_waiting_read_wakes_when_a_message_is_synced(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory) as log, trio.open_nursery() as nursery:
            subject = log.create_subject_nowait("s")
            await log.wait_synced()
            with trio.fail_after(120):
                nursery.start_soon(log.wait_for_data, [subject], float("inf"))
                await trio.testing.wait_all_tasks_blocked()
                append(log, subject, b"a")
                log.write_nowait()

    run(story, tmp_path)


def test_a_deleted_subject_wakes_its_waiting_reads(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory) as log, trio.open_nursery() as nursery:
            subject = log.create_subject_nowait("s")
            with trio.fail_after(120):
                nursery.start_soon(log.wait_for_data, [subject], float("inf"))
                await trio.testing.wait_all_tasks_blocked()
                log.delete_subject_nowait(subject)

    run(story, tmp_path)


def test_many_small_segments_are_read_back_after_a_restart(tmp_path: Path) -> None:
    async def write(directory: Path) -> None:
        async with service(directory, segment_bytes=4_000) as log:
            subjects = [log.create_subject_nowait(name) for name in ("a", "b")]
            for number in range(200):
                for subject in subjects:
                    append(log, subject, b"%d" % number, b"x" * 40)
                await log.wait_synced()
            for subject in subjects:
                assert len(await everything(log, subject)) == 200

    async def read(directory: Path) -> None:
        async with service(directory, segment_bytes=4_000) as log:
            assert log.statistics().segments > 5
            for name in ("a", "b"):
                subject = log.subjects.by_name[name]
                expected = [body(batch(b"%d" % n, b"x" * 40)) for n in range(200)]
                assert await everything(log, subject) == expected
            assert log.statistics().open_files < 70

    run(write, tmp_path)
    run(read, tmp_path)


def test_the_bounds_of_a_batch_are_right_in_every_segment(tmp_path: Path) -> None:
    """While segments are indexed, before, and after a restart."""

    async def check(log: MessageService, subject: Subject) -> None:
        for base in range(0, 120, 3):
            for sequence in range(base, base + 3):
                assert await log.bounds(subject, sequence) == (base, base + 3)

    async def story(directory: Path) -> None:
        async with service(directory, segment_bytes=2_000) as log:
            subject, other = log.create_subject_nowait("s"), log.create_subject_nowait("o")
            for n in range(40):
                append(log, subject, b"a%d" % n, b"b", b"c")
                append(log, other, b"x" * 50)
                if n % 5 == 0:
                    await log.wait_synced()
            await log.wait_synced()
            await check(log, subject)
            assert log.bounds_nowait(subject, 119) == (117, 120)
        async with service(directory, segment_bytes=2_000) as log:
            await check(log, log.subjects.by_name["s"])

    run(story, tmp_path)


def test_readers_that_find_an_index_damaged_at_once_get_in_each_others_way(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory, segment_bytes=20_000) as log:
            subject = log.create_subject_nowait("s")
            for n in range(600):
                append(log, subject, b"%d" % n, b"x" * 50)
                if n % 20 == 0:
                    await log.wait_synced()
            sealed = log.log.state.segments[:-1]
            assert len(sealed) > 3
            while any(segment.unindexed is not None for segment in sealed):
                await trio.lowlevel.checkpoint()
            for _ in range(5):
                for segment in sealed:
                    segment.index_path.write_bytes(b"damaged")
                    log.reader.locator.indexes.forget(segment)
                async with trio.open_nursery() as nursery:
                    for sequence in range(0, 1200, 20):
                        nursery.start_soon(log.bounds, subject, sequence)

    run(story, tmp_path)


def test_a_producer_id_is_never_given_twice(tmp_path: Path) -> None:
    given: list[int] = []

    async def story(directory: Path) -> None:
        async with service(directory) as log:
            given.extend([await log.new_producer_id() for _ in range(3)])

    for _ in range(3):
        run(story, tmp_path)
    assert len(set(given)) == 9


def test_sequences_go_on_when_retention_has_deleted_all_segments_of_a_subject(
    tmp_path: Path,
) -> None:
    clock = [TIME]

    def now() -> int:
        return clock[0]

    async def story(directory: Path) -> None:
        options = {"segment_bytes": 2_000, "retention_ms": 10_000, "now_ms": now}
        async with service(directory, **options) as log:
            old, young = log.create_subject_nowait("old"), log.create_subject_nowait("young")
            for _ in range(20):
                append(log, old, b"x" * 200)
                await log.wait_synced()
            clock[0] += 60_000
            for _ in range(20):
                append(log, young, b"y" * 200, timestamp=clock[0])
                await log.wait_synced()
            with trio.fail_after(120):
                while log.log.has_chores:
                    await trio.lowlevel.checkpoint()
            await log.apply_retention()
            assert (old.earliest, old.readable_end) == (20, 20)
            assert young.earliest == 0
            assert not (directory / "messages" / f"{0:020d}.log").exists()

    async def again(directory: Path) -> None:
        async with service(directory, now_ms=now) as log:
            old = log.subjects.by_name["old"]
            assert (old.earliest, old.readable_end) == (20, 20)
            assert append(log, old, b"z") == 20
            assert len(await everything(log, log.subjects.by_name["young"])) == 20

    run(story, tmp_path)
    run(again, tmp_path)


def test_retention_by_size_keeps_at_least_that_much(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory) as log:
            subject = log.create_subject_nowait("s")
            for _ in range(10):
                append(log, subject, b"x" * 1_000)
            await log.wait_synced()
            size = len(batch(b"x" * 1_000))
            subject.config = SubjectConfig(1 << 20, -1, 3 * size - 1)
            await log.apply_retention()
            assert subject.earliest == 7
            assert await log.subject_bytes([subject]) == [3 * size]

    run(story, tmp_path)


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory) as log:
            subject = log.create_subject_nowait("s")
            append(log, subject, b"a", b"b", b"c")
            await log.wait_synced()
            log.raise_earliest_nowait(subject, 2)
            await log.wait_synced()

    async def again(directory: Path) -> None:
        async with service(directory) as log:
            subject = log.subjects.by_name["s"]
            assert subject.earliest == 2
            with pytest.raises(OffsetOutOfRange):
                await log.read(subject, 1, 1_000, True)
            assert len(await log.read(subject, 2, 1_000, True)) == 1

    run(story, tmp_path)
    run(again, tmp_path)


def test_a_damaged_batch_is_an_error_and_its_neighbours_are_served(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory) as log:
            bad, good = log.create_subject_nowait("bad"), log.create_subject_nowait("good")
            for _ in range(3):
                append(log, bad, b"needle" * 10)
                append(log, good, b"hay" * 10)
            await log.wait_synced()

    async def again(directory: Path) -> None:
        async with service(directory) as log:
            bad, good = log.subjects.by_name["bad"], log.subjects.by_name["good"]
            assert len(await everything(log, good)) == 3
            assert len(await log.read(bad, 0, 1 << 20, True)) == 1
            with pytest.raises(CorruptMessage, match="sequence 1"):
                await log.read(bad, 1, 1 << 20, True)
            assert len(await log.read(bad, 2, 1 << 20, True)) == 1
            assert log.statistics().corrupt_reads == 1

    run(story, tmp_path)
    path = tmp_path / "messages" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    second = data.index(b"needle", data.index(b"hay"))
    data[second] ^= 1
    path.write_bytes(data)
    run(again, tmp_path)


def test_search_by_time_is_exact(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory, segment_bytes=3_000) as log:
            subject = log.create_subject_nowait("s")
            for number in range(50):
                append(log, subject, b"a", b"b" * 100, timestamp=TIME + number * 10)
                await log.wait_synced()
            for number in (0, 1, 25, 49):
                found = await log.offset_for_timestamp(subject, TIME + number * 10 - 9)
                assert found == (TIME + number * 10, number * 2)
            assert await log.offset_for_timestamp(subject, TIME + 491) is None
            assert await log.max_timestamp(subject) == (TIME + 490, 98)
            log.raise_earliest_nowait(subject, 31)
            assert await log.offset_for_timestamp(subject, TIME) == (TIME + 150, 31)

    run(story, tmp_path)


def test_a_fenced_log_tells_those_who_wait(tmp_path: Path) -> None:
    async def story(directory: Path) -> None:
        async with service(directory) as log:
            subject = log.create_subject_nowait("s")
            await log.wait_synced()
            told: list[KumquatError | None] = []
            append(log, subject, b"a")
            log.log.write_nowait()
            job = log.log.begin_sync()
            assert job is not None
            log.call_when_synced(log.log.written_end, told.append)
            log.log.finish_sync(job, OSError(5, "Input/output error"))
            assert [error.error_code for error in told if error is not None] == [56]
            assert subject.readable_end == 0
            with pytest.raises(KumquatError, match="fenced"):
                append(log, subject, b"b")

    run(story, tmp_path)
