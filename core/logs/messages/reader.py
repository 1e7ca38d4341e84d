"""Reading messages back, by sequence and by time.

The Locator (locator.py) says where the batches of a range lie. The reader gets their bytes: from the tail
when they are fresh, else from disk, where every batch is checked against its index entry and its CRC
before it is given out. With `nowait` only what is in memory is used, and WouldBlock is raised when that
is not enough; without, a read may run in any thread.

A batch that fails its check twice, or an entry that stands for lost sequences, raises CorruptMessage for
that subject and range. It is never skipped. That is a verdict on the data, and groups that share give
such messages up; so only bytes that were read may lead to it. When a file cannot be opened or read (no
descriptors, no memory, an error of the device), that is a StorageError: whoever asked asks again. With
`nowait` nothing is concluded at all: the thread that is asked instead looks for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kumquat.core.complaints import Complaints
from kumquat.core.errors import (
    CorruptMessage,
    OffsetOutOfRange,
    StorageError,
    WouldBlock,
)
from kumquat.core.logs.disk.buffers import Buffers
from kumquat.core.logs.disk.unreadable import is_damage
from kumquat.core.logs.messages.format import HEADER_SIZE, parse_header
from kumquat.core.logs.messages.locator import Entries, Locator
from kumquat.core.logs.messages.log import MessageLog
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
_BULK = 256 << 10
"""A reader who waited for the disk for this many bytes will most likely read on: the disk may read
ahead."""
_AHEAD, _MOST_AHEAD = 4, 16 << 20
"""How much it reads ahead: so many times the size of the read, up to this many bytes."""
_MOST_ALONG = 1 << 20
"""At most this many bytes of other subjects are read along with one run of batches."""


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
        self.locator = Locator(message_log)
        self.corrupt_reads = 0
        self.failed_reads = 0
        self._complaints = Complaints(log)

    # --- by sequence ---------------------------------------------------------------------------

    def read(
        self, subject: Subject, sequence: int, max_bytes: int, at_least_one: bool, *, nowait: bool
    ) -> list[Batch]:
        """Whole batches from the one that holds `sequence`, up to the high watermark."""
        readable_end = subject.readable_end
        if sequence == readable_end:
            return []
        if not subject.earliest <= sequence < readable_end:
            raise OffsetOutOfRange(
                f"{subject.name!r} holds sequences {subject.earliest} to {readable_end}, "
                f"not {sequence}"
            )
        entries, i = self._locate(subject, sequence, nowait)
        places: list[Place] = []
        size = 0
        for k in range(i, len(entries) // ENTRY):
            base, position, length = entries[k * ENTRY : k * ENTRY + 3]
            if base >= readable_end:
                break
            size += length
            if size > max_bytes and (places or not at_least_one):
                break
            if length == LOST and places:
                break
            places.append(Place(base, position, length))
        return self._load(subject, places, nowait)

    def _locate(self, subject: Subject, sequence: int, nowait: bool) -> tuple[Entries, int]:
        """The entries that hold a sequence, and which of them does."""
        entries, i = self.locator.find(subject, sequence, nowait)
        if i < 0:
            if nowait:
                raise WouldBlock
            if sequence < subject.earliest:
                raise self._gone(subject, sequence)
            why = "the segment that held it is gone or damaged"
            raise self._lost(subject, sequence, self.locator.next_base(subject, sequence), why)
        return entries, i

    def store_time(self, subject: Subject, sequence: int) -> int:
        """Blocks: when the batch was stored that holds a sequence: its frame says it."""
        entries, i = self._locate(subject, sequence, nowait=False)
        base, position, length = entries[i * ENTRY : i * ENTRY + 3]
        place, header = Place(base, position, length), memoryview(bytearray(HEADER_SIZE))
        segment = self._log.state.segment_of(position)
        at_header = place._replace(position=position - HEADER_SIZE)  # `_fill` reads behind one
        size = self._fill(subject, at_header, segment, header, nowait=False)
        parsed = parse_header(header[:size], 0, position)
        if isinstance(parsed, str):
            where = f"{segment.path}, position {position}"
            raise self._lost(subject, base, base + 1, f"{where}: {parsed}")
        return parsed.store_time

    # --- bytes ---------------------------------------------------------------------------------

    def load(self, subject: Subject, places: Sequence[Place]) -> list[Batch]:
        """Blocks: batches of a subject by their places; fewer where one behind the first is damaged."""
        return self._load(subject, places, nowait=False)

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
            end = self.locator.bounds(subject, place.base, nowait=False)[1]
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
        earliest, readable_end = subject.earliest, subject.readable_end
        for entries in self.locator.entries_since(subject, timestamp):
            for k, highest in enumerate(entries[3::ENTRY]):
                if highest < timestamp:
                    continue
                place = Place(*entries[k * ENTRY : k * ENTRY + 3])
                if place.base >= readable_end:
                    return None
                for record in self._records(subject, place):
                    if record.timestamp >= timestamp and earliest <= record.offset:
                        return record.timestamp, record.offset
        return None

    def max_timestamp(self, subject: Subject) -> tuple[int, int] | None:
        """Blocks: timestamp and sequence of the message with the highest timestamp."""
        earliest, readable_end = subject.earliest, subject.readable_end
        best: tuple[int, Place] | None = None
        for entries in self.locator.entries_since(subject, 0):
            for k in range(0, len(entries), ENTRY):
                place, highest = Place(*entries[k : k + 3]), entries[k + 3]
                if place.base >= readable_end:
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
        # A batch's highest timestamp is an upper bound: no record need have it.
        there = [r for r in self._records(subject, best[1]) if r.offset >= earliest]
        newest = max(there, key=lambda record: record.timestamp, default=None)
        return None if newest is None else (newest.timestamp, newest.offset)

    def _records(self, subject: Subject, place: Place) -> Iterator[Record]:
        batch = self._load(subject, [place], nowait=False)[0]
        return records_of(memoryview(batch), self._log.options.max_decompressed_bytes)
