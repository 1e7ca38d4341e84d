"""Reading messages back, by sequence and by time.

A read has two halves. *Locating* finds the batches of a range: in the subject's own array for the active
segment, in memory for a segment whose index is being written, else by bisection over the index files.
*Loading* gets their bytes: from the tail when they are fresh, else from disk, where every batch is
checked against its index entry and its CRC before it is given out. With `nowait` both only use what is
in memory and raise WouldBlock when that is not enough; without, they may run in any thread.

A batch that fails its check twice, or an entry that stands for lost sequences, raises CorruptMessage for
that subject and range. It is never skipped. That is a verdict on the data, and groups that share give
such messages up; so nothing but bytes that were read may lead to it. When a file cannot be opened or read
(no descriptors, no memory, an error of the device), that is a StorageError: whoever asked asks again.
With `nowait` nothing is concluded at all: the thread that is asked instead looks for itself.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import NamedTuple, TypeAlias

from kumquat.core.complaints import Complaints
from kumquat.core.errors import (
    CorruptMessage,
    OffsetOutOfRange,
    StorageError,
    WouldBlock,
)
from kumquat.core.logs.disk.buffers import Buffers
from kumquat.core.logs.disk.unreadable import is_damage
from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.logs.messages.index import IndexDamaged, Indexes, Row, Rows
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.recovery.opening import rebuild_index
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.state import LOST
from kumquat.core.logs.messages.subject import ENTRY, Subject
from kumquat.core.logs.messages.tail import Batch
from kumquat.core.records import Record, damage, records_of

log = logging.getLogger("kumquat.log")

_GAP = 1 << 16
"""Up to this many bytes of other subjects between two batches are read along with them, from disk."""
_GAP_IN_MEMORY = 1 << 12
"""The same for what is in the page cache: there a second call is cheaper than copying more."""
_COSTLY_SECONDS, _TIMES_AS_LONG = 0.5, 10
"""After an index could not be made in so much time, nobody tries for so many times as long."""
_BULK = 256 << 10
"""Who waited for the disk for so many bytes most likely reads on: the disk may go ahead."""
_AHEAD, _MOST_AHEAD = 4, 16 << 20
"""By how many times as much, and how many bytes at the most."""
_MOST_ALONG = 1 << 20
"""At most so many bytes of others are read along with one run of batches."""

Entries: TypeAlias = "array[int] | memoryview[int]"


class Place(NamedTuple):
    """Where a batch lies."""

    base: int
    position: int
    length: int


class Reader:
    def __init__(self, message_log: MessageLog) -> None:
        self._log = message_log
        self._open_files = message_log.open_files
        self._files = message_log.files
        self._buffers = Buffers()
        self.indexes = Indexes(message_log.open_files)
        self.corrupt_reads = 0
        self.failed_reads = 0
        self._complaints = Complaints(log)
        self._not_rebuilt: dict[int, tuple[float, str]] = {}
        """Segments whose index could not be made: when to try again, and why."""

    # --- by sequence ---------------------------------------------------------------------------

    def read(
        self, subject: Subject, sequence: int, max_bytes: int, at_least_one: bool, *, nowait: bool
    ) -> list[Batch]:
        """Whole batches from the one that holds `sequence`, up to the high watermark."""
        high_watermark = subject.high_watermark
        if sequence == high_watermark:
            return []
        if not subject.earliest <= sequence < high_watermark:
            raise OffsetOutOfRange(
                f"{subject.name!r} holds sequences {subject.earliest} to {high_watermark}, "
                f"not {sequence}"
            )
        entries, i = self._locate(subject, sequence, nowait)
        places: list[Place] = []
        size = 0
        for k in range(i, len(entries) // ENTRY):
            base, position, length = entries[k * ENTRY : k * ENTRY + 3]
            if base >= high_watermark:
                break
            size += length
            if size > max_bytes and (places or not at_least_one):
                break
            if length == LOST and places:
                break
            places.append(Place(base, position, length))
        return self._load(subject, places, nowait)

    def bounds(self, subject: Subject, sequence: int, *, nowait: bool) -> tuple[int, int]:
        """Where the batch that holds a sequence begins and ends, whether or not it can be read. Where no
        batch holds it: itself, and where the next one begins."""
        entries, i = self._find(subject, sequence, nowait)
        if i < 0:
            if nowait:
                raise WouldBlock
            return sequence, self._next_base(subject, sequence)
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

    def _locate(self, subject: Subject, sequence: int, nowait: bool) -> tuple[Entries, int]:
        """The entries that hold a sequence, and which of them does."""
        entries, i = self._find(subject, sequence, nowait)
        if i < 0:
            if nowait:
                raise WouldBlock
            if sequence < subject.earliest:
                raise self._gone(subject, sequence)
            why = "the segment that held it is gone or damaged"
            raise self._lost(subject, sequence, self._next_base(subject, sequence), why)
        return entries, i

    def _find(self, subject: Subject, sequence: int, nowait: bool) -> tuple[Entries, int]:
        """As `_locate`; -1 when no batch holds it."""
        entries = self._entries_in_memory(subject, sequence)
        if entries is None:
            entries = self._entries_on_disk(subject, sequence, nowait)
        if not entries:
            return entries, -1
        last = len(entries) // ENTRY - 1
        if sequence >= entries[last * ENTRY]:
            return entries, last
        return entries, bisect_right(range(last), sequence, key=lambda k: entries[k * ENTRY]) - 1

    def _next_base(self, subject: Subject, sequence: int) -> int:
        """Blocks: where the first batch behind a sequence begins that no batch holds."""
        for entries in self._entries_since(subject, -1):
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

    # --- indexes -------------------------------------------------------------------------------

    def rows(self, segment: Segment, *, nowait: bool = False) -> Rows:
        try:
            return self.indexes.rows(segment, nowait=nowait)
        except IndexDamaged as damaged:
            self.rebuild(segment, damaged)
            with self._made(segment):
                return self.indexes.rows(segment, nowait=nowait)

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
        """Blocks: make an index again from its segment. Where that took long and failed it is not tried
        again at once: each reader would ask for it."""
        path, began = segment.index_path, monotonic()
        again_at, why = self._not_rebuilt.get(segment.base, (-inf, ""))
        if began < again_at:
            raise StorageError(why)
        self._complaints.error(path, f"{path}: {damaged}; making it again from the segment")
        self.indexes.forget(segment)
        try:
            rebuild_index(self._files, self._log.options, segment)
        except OSError as error:
            why = f"{path} cannot be made again: {error}"
            now = monotonic()
            if now - began > _COSTLY_SECONDS:
                self._not_rebuilt[segment.base] = (now + _TIMES_AS_LONG * (now - began), why)
            raise StorageError(why) from error
        self._not_rebuilt.pop(segment.base, None)

    # --- bytes ---------------------------------------------------------------------------------

    def _load(self, subject: Subject, places: Sequence[Place], nowait: bool) -> list[Batch]:
        found: list[Batch] = []
        tail = self._log.tail.get
        i = 0
        while i < len(places):
            batch = tail(places[i].position)
            if batch is not None:
                found.append(batch)
                i += 1
                continue
            run = self._run(places, i, _GAP_IN_MEMORY if nowait else _GAP)
            found += self._read_run(subject, places[i : i + run], nowait, found)
            i += run
        return found

    def _run(self, places: Sequence[Place], i: int, most: int) -> int:
        """How many batches from the i-th on lie close together on disk: they are read at once."""
        run, along = 1, 0
        while i + run < len(places):
            before, this = places[i + run - 1], places[i + run]
            gap = this.position - (before.position + HEADER_SIZE + before.length)
            along += gap
            if not 0 <= gap <= most or along > _MOST_ALONG:
                break
            if self._log.tail.get(this.position) is not None:
                break
            run += 1
        return run

    def _read_run(
        self, subject: Subject, places: Sequence[Place], nowait: bool, before: list[Batch]
    ) -> list[Batch]:
        first, last = places[0], places[-1]
        start = first.position + HEADER_SIZE
        try:
            buffer = self._buffers.take(last.position + HEADER_SIZE + last.length - start)
        except MemoryError as error:
            raise StorageError(f"no memory to read {subject.name!r} at {first.base}") from error
        sparse = len(buffer) > 2 * sum(place.length for place in places)
        segment = self._log.state.segment_of(first.position)
        if first.position < segment.base:
            raise self._gone(subject, first.base)
        size = self._fill(subject, first, segment, buffer, nowait)
        if size < len(buffer):
            if nowait:
                raise WouldBlock
            buffer = buffer[:size]  # behind that it holds what was read before
        found: list[Batch] = []
        for place in places:
            at = place.position + HEADER_SIZE - start
            batch = buffer[at : at + place.length]
            if damage(batch, place.base) is not None:
                if found or before:
                    break
                batch = self._read_again(subject, place, segment, nowait)
            # A view would keep all that was read along for as long as the client takes its answer.
            found.append(bytes(batch) if sparse else batch)
        return found

    def _fill(
        self, subject: Subject, first: Place, segment: Segment, buffer: memoryview, nowait: bool
    ) -> int:
        """Read into the buffer from where the first batch lies; how many bytes there were."""
        at = first.position + HEADER_SIZE - segment.base
        try:
            with self._open_files.pinned(segment.path) as fd:
                size = self._files.preadv_into(fd, buffer, at, nowait=nowait)
                if not nowait and size >= _BULK:
                    self._files.expect(fd, at + size, min(_AHEAD * size, _MOST_AHEAD))
        except OSError as error:
            if nowait:
                raise WouldBlock from error
            if first.position < self._log.state.segments[0].base:
                raise self._gone(subject, first.base) from error
            raise self._failed(subject, first, segment, error) from error
        return size

    def _read_again(
        self, subject: Subject, place: Place, segment: Segment, nowait: bool
    ) -> memoryview:
        """A batch whose bytes were wrong when they were read among others, by itself."""
        if nowait:
            raise WouldBlock
        batch = memoryview(bytearray(place.length))
        batch = batch[: self._fill(subject, place, segment, batch, nowait=False)]
        bad = damage(batch, place.base)
        if bad is not None:
            end = self.bounds(subject, place.base, nowait=False)[1]
            where = f"{segment.path}, position {place.position}"
            raise self._lost(subject, place.base, end, f"{where}: {bad}")
        return batch

    def _gone(self, subject: Subject, sequence: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(f"{subject.name!r}: sequence {sequence} was deleted meanwhile")

    def _lost(self, subject: Subject, sequence: int, end: int, why: str) -> CorruptMessage:
        self.corrupt_reads += 1
        text = f"{subject.name!r} cannot be read at sequence {sequence}: {why}"
        self._complaints.error(
            (subject.id, sequence),
            f"{text}. {end - sequence} messages are damaged. A group that stops there goes on when you "
            f"commit an offset past {end - 1} for it",
        )
        return CorruptMessage(text)

    def _failed(
        self, subject: Subject, place: Place, segment: Segment, error: OSError
    ) -> StorageError:
        """The machine's trouble, which says nothing about the messages."""
        self.failed_reads += 1
        text = (
            f"{subject.name!r} cannot be read at sequence {place.base} for now: {segment.path}: "
            f"{error.strerror or error}"
        )
        advice = "check the disk" if is_damage(error) else "nothing is lost"
        self._complaints.error((subject.id, error.errno), f"{text}. Readers ask again; {advice}")
        return StorageError(text)

    # --- by time -------------------------------------------------------------------------------

    def offset_for_timestamp(self, subject: Subject, timestamp: int) -> tuple[int, int] | None:
        """Blocks: timestamp and sequence of the first message that is not older."""
        earliest, high_watermark = subject.earliest, subject.high_watermark
        for entries in self._entries_since(subject, timestamp):
            for k, highest in enumerate(entries[3::ENTRY]):
                if highest < timestamp:
                    continue
                place = Place(*entries[k * ENTRY : k * ENTRY + 3])
                if place.base >= high_watermark:
                    return None
                for record in self._records(subject, place):
                    if record.timestamp >= timestamp and earliest <= record.offset:
                        return record.timestamp, record.offset
        return None

    def max_timestamp(self, subject: Subject) -> tuple[int, int] | None:
        """Blocks: timestamp and sequence of the message with the highest timestamp."""
        earliest, high_watermark = subject.earliest, subject.high_watermark
        best: tuple[int, Place] | None = None
        for entries in self._entries_since(subject, 0):
            for k in range(0, len(entries), ENTRY):
                place, highest = Place(*entries[k : k + 3]), entries[k + 3]
                if place.base >= high_watermark:
                    break
                if place.base < earliest and highest > (best[0] if best else -1):
                    own = [
                        r.timestamp for r in self._records(subject, place) if r.offset >= earliest
                    ]
                    highest = max(own, default=-1)
                if highest > (best[0] if best else -1):
                    best = (highest, place)
        if best is None:
            return None
        for record in self._records(subject, best[1]):
            if record.timestamp == best[0] and record.offset >= earliest:
                return record.timestamp, record.offset
        return None

    def _records(self, subject: Subject, place: Place) -> Iterator[Record]:
        batch = self._load(subject, [place], nowait=False)[0]
        return records_of(memoryview(batch), self._log.options.max_decompressed_bytes)

    def _entries_since(self, subject: Subject, timestamp: int) -> Iterator[Entries]:
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

    # --- by size -------------------------------------------------------------------------------

    def retained_bytes(self, subject: Subject) -> int:
        """Blocks: the size of all batches that readers can still see."""
        return sum(length for _, end, length, _ in self._batches(subject) if end > subject.earliest)

    def sequence_keeping(self, subject: Subject, size: int) -> int:
        """Blocks: the highest sequence from which on at least `size` bytes of batches remain."""
        total = 0
        for entries in reversed(list(self._entries_since(subject, -1))):
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
        for entries in self._entries_since(subject, -1):
            for k in range(0, len(entries), ENTRY):
                base, _, length, highest = entries[k : k + ENTRY]
                if before is not None:
                    yield before[0], base, before[1], before[2]
                before = base, length, highest
        if before is not None:
            yield before[0], subject.next_sequence, before[1], before[2]
