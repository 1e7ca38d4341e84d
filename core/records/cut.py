"""Some of the records of a stored batch, as a batch of its own, at other offsets.

A member that shares a subject is given records i…j of a batch under pull offsets. Deltas stay as they are,
so the new base offset is the wanted offset of record i minus i. Base offset and leader epoch lie outside
the batch's CRC: a whole batch costs a new head in front of a view of the old bytes. A part of an
uncompressed batch is the contiguous bytes of its records behind a head in which length, last delta, count
and CRC are written again. A compressed batch is inflated (to a bound), cut, and given uncompressed.

The leader epoch in pull space is -1, so that no client asks for truncation. Timestamps, the bit for log
append time and the producer's fields stay. The largest timestamp is then that of the whole batch, which
every reader accepts: under log append time it stands for each record, otherwise it is their upper bound.

A batch is cut many times while it is handed out. So `Cutter` remembers where its records begin, as far as
that was needed, and its inflated bytes; the least recently used batches are forgotten first. Where a record
begins is read from the length of the one before. Record number i has delta i; only if the batch has holes,
deltas are read too.

A batch may hold fewer records than it claims, or garbage behind some of them: nothing reads all records
when it is stored. Then those that are there are given, and `shortage` says how many there are.
"""

from __future__ import annotations

import struct
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict

from crc32c import crc32c

from kumquat.core.errors import InvalidRecord, WouldBlock
from kumquat.core.records.batch import (
    CODEC_MASK,
    CRC_FROM,
    HEAD_SIZE,
    LEAST_RECORD,
    OVERHEAD,
    STAMP,
    BatchHead,
    read_head,
)
from kumquat.core.records.compression import LIGHT, inflate
from kumquat.core.records.records import varint

NO_EPOCH = -1
HEAVY = 16 << 10
"""A compressed batch from this size on is inflated in a thread, a smaller one if it inflates to little."""
_MANY = 5_000
"""More records than these are not read on the event loop all at once."""

_UNSUMMED = struct.Struct(">qiibI")
_SUMMED = struct.Struct(">hiqqqhii")
assert (_UNSUMMED.size, _SUMMED.size) == (CRC_FROM, HEAD_SIZE - CRC_FROM)

_MOST_BATCHES = 64
_LEAST = 2 * (LEAST_RECORD - 1)
"""No record is shorter; doubled, as its length is written."""
_RUNS = (16, 128)
"""How many records are taken to have the size of the one before: first a few, then more, then all."""

Buffers = list[bytes | memoryview]


