"""Reading frames back into the state, when the log is opened.

`run` takes whole frames of messages, as nearly all are, in one tight loop; `apply` takes any whole frame.
`damaged` takes a frame that is not whole, and makes its sequences answer with an error. `unreadable`
takes a frame that the disk cannot read now, and may be able to read tomorrow. All of them change LogState
through the same functions as the running log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from crc32c import crc32c

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.unreadable import refusal, what_to_do
from kumquat.core.logs.messages.delayed import DelayListener
from kumquat.core.logs.messages.format import (
    CANCEL,
    DELAYED,
    EARLIEST_RAISED,
    HEADER_AND_HEAD,
    HEADER_SIZE,
    KIND_NAMES,
    MAGIC,
    MESSAGES,
    PARKED,
    PREAMBLE_END,
    PRODUCER_IDS,
    SEGMENT_START,
    SETTLES,
    SUBJECT_CREATED,
    SUBJECT_DELETED,
    SUBJECT_STATE,
    VERSION,
    FrameHeader,
    ProducerBatch,
    parse_segment_start,
    parse_subject_state,
)
from kumquat.core.logs.messages.index import Row as IndexRow
from kumquat.core.logs.messages.parked import parse_origin
from kumquat.core.logs.messages.producers import last_of
from kumquat.core.logs.messages.recovery.checkpoint import ROW, Row
from kumquat.core.logs.messages.recovery.damage_report import DamageReport
from kumquat.core.logs.messages.recovery.scan import Frames
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.settles import SettleListener, UnknownItem, settles_of
from kumquat.core.logs.messages.state import LogState
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.records import damage, read_head
from kumquat.core.records.batch import CRC_FROM, CURRENT_MAGIC, OVERHEAD

log = logging.getLogger("kumquat.log")


_BARE = (SUBJECT_DELETED, EARLIEST_RAISED, PRODUCER_IDS, PREAMBLE_END)
"""Kinds without a payload: a checkpoint's row says all that the frame said."""
_IN_ORDER = (MESSAGES, SUBJECT_STATE, SETTLES, *DELAYED)
"""Kinds whose base sequence is the next one of their subject."""


