"""Staging frames and writing them: what happens between a batch's arrival and the page cache.

Messages are applied to the state when they are staged, since the next batch of a burst builds on them;
so each staged frame carries what is needed to undo that. One pwritev writes all that is staged. If it
fails, for want of room or otherwise, all of it is undone, and the caller tells each producer. How the
bytes reach the disk and become durable is the business of the commit (disk/commit.py).

This is the hottest code of the broker: nothing here is per record, and a frame costs a few microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from crc32c import crc32c

from kumquat.core.errors import (
    InvalidTimestamp,
    StorageError,
)
from kumquat.core.logs.disk.commit import Commit
from kumquat.core.logs.disk.files import Buffer
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.delayed import DelayListener
from kumquat.core.logs.messages.format import (
    CANCEL,
    DELIVERED,
    HEADER_SIZE,
    JOINED,
    MESSAGES,
    PARKED,
    SETTLES,
    SUBJECT_STATE,
    ProducerBatch,
    pack_header,
    pack_subject_state,
)
from kumquat.core.logs.messages.observer import WriteObserver, WrittenFrame
from kumquat.core.logs.messages.parked import (
    NO_ORIGIN,
    CancelItem,
    Origin,
    pack_cancels,
    pack_origin,
)
from kumquat.core.logs.messages.producers import ProducerState, check_sequence, last_of
from kumquat.core.logs.messages.recovery.checkpoint import ROW
from kumquat.core.logs.messages.settles import Settled, pack_settles
from kumquat.core.logs.messages.state import LogState
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.tail import Batch, Tail, keep
from kumquat.core.records.batch import (
    LOG_APPEND_TIME,
    BatchHead,
    check,
    read_head,
    stamp,
    stamp_append_time,
)

_FORGOTTEN_AT_ONCE = 1_000
_BUFFERS = 2
"""Of each staged frame: its header and its payload."""


class Appended(NamedTuple):
    base_sequence: int
    """-1: all of it is parked."""
    log_append_time: int
    """-1, unless the subject's timestamps are those of the log."""
    end: int
    """Position behind the frame: the batch is durable when the log is synced up to there."""


_new = tuple.__new__
"""Appended(…) takes three times as long, 0.3 µs of the 5 that a batch costs."""

Undo = tuple[int, ProducerState | None]
"""The producer of a batch, -1 for none, and what was known of it before."""
Staged = tuple[int, Subject | None, int, int, int, int, Batch | None, int, Undo]
"""A frame to be written: kind, subject, position, base sequence, payload length, sequences, the batch
for the tail and the memory that it holds (or the payload that the delay service is to be told of), and what
undoes it."""
_NO_UNDO: Undo = (-1, None)


