"""Finding batches: where they lie, by sequence, by time and by size. Nothing here reads a message.

The entries of a subject (base, position, length, highest timestamp of each batch) are in three places: in
the subject's own array for the active segment, in memory for a segment that has no index file yet, else in
the index files, found by bisection. Segments with and without an index file lie in any order: a write of
one file may fail, and later ones succeed. An index file that is damaged is made again from its segment.

"No batch holds this sequence" makes messages count as lost, so no index is believed in that: the segments
around the place are read first (`_confirm`). What cannot be read then is a StorageError.

With `nowait` only what is in memory is used, and WouldBlock is raised when that is not enough; without, it
may run in any thread.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from threading import Lock
from time import monotonic
from typing import NamedTuple, TypeAlias

from kumquat.core.complaints import Complaints
from kumquat.core.errors import StorageError, WouldBlock
from kumquat.core.logs.messages.index import IndexDamaged, Indexes, Row, Rows, write_index
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.recovery.opening import indexed_again
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.state import LOST
from kumquat.core.logs.messages.subject import ENTRY, Subject

log = logging.getLogger("kumquat.log")

_COSTLY_SECONDS, _TIMES_AS_LONG = 0.5, 10
"""When making an index has taken longer than this and failed, nobody tries again for ten times as long."""

Entries: TypeAlias = "array[int] | memoryview[int]"


class Block(NamedTuple):
    """Batches of a subject that lie in one segment, and the sequences that they span."""

    segment: Segment | None
    """None: it is not indexed yet."""
    entries: Entries
    begin: int
    end: int
    row: Row | None = None


def _number(entries: Entries, sequence: int) -> int:
    """Which of the entries that begin at or below a sequence holds it."""
    last = len(entries) // ENTRY - 1
    if sequence >= entries[last * ENTRY]:
        return last
    return bisect_right(range(last), sequence, key=lambda k: entries[k * ENTRY]) - 1


def _readable(entries: Entries) -> int:
    """How many entries stand for batches."""
    return sum(length != LOST for length in entries[2::ENTRY])


class Locator:
    def __init__(self, message_log: MessageLog) -> None:
        self._log = message_log
        self.indexes = Indexes(message_log.open_files)
        self._complaints = Complaints(log)
        self._not_rebuilt: dict[int, tuple[float, str]] = {}
        """Segments whose index could not be made: when to try again, and why."""
        self._rebuilding = Lock()
        self._rebuilt: dict[int, int] = {}
        """How many times the index of a segment was made."""
        self._confirmed: set[int] = set()
        """Segments that were read through: their indexes have all that can be read in them."""

    # --- by sequence ---------------------------------------------------------------------------

    def bounds(self, subject: Subject, sequence: int, *, nowait: bool) -> tuple[int, int]:
        """Where the batch that holds a sequence begins and ends, whether or not it can be read. Where no
        batch holds it: itself, and where the next one begins."""
        block = self._holding(subject, sequence, nowait)
        if block is None:
            if nowait:
                raise WouldBlock
            return sequence, self.next_base(subject, sequence)
        i = _number(block.entries, sequence)
        base, following = block.entries[i * ENTRY], (i + 1) * ENTRY
        return base, block.entries[following] if following < len(block.entries) else block.end

    def find(self, subject: Subject, sequence: int, nowait: bool) -> tuple[Entries, int]:
        """The entries that hold a sequence, and which of them does: -1 when none does."""
        block = self._holding(subject, sequence, nowait)
        if block is None:
            return array("q"), -1
        return block.entries, _number(block.entries, sequence)

    def block(self, subject: Subject, sequence: int) -> Block:
        """Blocks: the batches that lie with the one that holds a sequence, in one segment. Where none holds
        it, a block without entries: what is missing there."""
        found = self._holding(subject, sequence, nowait=False)
        if found is not None:
            return found
        ends = [self._end_in(segment, subject) for segment in list(self._log.state.segments)]
        begin = max((end for end in ends if end <= sequence), default=0)
        begin = max(subject.earliest, begin)
        return Block(None, array("q"), begin, self.next_base(subject, sequence))

    def next_base(self, subject: Subject, sequence: int) -> int:
        """Blocks: where the first batch behind a sequence begins that no batch holds."""
        for entries in self.entries_since(subject, -1):
            if entries[len(entries) - ENTRY] > sequence:
                return next(base for base in entries[::ENTRY] if base > sequence)
        return subject.next_sequence

    def _holding(self, subject: Subject, sequence: int, nowait: bool) -> Block | None:
        """The batches that lie with the one that holds a sequence; None when none holds it. Without
        `nowait` that is certain: the segments that might hold it were read."""
        found = self._look(subject, sequence, nowait)
        if nowait or (found is not None and self._is_certain(found, sequence)):
            return found
        if self._confirm(subject, sequence):
            found = self._look(subject, sequence, nowait)
        return found

    def _is_certain(self, found: Block, sequence: int) -> bool:
        """Whether an index file is not the only one to say that a sequence is lost."""
        lost = found.entries[_number(found.entries, sequence) * ENTRY + 2] == LOST
        return not lost or found.segment is None or found.segment.base in self._confirmed

    def _look(self, subject: Subject, sequence: int, nowait: bool) -> Block | None:
        found = self._look_in_memory(subject, sequence)
        return found or self._look_on_disk(subject, sequence, nowait)

    def _look_in_memory(self, subject: Subject, sequence: int) -> Block | None:
        own = subject.entries  # first: they only ever move from here to a segment
        if own and sequence >= own[0]:
            end = subject.next_sequence
            if subject.entries is own:
                return Block(None, own, own[0], end)
        for segment in reversed(self._log.state.segments):
            ends, unindexed = segment.rows, segment.unindexed  # in the order in which they go
            held = None if unindexed is None else unindexed.get(subject.id)
            if held and sequence >= held[0]:
                end = ends.get(subject.id, subject.next_sequence)
                if sequence < end:
                    return Block(None, held, held[0], end)
        return None

    def _look_on_disk(self, subject: Subject, sequence: int, nowait: bool) -> Block | None:
        """Among the segments that have an index file, wherever those lie that have none."""
        segments = [s for s in self._log.state.segments if s.unindexed is None]

        def next_sequence(i: int) -> int:
            row = self.rows(segments[i], nowait=nowait).find(subject.id)
            return row.next_sequence if row is not None else 0

        i = bisect_right(range(len(segments)), sequence, key=next_sequence)
        found = None
        if i < len(segments):
            found = self._look_in(segments[i], subject, sequence, nowait)
        if found is not None or nowait:
            return found
        # An index that lacks the subject misleads the bisection.
        i = next((k for k in range(len(segments)) if next_sequence(k) > sequence), i)
        return self._look_in(segments[i], subject, sequence, nowait) if i < len(segments) else None

    def _look_in(
        self, segment: Segment, subject: Subject, sequence: int, nowait: bool
    ) -> Block | None:
        """In a segment that has an index file, and ends above the sequence."""
        row = self.rows(segment, nowait=nowait).find(subject.id)
        if row is None or not row.entries:
            return None
        entries = self._entries(segment, row, nowait)
        if not entries or sequence < entries[0]:
            return None
        return Block(segment, entries, entries[0], row.next_sequence, row)

    def _end_in(self, segment: Segment, subject: Subject) -> int:
        """Blocks: the next sequence of a subject at a segment's end; 0 where the segment does not tell."""
        ends, unindexed = segment.rows, segment.unindexed
        if unindexed is not None:
            return ends.get(subject.id, 0)
        row = self.rows(segment).find(subject.id)
        return row.next_sequence if row is not None else 0

    # --- before a message counts as lost -------------------------------------------------------

    def _confirm(self, subject: Subject, sequence: int) -> bool:
        """Blocks: read the segments that would hold a sequence, whatever their indexes say. Gives whether
        an index knew less than its segment. Each segment is read once: its index is right then."""
        changed = False
        for segment in reversed(self._suspects(subject, sequence)):
            with self._rebuilding:
                if segment.base in self._confirmed:
                    continue
                try:
                    made, damaged = indexed_again(self._log.files, self._log.options, segment)
                    changed = self._improve(segment, made) or changed
                except (OSError, IndexDamaged) as error:
                    if segment not in self._log.state.segments:
                        continue  # retention took it meanwhile
                    path = segment.path
                    raise StorageError(
                        f"{path} cannot be read through for now, to see whether it holds sequence "
                        f"{sequence} of {subject.name!r}: {error}"
                    ) from error
                self._confirmed.add(segment.base)
            if subject.id not in made.rows and not damaged:
                break  # the subject was made later
        return changed

    def _suspects(self, subject: Subject, sequence: int) -> list[Segment]:
        """Blocks: sealed segments that would hold a sequence, if one does: from the last that ends below it
        to the first that ends above it, by their indexes."""
        segments = [s for s in list(self._log.state.segments) if s.unindexed is None]
        rows = [self.rows(segment).find(subject.id) for segment in segments]
        below = [i for i, row in enumerate(rows) if row and row.next_sequence <= sequence]
        above = [i for i, row in enumerate(rows) if row and row.next_sequence > sequence]
        first, last = max(below, default=0), min(above, default=len(segments) - 1)
        return segments[min(first, last) : max(first, last) + 1]

    def _improve(self, segment: Segment, made: Segment) -> bool:
        """Blocks: write an index that has all that the present one and the segment itself know; False when
        the present one has it all."""
        assert made.unindexed is not None
        rows, better = self.indexes.rows(segment, nowait=False), set(made.unindexed)
        for row in map(rows.at, range(len(rows))):
            known = self.indexes.entries(segment, row, nowait=False) if row.entries else array("q")
            if _readable(known) >= _readable(made.unindexed.get(row.subject_id, array("q"))):
                better.discard(row.subject_id)
                if known:
                    made.unindexed[row.subject_id] = array("q", known)
            made.rows[row.subject_id] = max(
                row.next_sequence, made.rows.get(row.subject_id, row.next_sequence)
            )
        if not better:
            return False
        path = segment.index_path
        self._complaints.error(
            path, f"{path} knows less than its segment, of {len(better)} subjects; it is made again"
        )
        write_index(self._log.files, made)
        self.indexes.forget(segment)
        return True

    # --- all of them ---------------------------------------------------------------------------

    def entries_since(self, subject: Subject, timestamp: int) -> Iterator[Entries]:
        """The entries of each segment that may hold a message not older, oldest segment first.

        The subject's own array is taken first: the loop may move it to a sealed segment meanwhile, and
        then it is found there too, by the same first position.
        """
        own = array("q", subject.entries or ())
        last_position = -1
        for segment in list(self._log.state.segments):
            entries = self._entries_of(segment, subject, timestamp)
            if entries:
                last_position = entries[1]
                yield entries
        if own and own[1] > last_position:
            yield own

    def _entries_of(self, segment: Segment, subject: Subject, timestamp: int) -> Entries | None:
        unindexed = segment.unindexed
        if unindexed is not None:
            return unindexed.get(subject.id)
        row = self.rows(segment).find(subject.id)
        if row is None or not row.entries or row.next_sequence <= subject.earliest:
            return None
        return self._entries(segment, row, nowait=False) if row.max_timestamp >= timestamp else None

    # --- by size and time ----------------------------------------------------------------------

    def retained_bytes(self, subject: Subject) -> int:
        """Blocks: the size of all batches that readers can still see."""
        return sum(length for _, end, length, _ in self._batches(subject) if end > subject.earliest)

    def sequence_keeping(self, subject: Subject, size: int) -> int:
        """Blocks: the highest sequence from which on at least `size` bytes of batches remain."""
        total = 0
        for entries in reversed(list(self.entries_since(subject, -1))):
            for k in range(len(entries) - ENTRY, -1, -ENTRY):
                total += entries[k + 2]
                if total >= size:
                    return max(subject.earliest, entries[k])
        return subject.earliest

    def sequence_since(self, subject: Subject, timestamp: int) -> int:
        """Blocks: the first sequence of the first batch whose highest timestamp is not older; the high
        watermark when all are older. A batch without a timestamp counts as young; so does what comes
        while this looks."""
        readable_end = subject.readable_end
        for base, end, _, highest in self._batches(subject):
            if end > subject.earliest and (highest >= timestamp or highest < 0):
                return max(subject.earliest, min(base, readable_end))
        return readable_end

    def _batches(self, subject: Subject) -> Iterator[tuple[int, int, int, int]]:
        """Base, end, length and highest timestamp of each batch, oldest first."""
        before: tuple[int, int, int] | None = None
        for entries in self.entries_since(subject, -1):
            for k in range(0, len(entries), ENTRY):
                base, _, length, highest = entries[k : k + ENTRY]
                if before is not None:
                    yield before[0], base, before[1], before[2]
                before = base, length, highest
        if before is not None:
            yield before[0], subject.next_sequence, before[1], before[2]

    # --- indexes -------------------------------------------------------------------------------

    def rows(self, segment: Segment, *, nowait: bool = False) -> Rows:
        try:
            return self.indexes.rows(segment, nowait=nowait)
        except IndexDamaged as damaged:
            self.rebuild(segment, damaged)
            with self._made(segment):
                return self.indexes.rows(segment, nowait=nowait)

    def entries(self, segment: Segment, row: Row) -> Entries:
        """Blocks: where the batches of a subject lie in a sealed segment."""
        return self._entries(segment, row, nowait=False)

    def _entries(self, segment: Segment, row: Row, nowait: bool) -> Entries:
        try:
            return self.indexes.entries(segment, row, nowait=nowait)
        except IndexDamaged as damaged:
            self.rebuild(segment, damaged)
            with self._made(segment):
                again = self.indexes.rows(segment, nowait=False).find(row.subject_id)
                if again is None:
                    return array("q")  # the segment was read: nothing of the subject can be
                return self.indexes.entries(segment, again, nowait=nowait)

    @contextmanager
    def _made(self, segment: Segment) -> Iterator[None]:
        """The index was just made: where it cannot be read, that is the disk."""
        try:
            yield
        except IndexDamaged as damaged:
            raise StorageError(
                f"{segment.index_path} cannot be read for now: {damaged}"
            ) from damaged

    def rebuild(self, segment: Segment, damaged: IndexDamaged) -> None:
        """Blocks: make an index again from its segment. One thread does it; others that need it meanwhile
        wait, and have it then."""
        rebuilt = self._rebuilt.get(segment.base, 0)
        with self._rebuilding:
            if self._rebuilt.get(segment.base, 0) == rebuilt:
                self._rebuild(segment, damaged)
                self._rebuilt[segment.base] = rebuilt + 1

    def _rebuild(self, segment: Segment, damaged: IndexDamaged) -> None:
        """Where that took long and failed it is not tried again at once: each reader would ask for it."""
        path, began = segment.index_path, monotonic()
        again_at, why = self._not_rebuilt.get(segment.base, (-inf, ""))
        if began < again_at:
            raise StorageError(why)
        self._complaints.error(path, f"{path}: {damaged}; making it again from the segment")
        try:
            write_index(
                self._log.files, indexed_again(self._log.files, self._log.options, segment)[0]
            )
        except OSError as error:
            why = f"{path} cannot be made again: {error}"
            now = monotonic()
            if now - began > _COSTLY_SECONDS:
                self._not_rebuilt[segment.base] = (now + _TIMES_AS_LONG * (now - began), why)
            raise StorageError(why) from error
        finally:
            self.indexes.forget(segment)  # others may have opened the damaged one meanwhile
        self._not_rebuilt.pop(segment.base, None)
