"""The message log: appending, group commit, rolling. Synchronous: no clock of its own, no Trio.

Writing has three steps, and each frame goes through all of them in order:

    stage   a frame gets its position and sequences; the state counts it already    append_nowait
    write   one pwritev for all that is staged; a failure undoes all of it          write_nowait
    sync    one fdatasync for all that is written; high watermarks follow           begin_sync,
                                                                                    finish_sync

`begin_sync` gives a SyncJob; its `run` is the blocking part and belongs in another thread; `finish_sync`
takes it back. There is one job at a time, and readers see nothing above the last finished one. A failed
sync fences the log: nothing is written any more, and nothing unsynced is ever acked.

Frames about a subject's life (created, deleted, earliest raised) and producer ids are written first and
applied when the write has succeeded. Messages are applied when staged, since the next batch of a burst
builds on them, and carry what is needed to undo that.

Rolling begins a new segment at once and writes its preamble little by little (`preamble_step`): see
format.py. A segment is rolled only when its preamble is complete and synced.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from crc32c import crc32c

from core.errors import InvalidTimestamp, KumquatError, MessageTooLarge, StorageError
from core.logs.checkpoint import ROW, CheckpointWriter
from core.logs.files import Buffer, Files
from core.logs.format import (
    EARLIEST_RAISED,
    HEADER_SIZE,
    MESSAGES,
    PREAMBLE_END,
    PRODUCER_IDS,
    SEGMENT_START,
    SUBJECT_CREATED,
    SUBJECT_DELETED,
    SUBJECT_STATE,
    ProducerBatch,
    SubjectState,
    pack_header,
    pack_segment_start,
    pack_subject_state,
)
from core.logs.options import LogOptions
from core.logs.producers import ProducerState, check_sequence, last_of
from core.logs.segment import OpenFiles, Segment
from core.logs.state import LogState
from core.logs.subject import Subject
from core.logs.sync import SyncJob
from core.logs.tail import Batch, Tail, keep
from core.records.batch import LOG_APPEND_TIME, BatchHead, check, stamp, stamp_append_time

log = logging.getLogger("kumquat.log")

Callback = Callable[[KumquatError | None], None]


class Appended(NamedTuple):
    base_sequence: int
    log_append_time: int
    """-1, unless the subject's timestamps are those of the log."""
    end: int
    """Position behind the frame: the batch is durable when the log is synced up to there."""


class _Staged(NamedTuple):
    """A frame that is not written yet, and what undoes it."""

    kind: int
    subject: Subject | None
    position: int
    base: int
    length: int
    sequences: int
    kept: Batch | None = None
    held: int = 0
    producer: int = -1
    producer_before: ProducerState | None = None


