"""The message log in a running broker: a thin Trio shell around MessageLog, Reader and Retention.

It decides nothing about the log. It begins a round of group commit when something was written, wakes
those who wait, runs in threads what blocks, and does the chores: preambles, index files, retention.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from kumquat.core.clock import wall_clock_ms
from kumquat.core.complaints import Complaints
from kumquat.core.errors import StorageError, WouldBlock
from kumquat.core.histogram import Histogram
from kumquat.core.inflation import Inflation
from kumquat.core.logs.disk.commit import Callback
from kumquat.core.logs.disk.files import Files, RealFiles
from kumquat.core.logs.disk.folder import Folder
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.disk.unreadable import not_opened
from kumquat.core.logs.flushing.rounds import Rounds
from kumquat.core.logs.messages.delayed import DelayListener
from kumquat.core.logs.messages.index import IndexDamaged, load_head, write_index
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.logs.messages.recovery.opening import open_log
from kumquat.core.logs.messages.retention import Retention, delete_doomed
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.settles import Settled, SettleListener
from kumquat.core.logs.messages.subject import Subject, Subjects
from kumquat.core.logs.messages.tail import Batch
from kumquat.core.logs.messages.writer import Appended
from kumquat.core.pools import READ, SEARCH, in_thread
from kumquat.core.records.batch import BatchHead

log = logging.getLogger("kumquat.log")

PRODUCER_IDS = 1_000
_RETRY_SECONDS = 5.0
_CHUNK = 500
_PRODUCERS = 500


@dataclass(frozen=True, slots=True)
class LogStatistics:
    subjects: int
    segments: int
    bytes_stored: int
    bytes_unsynced: int
    tail_bytes: int
    open_files: int
    syncs: int
    sync_us: dict[str, int]
    """How long syncs took, µs: p50, p99, max."""
    messages_written: int
    """Messages that got a place in a subject since the start of the broker: what was produced, and
    delayed messages and dead letters as they arrive."""
    bytes_written: int
    """Of their batches."""
    corrupt_reads: int
    failed_reads: int
    fenced: bool


class MessageService:
    def __init__(self, folder: Folder, message_log: MessageLog) -> None:
        self.log = message_log
        self.subjects: Subjects = message_log.state.subjects
        self.directory: Path = message_log.options.directory
        self.inflation = Inflation(message_log.options.max_decompressed_bytes)
        """Where batches are opened off the loop, whoever has to look inside."""
        self._folder = folder
        self.reader = Reader(message_log)
        self._retention = Retention(message_log, self.reader)
        self._held: Path | None = None
        """The last segment of which the log said why it is not deleted."""
        self._rounds = Rounds(message_log)
        self._complaints = Complaints(log)
        self._unblocked = trio.Event()
        self._chores = trio.Event()
        self._next_producer_id = self._producer_ceiling = message_log.state.producer_ceiling
        self._producer_lock = trio.Lock()
        self.before_expiry: Callable[[Sequence[tuple[Subject, int]]], Awaitable[None]] | None = None
        """Is told what retention is about to delete: subjects, and below which sequences."""

    @classmethod
    def open(
        cls,
        options: LogOptions,
        files: Files | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        listen: Callable[[Files, Path], DelayListener] | None = None,
        join: Callable[[Files, Path], SettleListener] | None = None,
    ) -> MessageService:
        """Blocks: takes the folder's lock and recovers the log. StartError says why it cannot. `listen`
        and `join` give the listeners of the delay service and of the action log, made when the folder is
        ours."""
        files = files or RealFiles()
        try:
            folder = Folder(options.directory, files)
        except OSError as error:
            raise not_opened(f"the data folder {options.directory}", error) from error
        try:
            listener = listen(files, options.directory) if listen else None
            settles = join(files, options.directory) if join else None
            return cls(folder, open_log(files, options, now_ms, listener, settles))
        except (OSError, StorageError) as error:
            folder.close()
            raise not_opened(f"the log in {options.directory}", error) from error
        except BaseException:
            folder.close()
            raise

    def abandon(self) -> None:
        """Blocks: close what was opened and will not run."""
        self._rounds.abandon()
        self.log.close()
        self._folder.close()

    @property
    def cluster_id(self) -> str:
        return self.log.state.cluster_id

    @property
    def total_bytes(self) -> int:
        return sum(segment.size for segment in self.log.state.segments)

    # --- running -------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then sync what is written and close the log."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._finish_syncs)
                nursery.start_soon(self._do_chores)
                nursery.start_soon(self._apply_retention)
                self._rounds.begin_nowait()
                task_status.started()
        finally:
            with trio.CancelScope(shield=True):
                await self._rounds.close()
                self.log.close()
                self._folder.close()

    async def _finish_syncs(self) -> None:
        message_log = self.log
        limit = message_log.options.unsynced_max_bytes
        while True:
            await self._rounds.end_one()
            if message_log.unsynced_bytes <= limit or message_log.fenced is not None:
                self._unblocked.set()
                self._unblocked = trio.Event()
            if message_log.has_chores:
                self._chores.set()

    # --- writing -------------------------------------------------------------------------------

    def append_nowait(
        self, subject: Subject, batch: memoryview, head: BatchHead | None = None
    ) -> Appended:
        """Stage a batch as it is: see Writer.append_nowait."""
        return self.log.writer.append_nowait(subject, batch, head)

    def settle_nowait(
        self, subject: Subject, items: Iterable[Settled], batch: bytearray
    ) -> Appended:
        """Stage messages that settle others, and which those are."""
        return self.log.settle_nowait(subject, items, batch)

    def write_nowait(self) -> None:
        """Write all that is staged and begin to sync it. StorageError: none of it happened."""
        self.log.write_nowait()
        self._rounds.begin_nowait()

    @property
    def produce_blocked(self) -> bool:
        message_log = self.log
        return (
            message_log.unsynced_bytes > message_log.options.unsynced_max_bytes
            and message_log.fenced is None
        )

    async def wait_produce_unblocked(self) -> None:
        while self.produce_blocked:
            await self._unblocked.wait()

    def call_when_synced(self, position: int, callback: Callback) -> None:
        self.log.call_when_synced(position, callback)

    async def wait_synced(self, position: int | None = None) -> None:
        """Until all below `position` is durable; None: all that is staged now."""
        self.log.write_nowait()
        await self._rounds.wait_synced(self.log.written_end if position is None else position)

    def create_subject_nowait(self, name: str) -> Subject:
        subject = self.log.create_subject_nowait(name)
        self._rounds.begin_nowait()
        return subject

    def delete_subject_nowait(self, subject: Subject) -> None:
        self.log.delete_subject_nowait(subject)
        self._rounds.begin_nowait()

    def raise_earliest_nowait(self, subject: Subject, sequence: int) -> None:
        self.log.raise_earliest_nowait(subject, sequence)
        self._rounds.begin_nowait()

    async def new_producer_id(self) -> int:
        """An id that was never given before, whatever crashes: its block is synced first."""
        async with self._producer_lock:
            if self._next_producer_id == self._producer_ceiling:
                ceiling = self._producer_ceiling + PRODUCER_IDS
                self.log.raise_producer_ceiling_nowait(ceiling)
                await self.wait_synced()
                self._producer_ceiling = ceiling
            self._next_producer_id += 1
            return self._next_producer_id - 1

    # --- reading -------------------------------------------------------------------------------

    def read_nowait(
        self, subject: Subject, sequence: int, max_bytes: int, at_least_one: bool
    ) -> list[Batch]:
        return self.reader.read(subject, sequence, max_bytes, at_least_one, nowait=True)

    async def read(
        self, subject: Subject, sequence: int, max_bytes: int, at_least_one: bool
    ) -> list[Batch]:
        try:
            return self.reader.read(subject, sequence, max_bytes, at_least_one, nowait=True)
        except WouldBlock:
            read = partial(self.reader.read, subject, sequence, max_bytes, at_least_one)
            return await in_thread(READ, partial(read, nowait=False))

    def bounds_nowait(self, subject: Subject, sequence: int) -> tuple[int, int]:
        """Where the batch that holds a sequence begins and ends. Raises WouldBlock."""
        return self.reader.locator.bounds(subject, sequence, nowait=True)

    async def bounds(self, subject: Subject, sequence: int) -> tuple[int, int]:
        return await in_thread(
            READ, partial(self.reader.locator.bounds, subject, sequence, nowait=False)
        )

    async def wait_for_data(
        self, subjects: Sequence[Subject], deadline: float, event: trio.Event | None = None
    ) -> None:
        """Until the high watermark of one of them moves (or one is deleted), or the deadline; or until
        somebody else sets the event."""
        if event is None:
            event = trio.Event()
        for subject in subjects:
            if subject.waiters is None:
                subject.waiters = set()
            subject.waiters.add(event.set)
        try:
            with trio.move_on_at(deadline):
                await event.wait()
        finally:
            for subject in subjects:
                if subject.waiters is not None:
                    subject.waiters.discard(event.set)

    async def offset_for_timestamp(
        self, subject: Subject, timestamp: int
    ) -> tuple[int, int] | None:
        """Timestamp and sequence of the first message that is not older."""
        return await in_thread(SEARCH, self.reader.offset_for_timestamp, subject, timestamp)

    async def store_time(self, subject: Subject, sequence: int) -> int:
        """When the broker stored a message (ms)."""
        return await in_thread(READ, self.reader.store_time, subject, sequence)

    async def max_timestamp(self, subject: Subject) -> tuple[int, int] | None:
        return await in_thread(SEARCH, self.reader.max_timestamp, subject)

    async def subject_bytes(self, subjects: Sequence[Subject]) -> list[int]:
        """The size of what readers can still see of each subject."""
        sizes = self.reader.locator.retained_bytes
        return await in_thread(SEARCH, lambda: [sizes(subject) for subject in subjects])

    # --- chores --------------------------------------------------------------------------------

    async def _do_chores(self) -> None:
        """What a new segment needs beforehand, its preamble, then index files of sealed ones."""
        while True:
            try:
                while self.log.pack_step(_PRODUCERS):
                    await trio.lowlevel.checkpoint()
                while self.log.preamble_step():
                    self._rounds.begin_nowait()
                    await trio.lowlevel.checkpoint()
                self._rounds.begin_nowait()
                await self._index_all()
            except (OSError, StorageError, IndexDamaged) as error:
                text = f"housekeeping of the log failed, trying again soon: {error}"
                self._complaints.error("housekeeping", text)
                await trio.sleep(_RETRY_SECONDS)
                continue
            await self._chores.wait()
            self._chores = trio.Event()

    async def _index_all(self) -> None:
        """One that fails does not keep the others from being done; then it is raised."""
        failed: Exception | None = None
        for segment in self.log.unindexed_segments():
            try:
                await self._index(segment)
            except (OSError, StorageError, IndexDamaged) as error:
                failed = error
        if failed is not None:
            raise failed

    async def _index(self, segment: Segment) -> None:
        files = self.log.files
        if segment.unindexed is None:
            damaged = IndexDamaged("missing or damaged when the log was opened")
            await trio.to_thread.run_sync(self.reader.locator.rebuild, segment, damaged)
            head = await trio.to_thread.run_sync(load_head, files, segment)
            segment.newest_store_time = head.newest_store_time
            return
        await trio.to_thread.run_sync(write_index, files, segment)
        segment.unindexed = None
        segment.rows = {}
        with suppress(FileNotFoundError):
            files.unlink(segment.checkpoint_path)

    async def _apply_retention(self) -> None:
        while True:
            await trio.sleep(self.log.options.retention_check_interval_ms / 1000)
            try:
                await self.apply_retention()
            except (OSError, StorageError, IndexDamaged) as error:
                text = f"retention failed, trying again at the next check: {error}"
                self._complaints.error("retention", text)

    async def apply_retention(self) -> None:
        """One round, now."""
        message_log, now = self.log, self.log.now_ms()
        await self._expire_producers(now)
        subjects = list(self.subjects)
        for i in range(0, len(subjects), _CHUNK):
            chunk = subjects[i : i + _CHUNK]
            due = await trio.to_thread.run_sync(self._retention.due_subjects, chunk, now)
            await self._before_expiry(due)
            self._raise(due)
        await trio.to_thread.run_sync(delete_doomed, message_log)
        if self._retention.should_roll(now):
            message_log.roll_when_ready()
            self._chores.set()
        while (
            due_segment := await trio.to_thread.run_sync(self._retention.due_segment, now)
        ) is not None:
            await self._delete(*due_segment)
        self._tell_of_held(await trio.to_thread.run_sync(self._retention.held, now))

    def _tell_of_held(self, held: tuple[Segment, list[Subject]] | None) -> None:
        """Once for each segment: the operator sees why the disk is not freed."""
        if held is None or held[0].path == self._held:
            return
        segment, subjects = held
        self._held = segment.path
        names = ", ".join(subject.name for subject in subjects[:3])
        log.info(
            "%s is past log.retention.ms and stays, with all segments behind it: %s%s keep their messages "
            "longer (retention.ms). log.total.bytes bounds the disk for all",
            segment.path,
            names,
            f" and {len(subjects) - 3} more subjects" if len(subjects) > 3 else "",
        )

    async def _expire_producers(self, now: int) -> None:
        """Forget producers that have long been silent, a few at a time."""
        before = now - self.log.options.producer_id_expiration_ms
        for i, subject in enumerate(list(self.subjects)):
            while subject.forget_producers(before, _PRODUCERS):
                await trio.lowlevel.checkpoint()
            if i % _CHUNK == 0:
                await trio.lowlevel.checkpoint()

    async def _before_expiry(self, due: Sequence[tuple[Subject, int]]) -> None:
        if due and self.before_expiry is not None:
            await self.before_expiry(due)

    def _raise(self, due: list[tuple[Subject, int]]) -> None:
        for subject, earliest in due:
            if not subject.deleted and subject.earliest < earliest <= subject.readable_end:
                self.log.raise_earliest_nowait(subject, earliest)
        self._rounds.begin_nowait()

    async def _delete(self, segment: Segment, why: str) -> None:
        readable = await trio.to_thread.run_sync(lambda: list(self._retention.readable_in(segment)))
        await self._before_expiry(readable)
        for i in range(0, len(readable), _CHUNK):
            self._raise(readable[i : i + _CHUNK])
            await trio.lowlevel.checkpoint()
        await self.wait_synced()
        level = logging.WARNING if readable else logging.INFO
        log.log(
            level,
            "deleting %s: %s; %d subjects had messages in it",
            segment.path,
            why,
            len(readable),
        )
        self.log.forget_segment(segment)
        self.reader.locator.indexes.forget(segment)
        await trio.to_thread.run_sync(delete_doomed, self.log)
        # A reader may have opened it once more before it was unlinked.
        self.log.open_files.forget(segment.path)
        self.reader.locator.indexes.forget(segment)

    # --- numbers -------------------------------------------------------------------------------

    @property
    def sync_times(self) -> Histogram:
        """In µs."""
        return self._rounds.times

    def statistics(self) -> LogStatistics:
        message_log = self.log
        return LogStatistics(
            subjects=len(self.subjects),
            segments=len(message_log.state.segments),
            bytes_stored=self.total_bytes,
            bytes_unsynced=message_log.unsynced_bytes,
            tail_bytes=message_log.tail.bytes_held,
            open_files=len(message_log.open_files),
            syncs=self._rounds.ended,
            sync_us=self._rounds.times.percentiles(),
            messages_written=message_log.writer.messages_written,
            bytes_written=message_log.writer.bytes_written,
            corrupt_reads=self.reader.corrupt_reads,
            failed_reads=self.reader.failed_reads,
            fenced=message_log.fenced is not None,
        )