class Writer:
    """Writes into the active segment."""

    def __init__(
        self, state: LogState, commit: Commit, options: LogOptions, now_ms: Callable[[], int]
    ) -> None:
        self.tail = Tail(options.tail_bytes)
        self.rows = bytearray()
        """Rows for the checkpoint: what was written since the last sync began."""
        self.dirty: dict[Subject, int] = {}
        """Subjects with unsynced messages, and their next sequence as written."""
        self._state = state
        self._commit = commit
        self._options = options
        self._now_ms = now_ms
        self._staged: list[Staged] = []
        self._buffers: list[Buffer] = []
        self._staged_end = 0
        self.messages_written = self.bytes_written = 0
        """Since the start: messages that got a place in a subject, and the bytes of their batches."""
        self.listener: DelayListener | None = None
        self.observer: WriteObserver | None = None
        """None while nobody's history is recorded."""

    @property
    def fenced(self) -> StorageError | None:
        return self._commit.fenced

    def use_active(self) -> None:
        """The active segment is another one, or longer: go on behind all that is written."""
        assert not self._staged
        self._state.active.end = self._staged_end = self._commit.written

    # --- staging -------------------------------------------------------------------------------

    def append_nowait(
        self, subject: Subject, batch: memoryview, head: BatchHead | None = None
    ) -> Appended:
        """Stage a batch as it is, stamping its offsets in place; or give the original's place if it repeats
        one. The buffer behind `batch` belongs to the log from here on. `head`: as Subject.look gave it;
        without it, the batch is checked here."""
        if self._commit.fenced is not None:
            raise self._commit.fenced
        if head is None:
            head = check(batch)
        producer = head[9]
        before: ProducerState | None = None
        if producer >= 0 and subject.producers is not None:
            before = subject.producers.get(producer)
            original = check_sequence(before, producer, head[10], head[11], head[12])
            if original is not None:
                return _repeated(subject, original)
        return self._stage_batch(subject, batch, head, producer, before)

    def original_of(self, subject: Subject, head: BatchHead) -> Appended | None:
        """Where the batch is that this one repeats; None: it repeats none. It may be opened then."""
        if self.fenced is not None:
            raise self.fenced
        if head.producer_id < 0 or subject.producers is None:
            return None
        before = subject.producers.get(head.producer_id)
        original = check_sequence(before, head.producer_id, head[10], head[11], head[12])
        return None if original is None else _repeated(subject, original)

    def _stage_batch(
        self,
        subject: Subject,
        batch: memoryview,
        head: BatchHead,
        producer: int,
        before: ProducerState | None,
    ) -> Appended:
        now = self._now_ms()
        state = self._state
        base, length = subject.next_sequence, len(batch)
        crc, highest, count, append_time = head[4], head[8], head[6] + 1, -1
        if subject.config.log_append_time:
            append_time = highest = now
            crc = stamp_append_time(batch, now)
        elif head[5] & LOG_APPEND_TIME:
            raise InvalidTimestamp("a producer may not send batches of log append time")
        stamp(batch, base)
        if subject.generation != state.generation:
            self.stage_state(subject)
        position = self._staged_end
        end = self._staged_end = position + HEADER_SIZE + length
        kept, held = keep(batch)
        header = pack_header(
            MESSAGES, subject.id, length, count, crc, base, now, position, self._commit.durable
        )
        self._buffers += (header, kept)
        undo = (producer, before)
        self._staged.append((MESSAGES, subject, position, base, length, count, kept, held, undo))
        state.messages(subject, position, length, base, count, highest)
        if producer >= 0:
            first = head.base_sequence
            batch_of = ProducerBatch(first, last_of(first, count), base, now, end)
            state.produced(subject, producer, head.producer_epoch, batch_of)
        return _new(Appended, (base, append_time, end))

    def park_nowait(
        self,
        subject: Subject,
        origin: Origin,
        parked: bytes,
        cancels: list[CancelItem],
        plain: bytearray | None,
    ) -> Appended:
        """Stage what a batch was split into, so that all of it or none is stored; see parked.py."""
        if self.fenced is not None:
            raise self.fenced
        before: ProducerState | None = None
        if origin.producer_id >= 0 and subject.producers is not None:
            before = subject.producers.get(origin.producer_id)
            original = check_sequence(before, *origin)
            if original is not None:
                return Appended(original.base_sequence, -1, original.end)
        staged = len(self._staged)
        try:
            return self._stage_parts(subject, origin, parked, cancels, plain, before)
        except BaseException:
            self._undo_staged(staged)
            raise

    def _stage_parts(
        self,
        subject: Subject,
        origin: Origin,
        parked: bytes,
        cancels: list[CancelItem],
        plain: bytearray | None,
        before: ProducerState | None,
    ) -> Appended:
        if subject.generation != self._state.generation:
            self.stage_state(subject)
        if parked:
            alone = not cancels and plain is None
            payload = pack_origin(origin if alone else NO_ORIGIN) + parked
            self._stage_delayed(PARKED, subject, payload, not alone, origin, before)
        if cancels:
            payload = pack_cancels(NO_ORIGIN if plain else origin, cancels)
            self._stage_delayed(CANCEL, subject, payload, plain is not None, origin, before)
        if plain is not None:
            view = memoryview(plain)
            return self._stage_batch(subject, view, read_head(view), origin.producer_id, before)
        return Appended(-1, -1, self._staged_end)

    def deliver_nowait(self, subject: Subject, schedule_ids: bytes, batch: bytearray) -> Appended:
        """Stage parked messages that are due: who they were, and their batch."""
        if self.fenced is not None:
            raise self.fenced
        if subject.generation != self._state.generation:
            self.stage_state(subject)
        staged = len(self._staged)
        try:
            self._stage_delayed(DELIVERED, subject, schedule_ids, True, NO_ORIGIN, None)
            view = memoryview(batch)
            return self._stage_batch(subject, view, read_head(view), -1, None)
        except BaseException:
            self._undo_staged(staged)
            raise

    def give_up_nowait(self, subject: Subject, schedule_ids: bytes) -> None:
        """Stage that these parked messages will never be delivered: they are damaged."""
        if self.fenced is not None:
            raise self.fenced
        if subject.generation != self._state.generation:
            self.stage_state(subject)
        self._stage_delayed(DELIVERED, subject, schedule_ids, False, NO_ORIGIN, None)

    def settle_nowait(
        self, subject: Subject, items: Iterable[Settled], batch: bytearray
    ) -> Appended:
        """Stage messages that settle others, and which those are (settles.py)."""
        if self.fenced is not None:
            raise self.fenced
        staged = len(self._staged)
        try:
            if subject.generation != self._state.generation:
                self.stage_state(subject)
            self.stage(SETTLES, subject, subject.next_sequence, pack_settles(items), JOINED)
            view = memoryview(batch)
            return self._stage_batch(subject, view, read_head(view), -1, None)
        except BaseException:
            self._undo_staged(staged)
            raise

    def _stage_delayed(
        self,
        kind: int,
        subject: Subject,
        payload: bytes,
        joined: bool,
        origin: Origin,
        before: ProducerState | None,
    ) -> None:
        position, base, now = self._staged_end, subject.next_sequence, self._now_ms()
        length, flags = len(payload), JOINED if joined else 0
        header = pack_header(
            kind,
            subject.id,
            length,
            0,
            crc32c(payload),
            base,
            now,
            position,
            self._commit.durable,
            flags,
        )
        self._buffers += (header, payload)
        end = self._staged_end = position + HEADER_SIZE + length
        producer = -1 if joined else origin.producer_id
        self._staged.append(
            (kind, subject, position, base, length, 0, payload, 0, (producer, before))
        )
        if producer >= 0:
            batch = ProducerBatch(origin.first, last_of(origin.first, origin.records), -1, now, end)
            self._state.produced(subject, producer, origin.epoch, batch)

    def stage(
        self, kind: int, subject: Subject | None, base: int, payload: bytes = b"", flags: int = 0
    ) -> None:
        """Stage a frame that carries no messages; the caller applies it once it is written."""
        position, length = self._staged_end, len(payload)
        subject_id = subject.id if subject is not None else 0
        crc, now = crc32c(payload), self._now_ms()
        durable = self._commit.durable
        header = pack_header(kind, subject_id, length, 0, crc, base, now, position, durable, flags)
        self._buffers += (header, payload)
        self._staged_end = position + HEADER_SIZE + length
        self._staged.append((kind, subject, position, base, length, 0, None, 0, _NO_UNDO))

    def stage_state(self, subject: Subject) -> None:
        """The subject's state, before the first frame in this segment that touches it."""
        silent_since = self._now_ms() - self._options.producer_id_expiration_ms
        subject.forget_producers(silent_since, _FORGOTTEN_AT_ONCE)
        payload = pack_subject_state(subject.state(), subject.packed)
        subject.packed = None
        self.stage(SUBJECT_STATE, subject, subject.next_sequence, payload)
        self._state.touch(subject)

    # --- writing -------------------------------------------------------------------------------

    def write_nowait(self) -> bool:
        """Write all that is staged; False if that is nothing. On failure none of it has happened, and
        StorageError is raised."""
        if not self._buffers:
            return False
        try:
            end = self._commit.append(self._buffers)
        except StorageError:
            self._undo_staged()
            raise
        assert end == self._staged_end
        self._written()
        return True

    def _written(self) -> None:
        rows, pack, dirty, add = self.rows, ROW.pack, self.dirty, self.tail.add
        delayed: list[tuple[int, int, int, Batch]] = []
        messages = size = 0
        for kind, subject, position, base, length, sequences, kept, held, _ in self._staged:
            rows += pack(position, base, subject.id if subject else 0, length, sequences, kind)
            if kept is not None and subject is not None:
                if kind == MESSAGES:
                    dirty[subject] = base + sequences
                    add(position, kept, held)
                    messages += sequences
                    size += length
                else:
                    delayed.append((kind, subject.id, position, kept))
        active = self._state.active
        self.messages_written += messages
        self.bytes_written += size
        active.end = self._staged_end
        active.newest_store_time = max(active.newest_store_time, self._now_ms())
        staged, self._staged = self._staged, []
        self._buffers = []
        if self.listener is not None:
            for frame in delayed:
                self.listener.apply(*frame)
        if self.observer is not None:
            self.observer.written(
                [
                    WrittenFrame(kind, subject, position, base, sequences, kept)
                    for kind, subject, position, base, _, sequences, kept, _, _ in staged
                    if subject is not None and subject.config.history
                ]
            )

    def _undo_staged(self, first: int = 0) -> None:
        """Take back what is staged, from this frame on."""
        state = self._state
        undone = self._staged[first:]
        for kind, subject, _, base, _, _, _, _, (producer, before) in reversed(undone):
            if kind == MESSAGES and subject is not None:
                state.unmessages(subject, base)
            elif kind == SUBJECT_STATE and subject is not None:
                state.untouch(subject)
            if producer >= 0 and subject is not None:
                state.unproduced(subject, producer, before)
        if undone:
            self._staged_end = undone[0][2]
        del self._staged[first:]
        del self._buffers[_BUFFERS * first :]


def _repeated(subject: Subject, original: ProducerBatch) -> Appended:
    append_time = original.store_time if subject.config.log_append_time else -1
    return Appended(original.base_sequence, append_time, original.end)