class MessageLog:
    def __init__(
        self, state: LogState, open_files: OpenFiles, options: LogOptions, now_ms: Callable[[], int]
    ) -> None:
        self.state = state
        self.options = options
        self.now_ms = now_ms
        self.tail = Tail(options.tail_bytes)
        self.open_files = open_files
        self.files: Files = open_files.files
        self.synced_end = 0
        """All below is on disk, and readers may see it."""
        self.written_end = 0
        self.fenced: StorageError | None = None
        self._staged_end = 0
        self._staged: list[_Staged] = []
        self._buffers: list[Buffer] = []
        self._fd = -1
        self._reserved = 0
        """How far into the active segment there is room on disk."""
        self._torn = False
        """A failed write left bytes behind the written end."""
        self._job: SyncJob | None = None
        self._dirty: dict[Subject, int] = {}
        self._rows = bytearray()
        self._checkpoint: CheckpointWriter | None = None
        self._rolled: list[tuple[Segment, CheckpointWriter | None, bytes]] = []
        self._directory_dirty = False
        self._preamble: list[Subject] | None = None
        self._preamble_at = 0
        self._waiting: deque[tuple[int, Callback]] = deque()

    # --- opening -------------------------------------------------------------------------------

    def begin(self, cluster_id: str) -> None:
        """Start an empty log. Blocks: its first segment is synced before anything is built on it."""
        self.state.cluster_id = cluster_id
        self.roll()
        self.preamble_step()
        job = self.begin_sync()
        assert job is not None
        job.run()
        self.finish_sync(job)

    def resume(self, end: int, checkpoint: CheckpointWriter, rows: bytes) -> None:
        """Go on in the active segment behind `end`, all below which is synced."""
        active = self.state.active
        self._fd = self.open_files.pin(active.path)
        active.end = self.written_end = self._staged_end = self.synced_end = end
        self._reserved = active.size
        self._checkpoint = checkpoint
        self._rows += rows
        if not active.preamble_complete:
            self._preamble = [s for s in self.state.subjects if s.generation != self.generation]

    @property
    def generation(self) -> int:
        return self.state.generation

    # --- messages ------------------------------------------------------------------------------

    def append_nowait(self, subject: Subject, batch: memoryview) -> Appended:
        """Check and stage a batch, stamping its offsets in place; or give the original's place if it
        repeats one. The buffer behind `batch` belongs to the log from here on."""
        if self.fenced is not None:
            raise self.fenced
        config = subject.config
        length = len(batch)
        if length > config.max_message_bytes:
            raise MessageTooLarge(
                f"a batch of {length} bytes is larger than max.message.bytes "
                f"({config.max_message_bytes}) of {subject.name!r}"
            )
        head = check(batch)
        before: ProducerState | None = None
        if head.producer_id >= 0 and subject.producers is not None:
            before = subject.producers.get(head.producer_id)
            original = check_sequence(before, head)
            if original is not None:
                append_time = original.store_time if config.log_append_time else -1
                return Appended(original.base_sequence, append_time, original.end)
        return self._stage_batch(subject, batch, head, before)

    def _stage_batch(
        self, subject: Subject, batch: memoryview, head: BatchHead, before: ProducerState | None
    ) -> Appended:
        now = self.now_ms()
        state = self.state
        base, length, crc, highest = subject.next_sequence, len(batch), head.crc, head.max_timestamp
        append_time = -1
        if subject.config.log_append_time:
            append_time = highest = now
            crc = stamp_append_time(batch, now)
        elif head.attributes & LOG_APPEND_TIME:
            raise InvalidTimestamp("a producer may not send batches of log append time")
        stamp(batch, base)
        if subject.generation != state.generation:
            self._stage_state(subject)
        position = self._staged_end
        kept, held = keep(batch)
        self._buffers += (
            pack_header(
                MESSAGES,
                subject.id,
                length,
                head.record_count,
                crc,
                base,
                now,
                position,
                self.synced_end,
            ),
            kept,
        )
        end = self._staged_end = position + HEADER_SIZE + length
        self._staged.append(
            _Staged(
                MESSAGES,
                subject,
                position,
                base,
                length,
                head.record_count,
                kept,
                held,
                head.producer_id,
                before,
            )
        )
        state.messages(subject, position, length, base, head.record_count, highest)
        if head.producer_id >= 0:
            last = last_of(head.base_sequence, head.record_count)
            remembered = ProducerBatch(head.base_sequence, last, base, now, end)
            state.produced(subject, head.producer_id, head.producer_epoch, remembered)
        return Appended(base, append_time, end)

    def _stage(self, kind: int, subject: Subject | None, base: int, payload: bytes = b"") -> None:
        """Stage a frame that carries no messages; the caller applies it."""
        position = self._staged_end
        subject_id = subject.id if subject is not None else 0
        self._buffers.append(
            pack_header(
                kind,
                subject_id,
                len(payload),
                0,
                crc32c(payload),
                base,
                self.now_ms(),
                position,
                self.synced_end,
            )
        )
        if payload:
            self._buffers.append(payload)
        self._staged_end = position + HEADER_SIZE + len(payload)
        self._staged.append(_Staged(kind, subject, position, base, len(payload), 0))

    def _stage_state(self, subject: Subject) -> None:
        """The subject's state, before the first frame in this segment that touches it."""
        subject.forget_producers(self.now_ms() - self.options.producer_id_expiration_ms)
        payload = pack_subject_state(subject.state())
        self._stage(SUBJECT_STATE, subject, subject.next_sequence, payload)
        self.state.touch(subject)

    # --- writing -------------------------------------------------------------------------------

    def write_nowait(self) -> None:
        """Write all that is staged. On failure none of it has happened, and StorageError is raised."""
        if self._buffers:
            self._write()
            self._roll_if_full()

    def _write(self) -> None:
        active = self.state.active
        offset = self.written_end - active.base
        try:
            if self._torn:
                self._mend(offset)
            if self._staged_end - active.base > self._reserved:
                self._reserve(self._staged_end - active.base)
            self.files.pwritev(self._fd, self._buffers, offset)
        except OSError as error:
            self._undo_staged()
            self._torn = True
            raise self._write_failed(error) from error
        self._written()

    def _written(self) -> None:
        rows, pack, dirty, add = self._rows, ROW.pack, self._dirty, self.tail.add
        for staged in self._staged:
            kind, subject, position, base, length, sequences, kept, held = staged[:8]
            rows += pack(position, base, subject.id if subject else 0, length, sequences, kind)
            if kept is not None and subject is not None:
                dirty[subject] = base + sequences
                add(position, kept, held)
        active = self.state.active
        active.end = self.written_end = self._staged_end
        active.newest_store_time = max(active.newest_store_time, self.now_ms())
        self._buffers = []
        self._staged.clear()

    def _undo_staged(self) -> None:
        for staged in reversed(self._staged):
            subject = staged.subject
            if staged.kind == MESSAGES and subject is not None:
                self.state.unmessages(subject, staged.base)
                if staged.producer >= 0:
                    self.state.unproduced(subject, staged.producer, staged.producer_before)
            elif staged.kind == SUBJECT_STATE and subject is not None:
                self.state.untouch(subject)
        self._buffers = []
        self._staged.clear()
        self._staged_end = self.written_end

    def _mend(self, offset: int) -> None:
        """Cut off what a failed write may have left, so that it is never taken for a frame."""
        self.files.truncate(self._fd, offset)
        self._reserved = offset
        self._torn = False

    def _reserve(self, need: int) -> None:
        """Make room on disk up to `need`, and beyond while there is some."""
        ahead = max(need, min(self._reserved + self.options.reserve_bytes, self._reserve_limit()))
        try:
            self.files.reserve(self._fd, self._reserved, ahead - self._reserved)
        except OSError:
            if ahead == need:
                raise
            ahead = need
            self.files.reserve(self._fd, self._reserved, ahead - self._reserved)
        self._reserved = ahead

    def _reserve_limit(self) -> int:
        return self.options.segment_bytes + self.options.segment_bytes // 16

    def _write_failed(self, error: OSError) -> StorageError:
        log.error("cannot write to %s: %s; producers are refused", self.state.active.path, error)
        return StorageError(f"the message log cannot be written: {error.strerror or error}")

    # --- subjects and producer ids --------------------------------------------------------------

    def create_subject_nowait(self, name: str) -> Subject:
        """Written when it returns; durable when synced up to `written_end`."""
        state = SubjectState(uuid.uuid4().bytes, 0, name, {})
        subject_id = self.state.subjects.next_id
        placeholder = Subject(subject_id, state.topic_id, name, self.state.subjects.defaults)
        self._control(SUBJECT_CREATED, placeholder, 0, pack_subject_state(state))
        subject = self.state.created(subject_id, state)
        self._roll_if_full()
        return subject

    def delete_subject_nowait(self, subject: Subject) -> None:
        self._control(SUBJECT_DELETED, subject, subject.next_sequence)
        self.state.deleted(subject)
        self._roll_if_full()

    def raise_earliest_nowait(self, subject: Subject, sequence: int) -> None:
        """Sequences below are gone: for readers now, for good when synced."""
        assert sequence <= subject.high_watermark
        self._control(EARLIEST_RAISED, subject, sequence)
        self.state.raised(subject, sequence)
        self._roll_if_full()

    def raise_producer_ceiling_nowait(self, ceiling: int) -> None:
        self._control(PRODUCER_IDS, None, ceiling)
        self.state.producer_ceiling = ceiling
        self._roll_if_full()

    def _control(self, kind: int, subject: Subject | None, base: int, payload: bytes = b"") -> None:
        """Write a frame. The caller applies it and only then rolls: a new segment begins with all that
        was written before it."""
        if self.fenced is not None:
            raise self.fenced
        self.write_nowait()
        if kind == EARLIEST_RAISED and subject and subject.generation != self.state.generation:
            self._stage_state(subject)
        self._stage(kind, subject, base, payload)
        self._write()

    # --- rolling -------------------------------------------------------------------------------

    def _roll_if_full(self) -> None:
        active, options = self.state.active, self.options
        if active.size >= options.segment_bytes or active.entries >= options.index_max_entries:
            self._roll_if_ready()

    def _roll_if_ready(self) -> None:
        active = self.state.active
        if not active.preamble_complete or self.synced_end < active.preamble_end:
            return
        try:
            self.roll()
        except OSError as error:
            log.error("no new segment: %s; going on in %s", error, active.path)

    def roll(self) -> None:
        """Begin a new segment. Nothing may be staged; OSError leaves all as it was."""
        assert not self._staged
        new = Segment(self.state.directory, self.written_end)
        fd = self.open_files.pin(new.path, create=True)
        payload = pack_segment_start(self.state.subjects.next_id, self.state.cluster_id)
        header = pack_header(
            SEGMENT_START,
            0,
            len(payload),
            0,
            crc32c(payload),
            self.state.producer_ceiling,
            self.now_ms(),
            new.base,
            self.synced_end,
        )
        size = HEADER_SIZE + len(payload)
        try:
            self.files.reserve(fd, 0, size)
            self.files.pwritev(fd, [header, payload], 0)
        except OSError:
            self.open_files.unpin(new.path)
            self.open_files.forget(new.path)
            with suppress(OSError):
                self.files.unlink(new.path)
            raise
        if self.state.segments:
            self._rolled.append((self.state.active, self._checkpoint, bytes(self._rows)))
        self._rows = bytearray(ROW.pack(new.base, 0, 0, len(payload), 0, SEGMENT_START))
        self._checkpoint = CheckpointWriter(self.files, new.checkpoint_path, 0)
        self._fd, self._reserved = fd, size
        self._directory_dirty = True
        new.end = self.written_end = self._staged_end = new.base + size
        new.started = new.newest_store_time = self.now_ms()
        subjects = self.state.subjects
        self.state.start_segment(new, 0, subjects.next_id, self.state.cluster_id)
        self._preamble, self._preamble_at = list(subjects), 0

    def roll_when_ready(self) -> None:
        """Roll although the segment is not full, if its preamble allows."""
        self.write_nowait()
        self._roll_if_ready()

    @property
    def has_chores(self) -> bool:
        """Whether there is a preamble or an index to be written."""
        segments = self.state.segments
        return self._preamble is not None or (
            len(segments) > 1 and segments[-2].unindexed is not None
        )

    def unindexed_segments(self) -> list[Segment]:
        """Sealed segments whose index file can be written now, or has to be made anew."""
        segments = self.state.segments
        return [
            segment
            for segment, following in itertools.pairwise(segments)
            if following.preamble_complete
            and following.preamble_end <= self.synced_end
            and (segment.unindexed is not None or segment.newest_store_time < 0)
        ]

    def forget_segment(self, segment: Segment) -> None:
        """The oldest segment is about to be deleted."""
        assert segment is self.state.segments[0]
        del self.state.segments[0]
        self.open_files.forget(segment.path)

    def preamble_step(self, most: int = 200) -> bool:
        """Write some more of the preamble; False when there is nothing to do (any more)."""
        if self._preamble is None or self.fenced is not None:
            return False
        self.write_nowait()
        chunk = self._preamble[self._preamble_at : self._preamble_at + most]
        for subject in chunk:
            if not subject.deleted and subject.generation != self.state.generation:
                self._stage_state(subject)
        last = self._preamble_at + len(chunk) == len(self._preamble)
        if last:
            self._stage(PREAMBLE_END, None, len(self.state.subjects))
        self.write_nowait()
        self._preamble_at += len(chunk)
        if last:
            self._preamble = None
            self.state.active.preamble_end = self.written_end
            self.state.active.preamble_complete = True
        return not last

    def close(self) -> None:
        """Blocks: sync what is written, give back reserved room, close the files. No round of the
        flusher may be under way."""
        with suppress(OSError, StorageError):
            if self.fenced is None:
                self.write_nowait()
                job = self.begin_sync()
                if job is not None:
                    job.run()
                    self.finish_sync(job)
                self.files.truncate(self._fd, self.state.active.size)
        if self._checkpoint is not None:
            self._checkpoint.close()
        self.open_files.close()

    # --- syncing -------------------------------------------------------------------------------

    @property
    def unsynced_bytes(self) -> int:
        return self.written_end - self.synced_end

    def begin_sync(self) -> SyncJob | None:
        """What is to be synced now; None when all is, when a sync runs, or when the log is fenced."""
        if self._job is not None or self.fenced is not None or not self.unsynced_bytes:
            return None
        active = self.state.active
        assert self._checkpoint is not None
        self._job = SyncJob(
            self.files,
            self.written_end,
            rolled=self._rolled,
            active=self._fd,
            directory=self.state.directory if self._directory_dirty else None,
            checkpoint=self._checkpoint,
            rows=bytes(self._rows),
            preamble_complete=active.preamble_complete,
            high_watermarks=self._dirty,
            open_files=self.open_files,
        )
        self._rolled = []
        self._rows.clear()
        self._dirty = {}
        self._directory_dirty = False
        return self._job

    def finish_sync(self, job: SyncJob, error: OSError | None = None) -> None:
        """The job was run. High watermarks rise, readers wake, and those who wait are called."""
        assert job is self._job
        self._job = None
        if error is not None:
            self._fence(error)
            return
        self.synced_end = job.target
        for subject, sequence in job.high_watermarks.items():
            assert subject.high_watermark <= sequence <= subject.next_sequence
            subject.high_watermark = sequence
            if subject.waiters:
                subject.wake()
        self._call_waiting(None)

    def call_when_synced(self, position: int, callback: Callback) -> None:
        """Calls back when the log is synced up to `position` (at once if it is), or is fenced."""
        if position <= self.synced_end:
            callback(None)
        elif self.fenced is not None:
            callback(self.fenced)
        else:
            self._waiting.append((position, callback))

    def _call_waiting(self, error: KumquatError | None) -> None:
        waiting = self._waiting
        while waiting and (error is not None or waiting[0][0] <= self.synced_end):
            _, callback = waiting.popleft()
            try:
                callback(error)
            except Exception:
                log.exception("a callback after a sync failed")

    def _fence(self, error: OSError) -> None:
        log.critical(
            "sync of %s failed: %s. What was not synced may be lost, and no retry can tell: the log is "
            "closed for writing. Check the disk, then restart",
            self.state.active.path,
            error,
        )
        self.fenced = StorageError(f"the message log is fenced: a sync failed ({error.strerror})")
        self._call_waiting(self.fenced)
