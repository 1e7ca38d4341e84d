"""Finding batches: where they lie, by sequence, by time and by size. Nothing here reads a message.

The entries of a subject (base, position, length, highest timestamp of each batch) are in three places: in
the subject's own array for the active segment, in memory for a segment whose index file is being written,
else in the index files, found by bisection. An index file that is damaged is made again from its segment.

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
from kumquat.core.logs.messages.index import IndexDamaged, Indexes, Row, Rows
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.recovery.opening import rebuild_index
from kumquat.core.logs.messages.segment import Segment
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

    # --- by sequence ---------------------------------------------------------------------------

    def bounds(self, subject: Subject, sequence: int, *, nowait: bool) -> tuple[int, int]:
        """Where the batch that holds a sequence begins and ends, whether or not it can be read. Where no
        batch holds it: itself, and where the next one begins."""
        entries, i = self.find(subject, sequence, nowait)
        if i < 0:
            if nowait:
                raise WouldBlock
            return sequence, self.next_base(subject, sequence)
        base, following = entries[i * ENTRY], (i + 1) * ENTRY
        if following < len(entries):
            return base, entries[following]
        for segment in list(self._log.state.segments):
            end = segment.rows.get(subject.id, 0)
            if segment.unindexed is None:
                row = self.rows(segment, nowait=nowait).find(subject.id)
                end = row.next_sequence if row is not None else 0
            if end > sequence:
                return base, end
        return base, subject.next_sequence

    def find(self, subject: Subject, sequence: int, nowait: bool) -> tuple[Entries, int]:
        """The entries that hold a sequence, and which of them does: -1 when none does."""
        entries = self._entries_in_memory(subject, sequence)
        if entries is None:
            entries = self._entries_on_disk(subject, sequence, nowait)
        if not entries:
            return entries, -1
        last = len(entries) // ENTRY - 1
        if sequence >= entries[last * ENTRY]:
            return entries, last
        return entries, bisect_right(range(last), sequence, key=lambda k: entries[k * ENTRY]) - 1

    def block(self, subject: Subject, sequence: int) -> Block:
        """Blocks: the batches that lie with the one that holds a sequence, in one segment. Where none holds
        it, a block without entries: what is missing there."""
        own = subject.entries  # first: they only ever move from here to a segment
        if own and sequence >= own[0]:
            return Block(None, own, own[0], subject.next_sequence)
        for segment in reversed(self._log.state.segments):
            ends, unindexed = segment.rows, segment.unindexed
            if unindexed is None:
                break
            held = unindexed.get(subject.id)
            if held and sequence >= held[0]:
                return Block(None, held, held[0], ends.get(subject.id, subject.next_sequence))
        sealed = [s for s in self._log.state.segments if s.unindexed is None]

        def next_sequence(i: int) -> int:
            row = self.rows(sealed[i]).find(subject.id)
            return row.next_sequence if row is not None else 0

        i = bisect_right(range(len(sealed)), sequence, key=next_sequence)
        begin = max(subject.earliest, next_sequence(i - 1) if i else 0)
        row = self.rows(sealed[i]).find(subject.id) if i < len(sealed) else None
        if row is None:
            return Block(None, array("q"), begin, self.next_base(subject, sequence))
        if not row.entries:
            return Block(None, array("q"), begin, row.next_sequence)
        entries = self._entries(sealed[i], row, nowait=False)
        if sequence < entries[0]:
            return Block(None, array("q"), begin, entries[0])
        return Block(sealed[i], entries, entries[0], row.next_sequence, row)

    def next_base(self, subject: Subject, sequence: int) -> int:
        """Blocks: where the first batch behind a sequence begins that no batch holds."""
        for entries in self.entries_since(subject, -1):
            if entries[len(entries) - ENTRY] > sequence:
                return next(base for base in entries[::ENTRY] if base > sequence)
        return subject.next_sequence

    def _entries_in_memory(self, subject: Subject, sequence: int) -> Entries | None:
        entries = subject.entries
        if entries and sequence >= entries[0]:
            return entries
        for segment in reversed(self._log.state.segments):
            unindexed = segment.unindexed
            if unindexed is None:
                return None
            found = unindexed.get(subject.id)
            if found and sequence >= found[0]:
                return found
        return None

    def _entries_on_disk(self, subject: Subject, sequence: int, nowait: bool) -> Entries:
        segments = [s for s in self._log.state.segments if s.unindexed is None]

        def next_sequence(i: int) -> int:
            row = self.rows(segments[i], nowait=nowait).find(subject.id)
            return row.next_sequence if row is not None else 0

        i = bisect_right(range(len(segments)), sequence, key=next_sequence)
        row = self.rows(segments[i], nowait=nowait).find(subject.id) if i < len(segments) else None
        if row is None or not row.entries:
            return array("q")
        return self._entries(segments[i], row, nowait)

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
        high_watermark = subject.high_watermark
        for base, end, _, highest in self._batches(subject):
            if end > subject.earliest and (highest >= timestamp or highest < 0):
                return max(subject.earliest, min(base, high_watermark))
        return high_watermark

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
                    return array("q")
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
            rebuild_index(self._log.files, self._log.options, segment)
        except OSError as error:
            why = f"{path} cannot be made again: {error}"
            now = monotonic()
            if now - began > _COSTLY_SECONDS:
                self._not_rebuilt[segment.base] = (now + _TIMES_AS_LONG * (now - began), why)
            raise StorageError(why) from error
        finally:
            self.indexes.forget(segment)  # others may have opened the damaged one meanwhile
        self._not_rebuilt.pop(segment.base, None)