class PreambleDamaged(Exception):
    """A frame that holds a subject's state cannot be read; the segment before may hold it too."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: a frame ({what}) cannot be read")
        self.path = path


class Replay:
    def __init__(
        self,
        state: LogState,
        *,
        forgiving: bool,
        listener: DelayListener | None = None,
        settles: SettleListener | None = None,
    ) -> None:
        self.state = state
        self.report = DamageReport()
        self._listener = listener
        self._settles = settles
        self._new_rows = bytearray()
        self._rows: dict[int, bytearray] = {}
        self.known_synced = 0
        """The highest synced end that a whole frame names."""
        self.indexing = False
        """Only an index is made: batches count though the frame with their subject's state is damaged."""
        self._forgiving = forgiving
        self._synced_end = 0

    def begin(self, segment: Segment, synced_end: int) -> None:
        """A segment is next, whose checkpoint knows all frames below `synced_end`."""
        self._synced_end = synced_end
        self._new_rows = self._rows[segment.base] = bytearray()

    def rows_of(self, segment: Segment) -> bytes:
        """Rows for the checkpoint of a segment: frames that it does not know yet."""
        return bytes(self._rows.get(segment.base, b""))

    def run(self, segment: Segment, frames: Frames, position: int, following: int | None) -> int:
        """Apply frames of messages as long as nothing is out of the ordinary, up to `following`.

        The same as `apply` on each, in one loop over what is in memory: a segment may hold a million.
        Gives the position of the first frame that deserves a closer look.
        """
        view, at = frames.window(position)
        size, unpack, state = len(view), HEADER_AND_HEAD.unpack_from, self.state
        subjects, synced_end, newest, told = state.subjects.by_id, self._synced_end, 0, 0
        while at + HEADER_AND_HEAD.size <= size and position != following:
            fields = unpack(view, at)
            magic, version, kind, _, subject_id, length, sequences, payload_crc = fields[:8]
            base, stored, where, synced, header_crc, offset, rest, epoch, v2, crc = fields[8:18]
            end = at + HEADER_SIZE + length
            subject = subjects.get(subject_id)
            if (
                (magic, version, kind, where) != (MAGIC, VERSION, MESSAGES, position)
                or (offset, rest, epoch, v2) != (base, length - OVERHEAD, 0, CURRENT_MAGIC)
                or crc != payload_crc
                or end > size
                or subject is None
                or subject.next_sequence != base
                or subject.generation != state.generation
                or crc32c(view[at : at + HEADER_SIZE - 4]) != header_crc
                or crc32c(view[at + HEADER_SIZE + CRC_FROM : end]) != crc
            ):
                break
            if position >= synced_end:
                self._new_rows += ROW.pack(position, base, subject_id, length, sequences, kind)
            highest, producer, epoch, first, _ = fields[21:]
            state.messages(subject, position, length, base, sequences, highest)
            if producer >= 0:
                batch = ProducerBatch(first, last_of(first, sequences), base, stored, 0)
                state.produced(subject, producer, epoch, batch)
            newest, told = max(newest, stored), synced
            position += end - at
            at = end
        segment.newest_store_time = max(newest, segment.newest_store_time)
        self.known_synced = max(told, self.known_synced)
        return position

    def misfit(self, header: FrameHeader) -> str | None:
        """Why a frame that is whole cannot be the next one of its subject; None when it can.

        A frame of a write that failed, or one behind a frame that such a one has displaced, is whole.
        """
        subject = self.state.subjects.by_id.get(header.subject_id)
        if subject is None or header.kind not in _IN_ORDER:
            return None
        if header.base_sequence == subject.next_sequence:
            return None
        return (
            f"{subject.name!r}: expected sequence {subject.next_sequence}, "
            f"found {header.base_sequence}"
        )

    def apply(self, segment: Segment, header: FrameHeader, payload: memoryview) -> None:
        """Apply a whole frame of any kind."""
        state, kind = self.state, header.kind
        if header.version > VERSION or kind not in KIND_NAMES:
            raise StartError(
                f"{segment.path}: the frame at position {header.position} has format version "
                f"{header.version}, kind {kind}: it was written by a newer Kumquat"
            )
        segment.newest_store_time = max(segment.newest_store_time, header.store_time)
        self.known_synced = max(self.known_synced, header.synced_end)
        if header.position >= self._synced_end:
            self._new_rows += ROW.pack(*row_of(header))
        if kind == MESSAGES:
            self._apply_messages(segment, header, payload)
        elif kind in DELAYED:
            self._apply_delayed(header, payload)
        elif kind == SETTLES:
            self._apply_settles(segment, header, payload)
        elif kind == SEGMENT_START:
            segment.started = header.store_time
            next_id, cluster_id = parse_segment_start(payload)
            state.start_segment(segment, header.base_sequence, next_id, cluster_id)
        elif kind == SUBJECT_STATE:
            state.restored(header.subject_id, header.base_sequence, parse_subject_state(payload))
        elif kind == SUBJECT_CREATED:
            state.created(header.subject_id, parse_subject_state(payload))
        elif kind == PRODUCER_IDS:
            state.producer_ceiling = max(state.producer_ceiling, header.base_sequence)
        elif kind == PREAMBLE_END:
            segment.preamble_complete = True
            segment.preamble_end = header.end
            for each in state.subjects:
                self._touch(each)
        elif (subject := state.subjects.by_id.get(header.subject_id)) is not None:
            if kind == SUBJECT_DELETED:
                state.deleted(subject)
                self._tell_deleted(header)
            elif kind == EARLIEST_RAISED:
                state.raised(subject, header.base_sequence)

    def _apply_messages(self, segment: Segment, header: FrameHeader, payload: memoryview) -> None:
        subject = self.state.subjects.by_id.get(header.subject_id)
        base = header.base_sequence
        if subject is None and self.indexing:
            subject = self._placeholder(header)
        if subject is None:
            self._misfit(segment, header, f"messages of unknown subject {header.subject_id}")
            return
        if base < subject.next_sequence:
            wrong = f"expected sequence {subject.next_sequence}, found {base}"
            self._misfit(segment, header, f"{subject.name!r}: {wrong}")
            return
        self._touch(subject)
        head = read_head(payload)
        self.state.messages(
            subject, header.position, header.length, base, header.sequences, head.max_timestamp
        )
        if head.producer_id >= 0:
            last = last_of(head.base_sequence, header.sequences)
            batch = ProducerBatch(head.base_sequence, last, base, header.store_time, 0)
            self.state.produced(subject, head.producer_id, head.producer_epoch, batch)

    def _touch(self, subject: Subject) -> None:
        """The segment holds something of a subject. If the frame with its state is lost, what the segment
        before holds of it belongs to that one all the same."""
        if subject.generation != self.state.generation:
            self.state.touch(subject)

    def _placeholder(self, header: FrameHeader) -> Subject:
        """A subject that nothing readable in the segment tells of: its batches say who it is."""
        subject_id = header.subject_id
        subject = self.state.subjects.add(
            subject_id, subject_id.to_bytes(16, "big"), f"(subject {subject_id})"
        )
        subject.next_sequence = header.base_sequence
        self.state.touch(subject)
        return subject

    def _misfit(self, segment: Segment, header: FrameHeader, wrong: str) -> None:
        self.report.add(segment, header.position, wrong)
        self.report.reaches(header.end)

    def _apply_delayed(self, header: FrameHeader, payload: memoryview) -> None:
        subject = self.state.subjects.by_id.get(header.subject_id)
        if subject is not None and header.kind in (PARKED, CANCEL):
            producer_id, epoch, first, count = parse_origin(payload)
            if producer_id >= 0:
                last = last_of(first, count)
                batch = ProducerBatch(first, last, -1, header.store_time, 0)
                self.state.produced(subject, producer_id, epoch, batch)
        listener = self._listener
        if listener is not None and header.position >= listener.replay_from:
            listener.apply(header.kind, header.subject_id, header.position, payload)

    def _apply_settles(self, segment: Segment, header: FrameHeader, payload: memoryview) -> None:
        if not self._wants_settles(header.position):
            return
        assert self._settles is not None
        try:
            self._settles.settled(settles_of(payload), header.end)
        except UnknownItem as unknown:
            raise StartError(
                f"{segment.path}: the frame at position {header.position} holds {unknown}: it was "
                "written by a newer Kumquat"
            ) from unknown

    def _wants_settles(self, position: int) -> bool:
        since = self._settles.replay_from if self._settles is not None else None
        return since is not None and position >= since

    def _tell_deleted(self, header: FrameHeader) -> None:
        if self._listener is not None and header.position >= self._listener.replay_from:
            self._listener.subject_deleted(header.subject_id, header.end)

    def unreadable(self, segment: Segment, frame: Row, payload: memoryview) -> None:
        """A frame that is known to be there cannot be read. StartError: nothing goes without it."""
        known = frame.subject_id in self.state.subjects.by_id
        if frame.kind in (SUBJECT_CREATED, SUBJECT_STATE) and self._forgiving and not known:
            raise _refused(segment, frame, "no older segment tells of that subject")
        if frame.kind == SETTLES and self._wants_settles(frame.position):
            raise _refused(segment, frame, "what it settles must not become a message (again)")
        listener = self._listener
        if frame.kind not in DELAYED or listener is None or frame.position < listener.replay_from:
            self.damaged(segment, frame, payload)
            return
        if frame.kind != PARKED:
            raise _refused(segment, frame, "what it tells of must not be delivered (again)")
        listener.unreadable(frame.kind, frame.subject_id, frame.position, frame.length)
        log.error(
            "%s: the messages for later at position %d wait until the disk can read them. %s",
            segment.path,
            frame.position,
            what_to_do(segment.path),
        )

    def damaged(self, segment: Segment, frame: Row, payload: memoryview) -> None:
        """A frame that is known to have been there is not whole. Where only its header is bad, and the
        checkpoint's row stands in for that, nothing is lost."""
        state = self.state
        state.subjects.next_id = max(state.subjects.next_id, frame.subject_id + 1)
        if frame.kind == MESSAGES and damage(payload, frame.base_sequence) is None:
            self._apply_messages(segment, _header_of(frame, segment.newest_store_time), payload)
        elif frame.kind == MESSAGES:
            subject = state.subjects.by_id.get(frame.subject_id)
            if subject is not None and frame.base_sequence >= subject.next_sequence:
                self.report.lost(subject.name, frame.base_sequence, frame.sequences)
                self._touch(subject)
                state.messages(
                    subject, frame.position, frame.length, frame.base_sequence, frame.sequences, -1
                )
        elif frame.kind in DELAYED:
            if self._listener is not None and frame.position >= self._listener.replay_from:
                self._listener.damaged(frame.kind, frame.subject_id, frame.position, frame.length)
        elif frame.kind == SETTLES:
            if self._settles is not None and self._wants_settles(frame.position):
                self._settles.damaged(frame.subject_id, frame.position, frame.length)
        elif frame.kind in _BARE:
            self.apply(segment, _header_of(frame, segment.newest_store_time), payload)
        else:
            self.needs_state(segment, KIND_NAMES.get(frame.kind, str(frame.kind)))
            if frame.kind == SEGMENT_START:
                self.start_unread(segment, frame.base_sequence)

    def noted(self, rows: Iterable[IndexRow]) -> None:
        """Nothing of a segment can be read, and its index says where subjects stood at its end."""
        subjects = self.state.subjects
        for row in rows:
            subjects.next_id = max(subjects.next_id, row.subject_id + 1)
            subject = subjects.by_id.get(row.subject_id)
            if subject is not None and row.next_sequence > subject.next_sequence:
                lost = row.next_sequence - subject.next_sequence
                self.report.lost(subject.name, subject.next_sequence, lost)
                self.state.lost(subject, row.next_sequence)

    def start_unread(self, segment: Segment, ceiling: int = 0) -> None:
        """Begin a segment whose first frame cannot be read."""
        if segment not in self.state.segments:
            self.state.start_segment(segment, ceiling, 0, self.state.cluster_id)

    def needs_state(self, segment: Segment, what: str) -> None:
        """Something other than messages is lost. Unless `forgiving`, replay has to begin further back."""
        if not self._forgiving:
            raise PreambleDamaged(segment.path, what)


def _refused(segment: Segment, frame: Row, why: str) -> StartError:
    what = f"a frame ({KIND_NAMES[frame.kind]}) of subject {frame.subject_id} lies there, and {why}"
    return refusal(segment.path, frame.position, segment.base, what)


def _header_of(row: Row, store_time: int) -> FrameHeader:
    position, base_sequence, subject_id, length, sequences, kind = row
    return FrameHeader(
        VERSION, kind, subject_id, length, sequences, 0, base_sequence, store_time, position, 0
    )


def row_of(header: FrameHeader) -> Row:
    return Row(
        header.position,
        header.base_sequence,
        header.subject_id,
        header.length,
        header.sequences,
        header.kind,
    )
