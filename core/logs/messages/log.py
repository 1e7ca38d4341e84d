"""The message log: appending, group commit, rolling. Synchronous: no clock of its own, no Trio.

Writing has three steps, and each frame goes through all of them in order:

    stage   a frame gets its position and sequences; the state counts it already    append_nowait
    write   one pwritev for all that is staged; a failure undoes all of it          write_nowait
    sync    one fdatasync for all that is written; high watermarks follow           begin_sync,
                                                                                    finish_sync

`begin_sync` gives a SyncJob; its `run` is the blocking part and belongs in another thread; `finish_sync`
takes it back. There is one job at a time, and readers see nothing above the last finished one. A failed
sync fences the log: nothing is written any more, and nothing unsynced is ever acked.

The first two are the Writer's (writer.py). Frames about a subject's life (created, deleted, earliest
raised) and producer ids are written first and applied when the write has succeeded.

Rolling begins a new segment at once and writes its preamble little by little (`preamble_step`): see
format.py. A segment is rolled only when its preamble is complete and synced, and when the producers of
subjects that have very many are packed (`pack_step`): a subject's state is one frame, and to pack 200,000
of them in one go would stop the loop for a third of a second.
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from crc32c import crc32c

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.delayed import DelayListener
from kumquat.core.logs.messages.format import (
    EARLIEST_RAISED,
    HEADER_SIZE,
    PREAMBLE_END,
    PRODUCER_IDS,
    SEGMENT_START,
    SUBJECT_CREATED,
    SUBJECT_DELETED,
    SubjectState,
    pack_header,
    pack_segment_start,
    pack_subject_state,
)
from kumquat.core.logs.messages.recovery.checkpoint import ROW, CheckpointWriter
from kumquat.core.logs.messages.segment import OpenFiles, Segment
from kumquat.core.logs.messages.state import LogState
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.sync import SyncJob
from kumquat.core.logs.messages.writer import Appended, Writer
from kumquat.core.records.batch import BatchHead

log = logging.getLogger("kumquat.log")

ROLL_RETRY_MS = 1_000
"""How long a segment that could not be begun is not tried again: each try costs a sync of the folder."""

MANY = 1_000
"""A subject with more producers has them packed ahead of a roll."""

Callback = Callable[[KumquatError | None], None]


class MessageLog:
    def __init__(
        self, state: LogState, open_files: OpenFiles, options: LogOptions, now_ms: Callable[[], int]
    ) -> None:
        self.state = state
        self.options = options
        self.now_ms = now_ms
        self.open_files = open_files
        self.files: Files = open_files.files
        self._writer = Writer(state, self.files, options, now_ms)
        self.append_nowait = self._writer.append_nowait
        self.park_nowait = self._writer.park_nowait
        self.deliver_nowait = self._writer.deliver_nowait
        self.give_up_nowait = self._writer.give_up_nowait
        self.tail = self._writer.tail
        self._job: SyncJob | None = None
        self._checkpoint: CheckpointWriter | None = None
        self._rolled: list[tuple[Segment, CheckpointWriter | None, bytes]] = []
        """Segments that were rolled since the last sync began."""
        self._folder = self.files.open_dir(state.directory)
        self._directory_dirty = False
        self._preamble: list[Subject] | None = None
        """The subjects whose state the active segment is to hold; None when it is complete."""
        self._preamble_at = 0
        self.doomed: list[Segment] = []
        """Segments that are forgotten, and whose files are still to be deleted."""
        self._no_roll_before = 0
        self._unpacked: deque[tuple[Subject, list[int]]] | None = None
        """Subjects with many producers, and those of them that are to be packed before the next roll; None
        when no roll is near."""
        self._waiting: deque[tuple[int, Callback]] = deque()

    @property
    def synced_end(self) -> int:
        """All below is on disk, and readers may see it."""
        return self._writer.synced_end

    @property
    def written_end(self) -> int:
        return self._writer.written_end

    @property
    def fenced(self) -> StorageError | None:
        return self._writer.fenced

    @property
    def listener(self) -> DelayListener | None:
        """Who is told of what is parked, cancelled and delivered."""
        return self._writer.listener

    @listener.setter
    def listener(self, listener: DelayListener) -> None:
        self._writer.listener = listener

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
        self._writer.use(self.open_files.pin(active.path), end)
        self._writer.synced_end = end
        self._writer.rows += rows
        self._checkpoint = checkpoint
        if not active.preamble_complete:
            generation = self.state.generation
            self._preamble = [s for s in self.state.subjects if s.generation != generation]

    def original_of(self, subject: Subject, head: BatchHead) -> Appended | None:
        """Where the batch is that this one repeats; None: it repeats none."""
        return self._writer.original_of(subject, head)

    def write_nowait(self) -> None:
        """Write all that is staged. On failure none of it has happened, and StorageError is raised."""
        if self._writer.write_nowait():
            self._roll_if_full()

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
        if self.listener is not None:
            self.listener.subject_deleted(subject.id, self.written_end)
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
            self._writer.stage_state(subject)
        self._writer.stage(kind, subject, base, payload)
        self._writer.write_nowait()

    # --- rolling -------------------------------------------------------------------------------

    def _roll_if_full(self) -> None:
        active, options = self.state.active, self.options
        if active.size >= options.segment_bytes or active.entries >= options.index_max_entries:
            self._roll_if_ready()

    def _roll_if_ready(self) -> None:
        active = self.state.active
        if not active.preamble_complete or self.synced_end < active.preamble_end:
            return
        if self.now_ms() < self._no_roll_before:
            return
        if self._unpacked is None:
            many = [s for s in self.state.subjects if s.producers and len(s.producers) > MANY]
            for subject in many:
                subject.pack([])  # who sends from here on counts as changed
            self._unpacked = deque((s, list(s.producers or ())) for s in many)
        if self._unpacked:
            return
        try:
            self.roll()
        except OSError as error:
            log.error("no new segment: %s; going on in %s", error, active.path)
            self._no_roll_before = self.now_ms() + ROLL_RETRY_MS

    def roll(self) -> None:
        """Begin a new segment. Nothing may be staged; OSError leaves all as it was."""
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
            self._unroll(new)
            raise
        if self.state.segments:
            self._rolled.append((self.state.active, self._checkpoint, bytes(self._writer.rows)))
        self._writer.rows = bytearray(
            ROW.pack(new.base, self.state.producer_ceiling, 0, len(payload), 0, SEGMENT_START)
        )
        self._checkpoint = CheckpointWriter(self.files, new.checkpoint_path, 0)
        self._directory_dirty = True
        new.started = new.newest_store_time = self.now_ms()
        subjects = self.state.subjects
        self.state.start_segment(new, 0, subjects.next_id, self.state.cluster_id)
        self._writer.use(fd, new.base + size)
        self._preamble, self._preamble_at = list(subjects), 0
        for subject, _ in self._unpacked or ():
            subject.packed = None  # not all of its producers are in it
        self._unpacked = None

    def _unroll(self, new: Segment) -> None:
        """Remove a segment that could not be begun, for good: the log goes on at the position that is its
        name, and were the file to come back after a power cut, it would stand in the way."""
        self.open_files.unpin(new.path)
        self.open_files.forget(new.path)
        try:
            self.files.unlink(new.path)
            self.files.fsync_dir(self._folder)
        except OSError as error:
            self._fence(error)

    def roll_when_ready(self) -> None:
        """Roll although the segment is not full, if its preamble allows."""
        self.write_nowait()
        self._roll_if_ready()

    @property
    def has_chores(self) -> bool:
        """Whether there is something to be packed, or a preamble or an index to be written."""
        segments = self.state.segments
        return (
            bool(self._unpacked)
            or self._preamble is not None
            or (len(segments) > 1 and segments[-2].unindexed is not None)
        )

    def pack_step(self, most: int) -> bool:
        """Pack some more producers for the next preamble; False when there is nothing to do (any more)."""
        if not self._unpacked:
            return False
        self.write_nowait()
        subject, producers = self._unpacked[0]
        subject.pack(producers[-most:])
        del producers[-most:]
        if not producers:
            self._unpacked.popleft()
            self._roll_if_full()
        return bool(self._unpacked)

    def unindexed_segments(self) -> list[Segment]:
        """Sealed segments whose index file can be written now, or has to be made again."""
        segments = self.state.segments
        return [
            segment
            for segment, following in itertools.pairwise(segments)
            if following.preamble_complete
            and following.preamble_end <= self.synced_end
            and (segment.unindexed is not None or segment.newest_store_time < 0)
        ]

    def forget_segment(self, segment: Segment) -> None:
        """The oldest segment is to be deleted. The list is replaced: a thread may be searching it."""
        assert segment is self.state.segments[0]
        self.state.segments = self.state.segments[1:]
        self.doomed.append(segment)
        self.open_files.forget(segment.path)

    def preamble_step(self, most: int = 200) -> bool:
        """Write some more of the preamble; False when there is nothing to do (any more)."""
        if self._preamble is None or self.fenced is not None:
            return False
        self.write_nowait()
        chunk = self._preamble[self._preamble_at : self._preamble_at + most]
        for subject in chunk:
            if not subject.deleted and subject.generation != self.state.generation:
                self._writer.stage_state(subject)
        last = self._preamble_at + len(chunk) == len(self._preamble)
        if last:
            self._writer.stage(PREAMBLE_END, None, len(self.state.subjects))
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
                self.files.truncate(self._writer.fd, self.state.active.size)
        if self._checkpoint is not None:
            self._checkpoint.close()
        self.open_files.close()
        with suppress(OSError):
            self.files.close(self._folder)

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
            active=self._writer.fd,
            folder=self._folder if self._directory_dirty else None,
            checkpoint=self._checkpoint,
            rows=bytes(self._writer.rows),
            preamble_complete=active.preamble_complete,
            high_watermarks=self._writer.dirty,
            open_files=self.open_files,
        )
        self._rolled = []
        self._writer.rows = bytearray()
        self._writer.dirty = {}
        self._directory_dirty = False
        return self._job

    def finish_sync(self, job: SyncJob, error: OSError | None = None) -> None:
        """The job was run. High watermarks rise, readers wake, and those who wait are called."""
        assert job is self._job
        self._job = None
        if error is not None:
            self._fence(error)
            return
        self._writer.synced_end = job.target
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
            self.state.directory,
            error,
        )
        self._writer.fenced = StorageError(
            f"the message log is fenced: a sync failed ({error.strerror})"
        )
        self._call_waiting(self._writer.fenced)
