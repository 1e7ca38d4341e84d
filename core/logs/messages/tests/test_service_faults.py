"""The running log with its flusher thread, on a disk that holds a sync, fails one, or is full."""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from kumquat.core.errors import KumquatError, StorageError, WouldBlock
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.tests.batches import batch, body
from kumquat.core.logs.tests.power import FakeFiles, Fault, HeldSync

Story = Callable[[MessageService, FakeFiles, Subject], Awaitable[None]]


@asynccontextmanager
async def running(files: FakeFiles, **options: int) -> AsyncIterator[MessageService]:
    made = LogOptions(directory=files.directory, reserve_bytes=8192, **options)
    service = MessageService.open(made, files)
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        yield service
        nursery.cancel_scope.cancel()


def run(story: Story, directory: Path, **options: int) -> FakeFiles:
    """The story on a log with one subject that holds one batch."""
    files = FakeFiles(directory)

    async def told() -> None:
        with trio.fail_after(120):
            async with running(files, **options) as service:
                subject = service.create_subject_nowait("s")
                service.append_nowait(subject, memoryview(batch(b"first")))
                await service.wait_synced()
                await story(service, files, subject)

    trio.run(told)
    return files


def test_nobody_hears_of_a_batch_while_its_sync_is_held(tmp_path: Path) -> None:
    async def story(service: MessageService, files: FakeFiles, subject: Subject) -> None:
        held, heard = HeldSync(), list[KumquatError | None]()
        files.during_sync = held
        data = batch(b"x" * 900, producer_id=1, epoch=0, first=0)
        for _ in range(2):
            appended = service.append_nowait(subject, memoryview(bytearray(data)))
            service.write_nowait()
            service.call_when_synced(appended.end, heard.append)
            await trio.to_thread.run_sync(held.started.wait, 120)
        assert (heard, subject.next_sequence, subject.readable_end) == ([], 2, 1)
        assert service.read_nowait(subject, 1, 1000, True) == []
        assert service.produce_blocked
        left = files.after_power_cut(Random(0), "nothing")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.wait_produce_unblocked)
            nursery.start_soon(service.wait_for_data, [subject], trio.current_time() + 600)
            await trio.testing.wait_all_tasks_blocked()
            held.release()
        await service.wait_synced()
        assert (heard, subject.readable_end) == ([None, None], 2)
        assert left.content(files.directory / "messages" / ("0" * 20 + ".log")).count(b"xxx") == 0

    run(story, tmp_path, unsynced_max_bytes=500)


def test_a_failed_sync_is_told_to_all_who_wait_and_reads_go_on(tmp_path: Path) -> None:
    async def story(service: MessageService, files: FakeFiles, subject: Subject) -> None:
        files.fail(Fault("fdatasync", errno.EIO, name=".log"))
        service.append_nowait(subject, memoryview(batch(b"second")))
        with pytest.raises(StorageError, match="fenced"):
            await service.wait_synced()
        with pytest.raises(StorageError, match="fenced"):
            service.append_nowait(subject, memoryview(batch(b"third")))
        with pytest.raises(StorageError, match="fenced"):
            await service.new_producer_id()
        assert service.statistics().fenced
        assert not service.produce_blocked
        found = await service.read(subject, 0, 1000, True)
        assert [body(data) for data in found] == [body(batch(b"first"))]
        assert await service.read(subject, 1, 1000, True) == []

    run(story, tmp_path)


def test_a_full_disk_refuses_producers_until_there_is_room(tmp_path: Path) -> None:
    async def story(service: MessageService, files: FakeFiles, subject: Subject) -> None:
        files.capacity = files.used()
        for _ in range(3):
            service.append_nowait(subject, memoryview(batch(b"x" * 20_000)))
            with pytest.raises(StorageError, match="No space left"):
                service.write_nowait()
        assert len(await service.read(subject, 0, 1000, True)) == 1
        assert subject.next_sequence == 1
        files.heal()
        service.append_nowait(subject, memoryview(batch(b"x" * 20_000)))
        await service.wait_synced()
        assert subject.readable_end == 2
        assert [len(one) for one in await service.read(subject, 1, 1000, True)] == [
            len(batch(b"x" * 20_000))
        ]

    files = run(story, tmp_path)

    async def again() -> None:
        async with running(files) as service:
            assert service.subjects.by_name["s"].readable_end == 2

    trio.run(again)


def test_producer_ids_are_new_after_a_power_cut_at_any_time(tmp_path: Path) -> None:
    given: list[int] = []

    async def story(service: MessageService, files: FakeFiles, subject: Subject) -> None:
        given.append(await service.new_producer_id())

    files = run(story, tmp_path)

    async def again() -> None:
        async with running(files) as service:
            given.append(await service.new_producer_id())

    for seed in range(10):
        files = files.after_power_cut(Random(seed), "nothing")
        trio.run(again)
    assert len(set(given)) == 11


def test_a_cold_read_never_holds_up_the_loop(tmp_path: Path) -> None:
    async def story(service: MessageService, files: FakeFiles, subject: Subject) -> None:
        service.append_nowait(subject, memoryview(batch(b"second")))
        await service.wait_synced()
        files.cold = True
        with pytest.raises(WouldBlock):
            service.read_nowait(subject, 0, 1, True)
        assert [body(one) for one in await service.read(subject, 0, 1, True)] == [
            body(batch(b"first"))
        ]
        assert len(service.read_nowait(subject, 1, 1, True)) == 1

    run(story, tmp_path, tail_bytes=10)


def test_the_disk_goes_ahead_of_who_reads_in_bulk_and_not_of_who_reads_little(
    tmp_path: Path,
) -> None:
    async def story(service: MessageService, files: FakeFiles, subject: Subject) -> None:
        service.append_nowait(subject, memoryview(batch(bytes(300_000))))
        service.write_nowait()
        end = service.log.written_end - service.log.state.active.base
        service.append_nowait(subject, memoryview(batch(b"third")))
        await service.wait_synced()
        files.cold = True
        await service.read(subject, 0, 1, True)
        assert files.expected == []
        [large] = await service.read(subject, 1, 1, True)
        [(offset, size)] = files.expected
        assert size == 4 * len(large)
        assert offset == end, "behind what was read"

    run(story, tmp_path, tail_bytes=10)


def test_a_sync_that_fails_in_an_unforeseen_way_fences_the_log_and_leaves_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(service: MessageService, files: FakeFiles, subject: Subject) -> None:
        def fail(path: Path) -> None:
            raise MemoryError("none left")

        files.during_sync = fail
        service.append_nowait(subject, memoryview(batch(b"second")))
        with pytest.raises(StorageError, match="MemoryError"):
            await service.wait_synced()
        files.during_sync = None
        assert service.statistics().fenced
        assert (subject.readable_end, subject.next_sequence) == (1, 2)

    run(story, tmp_path)
    assert "not foreseen" in caplog.text