class CutPoints:
    """Where the records of one batch begin, as far as that was asked for."""

    __slots__ = ("_deltas", "_starts", "inflated", "shortage", "size", "why")

    def __init__(self, head: BatchHead, inflated: bytes | memoryview | None) -> None:
        self.inflated = inflated
        """The records of a compressed batch."""
        self.size = len(inflated or b"") + 4 * head.record_count
        """What is held for it, or will be."""
        self.shortage: int | None = None
        """How many records there are, once it is known that some are missing."""
        self.why = ""
        """Why no more."""
        self._starts = array("I", [0])
        dense = head.last_offset_delta == head.record_count - 1
        self._deltas: array[int] | None = None if dense else array("I")

    def find(
        self, data: bytes | memoryview, head: BatchHead, first_delta: int, last_delta: int
    ) -> tuple[int, int, int]:
        """Where the records with these deltas begin and end in the data, and how many they are."""
        if self._deltas is not None:
            self.scan_all(data, head)
            i = bisect_left(self._deltas, first_delta)
            j = bisect_right(self._deltas, last_delta)
            return self._starts[i], self._starts[j], j - i
        self._scan(data, last_delta + 1)
        i, j = (min(each, len(self._starts) - 1) for each in (first_delta, last_delta + 1))
        return self._starts[i], self._starts[j], j - i

    def scan_all(self, data: bytes | memoryview, head: BatchHead) -> None:
        """Find all records at once, where deltas have to be known."""
        if self._deltas is not None:
            self._scan(data, head.record_count)

    def last_in(self, first_delta: int, last_delta: int) -> int | None:
        """The highest of these deltas that a record has, as far as `find` has been there."""
        if self._deltas is None:
            last = last_delta if self.shortage is None else min(last_delta, self.shortage - 1)
            return last if last >= first_delta else None
        i = bisect_right(self._deltas, last_delta)
        return self._deltas[i - 1] if i and self._deltas[i - 1] >= first_delta else None

    def missing_from(self) -> int | None:
        """The delta from which on records are missing; None: as far as is known, there are all."""
        if self.shortage is None:
            return None
        if self._deltas is None:
            return self.shortage
        return self._deltas[-1] + 1 if self._deltas else 0

    def _scan(self, data: bytes | memoryview, count: int) -> None:
        """Find where the first `count` records end. The one loop over records: kept tight."""
        starts, deltas, end, at = self._starts, self._deltas, len(data), self._starts[-1]
        left, before, least = count + 1 - len(starts), 0, _LEAST
        if self.shortage is not None:
            return
        try:
            while left > 0:
                low = data[at]
                if low < 0x80:
                    doubled, begin = low, at + 1
                elif (high := data[at + 1]) < 0x80:
                    doubled, begin = low & 0x7F | high << 7, at + 2
                else:
                    length, begin = varint(data, at)
                    doubled = 2 * length if length >= 0 else 1
                following = begin + (doubled >> 1)
                if doubled < least or doubled & 1 or following > end:
                    raise IndexError
                if deltas is not None:
                    deltas.append(varint(data, varint(data, begin + 1)[1])[0])
                starts.append(following)
                left -= 1
                size = following - at
                if deltas is None and size == before and left >= _RUNS[0]:
                    alike = _alike(data, at, begin - at, size, min(left, (end - following) // size))
                    starts.extend(range(following + size, following + alike * size + 1, size))
                    following += alike * size
                    left -= alike
                before, at = size, following
        except (IndexError, OverflowError, InvalidRecord):
            there = len(starts) - 1
            what = "nothing" if starts[-1] == end else "no record"
            self.shortage, self.why = there, f"{what} follows {there} records of the batch"


def _alike(data: bytes | memoryview, at: int, prefix: int, size: int, most: int) -> int:
    """How many of the records behind the one at `at` have its size. Where one begins is certain as long
    as all before it have that size, so only their lengths, `prefix` bytes each, are compared, in steps of
    the size: that is the work of C."""
    alike = 0
    for upto in (*(n for n in _RUNS if n < most), most):
        found, begin = upto - alike, at + (alike + 1) * size
        for i in range(prefix):
            column = bytes(data[begin + i : begin + found * size : size])
            found -= len(column.lstrip(bytes((data[at + i],))))
        alike += found
        if alike < upto:
            break
    return alike


class Cutter:
    """Cuts batches, and remembers those that it has cut last. `load` may be called in any thread."""

    def __init__(self, max_decompressed_bytes: int, keep_bytes: int = 16 << 20) -> None:
        self._limit = max_decompressed_bytes
        self._keep_bytes = keep_bytes
        self._known: OrderedDict[tuple[int, int, int], CutPoints] = OrderedDict()
        """By subject id, base sequence and CRC."""
        self._held = 0
        self._lock = threading.Lock()

    def load(self, subject_id: int, batch: memoryview, most: int | None = None) -> CutPoints:
        """The cut points of a batch, kept for the next time. InvalidRecord, CorruptMessage or
        UnsupportedCompression: it cannot be inflated. WouldBlock: it inflates to more than `most`."""
        head = read_head(batch)
        key = (subject_id, head.base_offset, head.crc)
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
        codec = head.attributes & CODEC_MASK
        data = batch[HEAD_SIZE:]
        points = CutPoints(head, inflate(codec, data, self._limit, most) if codec else None)
        points.scan_all(data if points.inflated is None else points.inflated, head)
        with self._lock:
            replaced = self._known.pop(key, None)
            self._known[key] = points
            self._held += points.size - (replaced.size if replaced else 0)
            while len(self._known) > 1 and (
                self._held > self._keep_bytes or len(self._known) > _MOST_BATCHES
            ):
                self._held -= self._known.popitem(last=False)[1].size
        return points

    def load_nowait(self, subject_id: int, batch: memoryview) -> CutPoints:
        """The same; WouldBlock when that takes long, and `load` is to be called in a thread."""
        head = read_head(batch)
        if (subject_id, head.base_offset, head.crc) not in self._known:
            holed = head.last_offset_delta != head.record_count - 1
            compressed = head.attributes & CODEC_MASK and len(batch) >= HEAVY
            if compressed or (holed and head.record_count > _MANY):
                raise WouldBlock
        return self.load(subject_id, batch, LIGHT)

    def cut(
        self,
        subject_id: int,
        batch: memoryview,
        first_delta: int,
        last_delta: int,
        base_offset: int,
    ) -> Buffers:
        """The records with these deltas, both included; delta 0 is to have offset `base_offset`. Nothing
        when there are none in the batch."""
        if first_delta <= 0 and last_delta >= read_head(batch).last_offset_delta:
            return restamped(batch, base_offset)
        return part(self.load(subject_id, batch), batch, first_delta, last_delta, base_offset)


def cut(
    batch: memoryview,
    first_delta: int,
    last_delta: int,
    base_offset: int,
    max_decompressed_bytes: int = 64 << 20,
) -> Buffers:
    """Cut a batch once; see Cutter."""
    return Cutter(max_decompressed_bytes).cut(0, batch, first_delta, last_delta, base_offset)


def restamped(batch: memoryview, base_offset: int) -> Buffers:
    """The whole batch at another offset."""
    return [STAMP.pack(base_offset, len(batch) - OVERHEAD, NO_EPOCH), batch[STAMP.size :]]


def part(
    points: CutPoints, batch: memoryview, first_delta: int, last_delta: int, base_offset: int
) -> Buffers:
    """See Cutter.cut; `points` are those of this batch."""
    head = read_head(batch)
    data = batch[HEAD_SIZE:] if points.inflated is None else points.inflated
    first_delta, last_delta = max(first_delta, 0), min(last_delta, head.last_offset_delta)
    if first_delta > last_delta:
        return []
    start, end, count = points.find(data, head, first_delta, last_delta)
    if not count:
        return []
    records = memoryview(data)[start:end]
    summed = _SUMMED.pack(head.attributes & ~CODEC_MASK, last_delta, *head[7:12], count)
    length = HEAD_SIZE - OVERHEAD + len(records)
    crc = crc32c(records, crc32c(summed))
    return [_UNSUMMED.pack(base_offset, length, NO_EPOCH, head.magic, crc) + summed, records]
