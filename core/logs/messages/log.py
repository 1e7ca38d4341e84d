"""The message log: appending, syncing, rolling. Synchronous: no clock of its own, no Trio.

Writing has three steps, and each frame goes through all of them in order:

    stage   a frame gets its position and sequences; the state counts it already    append_nowait
    write   one write for all that is staged; a failure undoes all of it            write_nowait
    sync    one round for all that is written; high watermarks follow               begin_sync,
                                                                                    finish_sync

The first is done by the Writer (writer.py). The other two are the commit's (disk/commit.py): it says who
waits for what, and what happens when a sync fails. Readers see nothing above the last round that has
ended well.

Frames about a subject's life (created, deleted, earliest raised) and producer ids are written first, and
applied when the write has succeeded.

Rolling begins a new segment at once and writes its preamble in small steps (`preamble_step`): see
preamble.py. A segment is rolled only when its preamble is complete and synced, and when the producers of
subjects that have very many are packed (`pack_step`).
"""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from crc32c import crc32c

from kumquat.core.errors import StorageError
from kumquat.core.logs.disk.active_file import Reserving
from kumquat.core.logs.disk.commit import Callback, Commit, Round, sync_now
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.local_commit import LocalCommit
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.disk.rolling import Rolls
from kumquat.core.logs.messages.delayed import DelayListener
from kumquat.core.logs.messages.format import (
    EARLIEST_RAISED,
    HEADER_SIZE,
    PRODUCER_IDS,
    SEGMENT_START,
    SUBJECT_CREATED,
    SUBJECT_DELETED,
    SubjectState,
    pack_header,
    pack_segment_start,
    pack_subject_state,
)
from kumquat.core.logs.messages.parked import CancelItem, Origin
from kumquat.core.logs.messages.preamble import Packing, Preamble
from kumquat.core.logs.messages.recovery.checkpoint import (
    ROW,
    CheckpointWriter,
    note_synced,
)
from kumquat.core.logs.messages.segment import OpenFiles, Segment
from kumquat.core.logs.messages.settles import Settled, SettleListener
from kumquat.core.logs.messages.state import LogState
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.writer import Appended, Writer
from kumquat.core.records.batch import BatchHead

log = logging.getLogger("kumquat.log")


