"""The consume log of a sealed segment: for every subject, where its batches lie. Derived, and pooled.

One file a segment, whatever the number of subjects. Numbers are int64 in the machine's own byte order
(a file from the other kind of machine fails its magic and is made again):

    head      magic, segment base, segment end, newest store time, row count, entry count, CRC-32C of the
              rows, CRC-32C of the seven numbers before
    rows      one for each subject alive at the segment's end, sorted by subject id:
              subject id, next sequence, first entry, number of entries, their highest timestamp,
              their CRC-32C
    entries   base sequence, position, batch length, highest timestamp; grouped by subject

A row is there for every live subject, also for one that has no batch in this segment: so the segment that
holds a sequence is found by bisection over segments. A file that is missing, cut or damaged is found by
its checksums and made again from its segment. One that cannot be opened or read for another reason (no
descriptors, no memory) is not damaged: that is a StorageError, and passes.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from typing import NamedTuple, TypeVar

from crc32c import crc32c

from kumquat.core.errors import StorageError, WouldBlock
from kumquat.core.logs.disk.files import Files, write_file_atomically
from kumquat.core.logs.disk.unreadable import is_damage, read_patiently
from kumquat.core.logs.messages.segment import OpenFiles, Segment
from kumquat.core.logs.messages.subject import ENTRY

_MAGIC = int.from_bytes(b"KUMQIDX1", "little")
_HEAD_NUMBERS = 8
HEAD_SIZE = 8 * _HEAD_NUMBERS
ROW = 6
_ROW_SIZE = 8 * ROW
ENTRY_SIZE = 8 * ENTRY

Cached = TypeVar("Cached", "Rows", "memoryview[int]")


class IndexDamaged(Exception):
    """The file is missing, cut or does not match its checksums: make it again from the segment."""


class Head(NamedTuple):
    end: int
    newest_store_time: int
    rows: int
    entries: int
    rows_crc: int


class Row(NamedTuple):
    subject_id: int
    next_sequence: int
    first_entry: int
    entries: int
    max_timestamp: int
    entries_crc: int


class Rows:
    """The rows of one index, to be searched by subject."""

    def __init__(self, numbers: memoryview[int]) -> None:
        self._numbers = numbers
        self._count = len(numbers) // ROW
        self.nbytes = numbers.nbytes

    def __len__(self) -> int:
        return self._count

    def at(self, i: int) -> Row:
        return Row(*self._numbers[i * ROW : (i + 1) * ROW])

    def find(self, subject_id: int) -> Row | None:
        numbers = self._numbers
        i = bisect_left(range(self._count), subject_id, key=lambda k: numbers[k * ROW])
        if i < self._count and numbers[i * ROW] == subject_id:
            return self.at(i)
        return None


def pack_index(segment: Segment) -> bytes:
    """The index file of a segment from what is still held in memory for it."""
    assert segment.unindexed is not None
    entries: list[bytes] = []
    rows = array("q")
    first = 0
    for subject_id in sorted(segment.rows):
        own = segment.unindexed.get(subject_id)
        data, highest, count = b"", -1, 0
        if own is not None:
            data, highest, count = own.tobytes(), max(own[3::ENTRY]), len(own) // ENTRY
        rows.extend((subject_id, segment.rows[subject_id], first, count, highest, crc32c(data)))
        entries.append(data)
        first += count
    packed_rows = rows.tobytes()
    head = array("q", (_MAGIC, segment.base, segment.end, segment.newest_store_time))
    head.extend((len(segment.rows), first, crc32c(packed_rows)))
    head.append(crc32c(head.tobytes()))
    return b"".join((head.tobytes(), packed_rows, *entries))


def write_index(files: Files, segment: Segment) -> None:
    """Durable when it returns. From then on the entries need not be in memory."""
    write_file_atomically(files, segment.index_path, pack_index(segment))


def parse_head(data: bytes, base: int, size: int, end: int | None = None) -> Head:
    """The head, if it is whole, about the segment at `base` (up to `end`), and fits a file of `size`
    bytes."""
    if len(data) < HEAD_SIZE:
        raise IndexDamaged(f"{size} bytes, the head alone is {HEAD_SIZE}")
    numbers = array("q", data[:HEAD_SIZE])
    magic, found_base, found_end, newest, rows, entries, rows_crc, crc = numbers
    if magic != _MAGIC:
        raise IndexDamaged(f"expected magic {_MAGIC:#x}, found {magic:#x}")
    if crc != crc32c(data[: HEAD_SIZE - 8]):
        raise IndexDamaged(f"expected head CRC {crc:#x}, found {crc32c(data[: HEAD_SIZE - 8]):#x}")
    if found_base != base:
        raise IndexDamaged(f"it is about the segment at {found_base}, not {base}")
    if end is not None and found_end != end:
        raise IndexDamaged(f"it ends at position {found_end}, the segment at {end}")
    expected = HEAD_SIZE + rows * _ROW_SIZE + entries * ENTRY_SIZE
    if size != expected:
        raise IndexDamaged(f"expected {expected} bytes, found {size}")
    return Head(found_end, newest, rows, entries, rows_crc)


def load_head(files: Files, segment: Segment, *, any_end: bool = False) -> Head:
    """`any_end`: where the segment ends is not known from elsewhere."""
    try:
        fd = files.open(segment.index_path, readonly=True)
        try:
            size = files.size(fd)
            head = read_patiently(files, fd, min(size, HEAD_SIZE), 0)
        finally:
            files.close(fd)
    except OSError as error:
        raise _not_read(segment, error) from error
    return parse_head(head, segment.base, size, None if any_end else segment.end)


def load_rows(files: Files, segment: Segment, head: Head) -> Rows:
    """The rows of an index whose head was loaded."""
    try:
        fd = files.open(segment.index_path, readonly=True)
        try:
            data = read_patiently(files, fd, head.rows * _ROW_SIZE, HEAD_SIZE)
        finally:
            files.close(fd)
    except OSError as error:
        raise _not_read(segment, error) from error
    return _checked_rows(data, head)


def _checked_rows(data: bytes, head: Head) -> Rows:
    if crc32c(data) != head.rows_crc:
        raise IndexDamaged(f"expected rows CRC {head.rows_crc:#x}, found {crc32c(data):#x}")
    return Rows(memoryview(data).cast("q"))


def _not_read(segment: Segment, error: OSError) -> IndexDamaged | StorageError:
    if isinstance(error, FileNotFoundError) or is_damage(error):
        return IndexDamaged(str(error))
    return StorageError(f"{segment.index_path} cannot be read for now: {error}")


class Indexes:
    """Rows and entries of sealed segments, read on demand and kept while there is room.

    With `nowait` only what is in memory is given, else WouldBlock is raised. Any thread may ask.
    """

    def __init__(self, open_files: OpenFiles, limit: int = 64 << 20) -> None:
        self._open_files = open_files
        self._limit = limit
        self._cache: OrderedDict[tuple[int, int], Rows | memoryview[int]] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    def rows(self, segment: Segment, *, nowait: bool) -> Rows:
        found = self._cached((segment.base, 0))
        if isinstance(found, Rows):
            return found
        if nowait:
            raise WouldBlock
        return self._keep((segment.base, 0), self._load_rows(segment))

    def entries(self, segment: Segment, row: Row, *, nowait: bool) -> memoryview[int]:
        found = self._cached((segment.base, row.subject_id))
        if isinstance(found, memoryview):
            return found
        if nowait:
            raise WouldBlock
        return self._keep((segment.base, row.subject_id), self._load_entries(segment, row))

    def forget(self, segment: Segment) -> None:
        with self._lock:
            for key in [key for key in self._cache if key[0] == segment.base]:
                self._held -= self._cache.pop(key).nbytes
        self._open_files.forget(segment.index_path)
        self._open_files.forget(segment.keys_path)

    def _load_rows(self, segment: Segment) -> Rows:
        files = self._open_files.files
        try:
            with self._open_files.pinned(segment.index_path) as fd:
                size = files.size(fd)
                first = read_patiently(files, fd, min(size, HEAD_SIZE), 0)
                head = parse_head(first, segment.base, size, segment.end)
                data = read_patiently(files, fd, head.rows * _ROW_SIZE, HEAD_SIZE)
        except OSError as error:
            raise _not_read(segment, error) from error
        return _checked_rows(data, head)

    def _load_entries(self, segment: Segment, row: Row) -> memoryview[int]:
        start = HEAD_SIZE + len(self.rows(segment, nowait=False)) * _ROW_SIZE
        try:
            with self._open_files.pinned(segment.index_path) as fd:
                size, at = row.entries * ENTRY_SIZE, start + row.first_entry * ENTRY_SIZE
                data = read_patiently(self._open_files.files, fd, size, at)
        except OSError as error:
            raise _not_read(segment, error) from error
        if crc32c(data) != row.entries_crc:
            raise IndexDamaged(
                f"subject {row.subject_id}: expected entries CRC {row.entries_crc:#x}, "
                f"found {crc32c(data):#x}"
            )
        return memoryview(data).cast("q")

    def _cached(self, key: tuple[int, int]) -> Rows | memoryview[int] | None:
        with self._lock:
            found = self._cache.get(key)
            if found is not None:
                self._cache.move_to_end(key)
            return found

    def _keep(self, key: tuple[int, int], value: Cached) -> Cached:
        with self._lock:
            if key not in self._cache:
                self._cache[key] = value
                self._held += value.nbytes
            while self._held > self._limit and len(self._cache) > 1:
                self._held -= self._cache.popitem(last=False)[1].nbytes
        return value