class MessageLog:
    def __init__(
        self, state: LogState, open_files: OpenFiles, options: LogOptions, now_ms: Callable[[], int]
    ) -> None:
        self.state = state
        self.options = options
        self.now_ms = now_ms
        self.open_files = open_files
        self.files: Files = open_files.files
        reserving = Reserving(
            options.reserve_bytes, options.segment_bytes + options.segment_bytes // 16
        )
        self.commit: Commit = LocalCommit(
            self.files, state.directory, "the message log", reserving, log
        )
        self.writer = Writer(state, self.commit, options, now_ms)
        self.tail = self.writer.tail
        self._checkpoint: CheckpointWriter | None = None
        self._rolled: list[tuple[CheckpointWriter, bytes, int]] = []
        """What the checkpoints lack of segments that were rolled since the last round began."""
        self._preamble: Preamble | None = None
        """None when that of the active segment is complete."""
        self.doomed: list[Segment] = []
        """Segments that are forgotten, and whose files are still to be deleted."""
        self.rolls = Rolls(log)
        self._packing: Packing | None = None
        """None when no roll is wanted."""
        self.settle_listener: SettleListener | None = None
        """Says from where on SETTLES frames must be kept."""

    @property
    def synced_end(self) -> int:
        """All below is durable, and readers may see it."""
        return self.commit.durable

    @property
    def written_end(self) -> int:
        return self.commit.written

    @property
    def fenced(self) -> StorageError | None:
        return self.commit.fenced

    @property
    def late_end(self) -> int:
        """Up to where the log must be synced before any Produce may be answered, because the disk is slow
        and the file has less than was appended; 0: it has all."""
        commit = self.commit
        return commit.written if commit.in_file < commit.written else 0

    @property
    def listener(self) -> DelayListener | None:
        """Gets all frames of parked, cancelled and delivered messages."""
        return self.writer.listener

    @listener.setter
    def listener(self, listener: DelayListener) -> None:
        self.writer.listener = listener

    # --- opening -------------------------------------------------------------------------------

    def begin(self, cluster_id: str) -> None:
        """Start an empty log. Blocks: its first segment is synced before anything is built on it."""
        self.state.cluster_id = cluster_id
        self.roll()
        self.preamble_step()
        sync_now(self)

    def resume(self, end: int, checkpoint: CheckpointWriter, rows: bytes) -> None:
        """Go on in the active segment behind `end`, all below which is synced."""
        active = self.state.active
        self.commit.start_at(end)
        fd = self.open_files.pin(active.path)
        unpin = partial(self.open_files.unpin, active.path)
        self.commit.continue_in(active.path, fd, active.base, unpin)
        self.writer.use_active()
        self.writer.rows += rows
        self._checkpoint = checkpoint
        if not active.preamble_complete:
            generation = self.state.generation
            self._preamble = Preamble(
                [s for s in self.state.subjects if s.generation != generation]
            )

    # --- messages ------------------------------------------------------------------------------

    def append_nowait(
        self, subject: Subject, batch: memoryview, head: BatchHead | None = None
    ) -> Appended:
        """Stage a batch as it is: see Writer.append_nowait."""
        return self.writer.append_nowait(subject, batch, head)

    def original_of(self, subject: Subject, head: BatchHead) -> Appended | None:
        """Where the batch is that this one repeats; None: it repeats none."""
        return self.writer.original_of(subject, head)

    def park_nowait(
        self,
        subject: Subject,
        origin: Origin,
        parked: bytes,
        cancels: list[CancelItem],
        plain: bytearray | None,
    ) -> Appended:
        """Stage what a batch with delayed records was split into, so that all of it or none is stored."""
        return self.writer.park_nowait(subject, origin, parked, cancels, plain)

    def deliver_nowait(self, subject: Subject, schedule_ids: bytes, batch: bytearray) -> Appended:
        """Stage parked messages that are due: their schedule ids, and their batch."""
        return self.writer.deliver_nowait(subject, schedule_ids, batch)

    def give_up_nowait(self, subject: Subject, schedule_ids: bytes) -> None:
        """Stage that these parked messages will never be delivered: they are damaged."""
        self.writer.give_up_nowait(subject, schedule_ids)

    def settle_nowait(
        self, subject: Subject, items: Iterable[Settled], batch: bytearray
    ) -> Appended:
        """Stage messages that settle others, and which those are."""
        return self.writer.settle_nowait(subject, items, batch)

    def write_nowait(self) -> None:
        """Write all that is staged. On failure none of it has happened, and StorageError is raised."""
        if self.writer.write_nowait():
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
        """Sequences below are gone: for readers now, after a restart once this is durable."""
        assert sequence <= subject.readable_end
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
            self.writer.stage_state(subject)
        self.writer.stage(kind, subject, base, payload)
        self.writer.write_nowait()

    # --- rolling -------------------------------------------------------------------------------

    def _roll_if_full(self) -> None:
        active, options = self.state.active, self.options
        if (
            active.size >= options.segment_bytes
            or active.entries >= options.index_max_entries
            or self._packing is not None  # a roll is wanted for another reason (damage, age)
        ):
            self._roll_if_ready()

    def _roll_if_ready(self) -> None:
        active = self.state.active
        if not active.preamble_complete or self.synced_end < active.preamble_end:
            return
        if self.fenced is not None or not self.rolls.may_try:
            return
        if self.commit.in_file < self.commit.written:
            return  # a start must not find a segment behind one that lacks its end
        if self._packing is None:
            self._packing = Packing(self.state.subjects)
        if self._packing.done:
            self.rolls.attempt(self.roll, active.path)

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
            self.open_files.unpin(new.path)
            self.open_files.forget(new.path)
            self.commit.remove_new(new.path)
            raise
        if self.state.segments:
            assert self._checkpoint is not None
            self._rolled.append((self._checkpoint, bytes(self.writer.rows), self.written_end))
        self.writer.rows = bytearray(
            ROW.pack(new.base, self.state.producer_ceiling, 0, len(payload), 0, SEGMENT_START)
        )
        self._checkpoint = CheckpointWriter(self.files, new.checkpoint_path, 0)
        new.started = new.newest_store_time = self.now_ms()
        subjects = self.state.subjects
        self.state.start_segment(new, 0, subjects.next_id, self.state.cluster_id)
        unpin = partial(self.open_files.unpin, new.path)
        self.commit.roll_to(new.path, fd, new.base, size, unpin)
        self.writer.use_active()
        self._preamble = Preamble(list(subjects))
        if self._packing is not None:
            self._packing.stop()
            self._packing = None

    def roll_when_ready(self) -> None:
        """Roll a segment that is not full, if its preamble is complete and synced."""
        self.write_nowait()
        self._roll_if_ready()

    @property
    def has_chores(self) -> bool:
        """Whether there is something to be packed, or a preamble or an index to be written."""
        segments = self.state.segments
        return (
            (self._packing is not None and not self._packing.done)
            or self._preamble is not None
            or (len(segments) > 1 and segments[-2].unindexed is not None)
        )

    def pack_step(self, most: int) -> bool:
        """Pack some more producers for the next preamble; False when there is nothing to do (any more)."""
        packing = self._packing
        if packing is None or packing.done:
            return False
        self.write_nowait()
        packing.step(most)
        if packing.done:
            self._roll_if_full()
        return not packing.done

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
        preamble = self._preamble
        if preamble is None or self.fenced is not None:
            return False
        self.write_nowait()
        count = preamble.stage(self.writer, self.state, most)
        self.write_nowait()
        if not preamble.written(count):
            return True
        self._preamble = None
        self.state.active.preamble_end = self.written_end
        self.state.active.preamble_complete = True
        return False

    def close(self) -> None:
        """Blocks: sync what is written, give back reserved room, close the files. No round may be under
        way."""
        with suppress(StorageError):
            self.write_nowait()
        with suppress(StorageError):
            sync_now(self)
        self.commit.close()
        if self._checkpoint is not None:
            self._checkpoint.close()
        self.open_files.close()

    # --- syncing -------------------------------------------------------------------------------

    @property
    def unsynced_bytes(self) -> int:
        return self.commit.written - self.commit.durable

    def begin_sync(self) -> Round | None:
        """The next round; None when all is durable, when one is under way, or when the log is fenced."""
        if not self.commit.wants_round:
            return None
        writer = self.writer
        assert self._checkpoint is not None
        complete = self.state.active.preamble_complete
        note = partial(note_synced, self._rolled, self._checkpoint, bytes(writer.rows), complete)
        begun = self.commit.begin_round(note, partial(self._show, writer.dirty))
        self._rolled = []
        writer.rows = bytearray()
        writer.dirty = {}
        return begun

    def finish_sync(self, ended: Round, error: OSError | None = None) -> None:
        """The round was run: readers see what it made durable, and those who wait are called."""
        self.commit.end_round(ended, error)

    def call_when_synced(self, position: int, callback: Callback) -> None:
        """Calls back when all below `position` is durable (at once if it is), or when the log is fenced."""
        self.commit.call_when_durable(position, callback)

    def _show(self, readable_ends: dict[Subject, int]) -> None:
        """Raise high watermarks, and wake readers."""
        for subject, sequence in readable_ends.items():
            assert subject.readable_end <= sequence <= subject.next_sequence
            subject.readable_end = sequence
            if subject.waiters:
                subject.wake()
