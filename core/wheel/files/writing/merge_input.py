"""What merge.py reads: the files that are merged, each from its first row to its last.

Rows may be tiny, with a few entries each, or larger than memory. So a file is read through a window that is
many rows wide, and a row is returned in pieces of a few thousand entries or 256 KiB.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter

from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.format import (
    ENTRY,
    ENTRY_SIZE,
    LENGTH,
    MESSAGE,
    TOMBSTONE,
    Row,
)

_ENTRIES = 2048
_BYTES = 256 << 10
_AHEAD = 512 << 10

Element = tuple[int, int, int, bytes]
"""An entry that is being merged: due, schedule id, its rank among those with the same two (older files
first, and in one file the tombstone first, since it is about older files), record."""


class _Window:
    """The part of a file that is in memory; `unit`: bytes of one item."""

    def __init__(self, read: Callable[[int, int], bytes], end: int, unit: int) -> None:
        self._read = read
        self._end = end
        self._unit = unit
        self._first = self._until = 0
        self._data = b""

    def get(self, first: int, count: int) -> bytes:
        if first < self._first or first + count > self._until:
            size = min(max(count, _AHEAD // self._unit), self._end - first)
            self._data = self._read(first, size)
            self._first, self._until = first, first + size
        begin = (first - self._first) * self._unit
        return self._data[begin : begin + count * self._unit]


class MergeInput:
    """One of the files that are merged; `age`: 0 is the oldest."""

    def __init__(self, file: ScheduleFile, age: int) -> None:
        self.age = age
        footer = file.footer
        both = footer.parked + footer.tombstones
        self._tables = [_Window(file.table, end, ENTRY_SIZE) for end in (footer.parked, both)]
        self._records = _Window(file.read_raw, footer.records, 1)

    def table(self, kind: int, first: int, count: int) -> bytes:
        return self._tables[kind].get(first, count)

    def records(self, begin: int, end: int) -> bytes:
        return self._records.get(begin, end - begin)


class InputRow:
    """A row of one of the inputs."""

    def __init__(self, origin: MergeInput, row: Row) -> None:
        self.row = row
        self._input = origin
        self._rank = 2 * origin.age + (row.kind == MESSAGE)
        self._at, self._end = row.first, row.first + row.entries
        self._loaded: list[Element] = []

    def known_up_to(self) -> Element | None:
        """All elements up to this one can be taken; None: all that are left."""
        if not self._loaded and self._at < self._end:
            self._loaded = list(self._elements(*self.piece()))
        return self._loaded[-1] if self._at < self._end else None

    def take(self, bound: Element | None) -> list[Element]:
        if bound is None:
            return self._loaded
        count = bisect_right(self._loaded, bound[:2], key=itemgetter(slice(2)))
        taken, self._loaded = self._loaded[:count], self._loaded[count:]
        return taken

    def pieces(self) -> Iterator[tuple[bytes, bytes]]:
        while self._at < self._end:
            yield self.piece()

    def piece(self) -> tuple[bytes, bytes]:
        """The next part of the table, and its records, which lie one behind the other in the file."""
        count = min(_ENTRIES, self._end - self._at)
        table = self._input.table(self.row.kind, self._at, count)
        if self.row.kind == TOMBSTONE:
            self._at += len(table) // ENTRY_SIZE
            return table, b""
        begin, end = _extent(table, 0)[0], _extent(table, -1)[1]
        if end - begin > _BYTES:
            within = bisect_right(
                range(len(table) // ENTRY_SIZE), begin + _BYTES, key=lambda i: _extent(table, i)[1]
            )
            table = table[: max(1, within) * ENTRY_SIZE]
            end = _extent(table, -1)[1]
        self._at += len(table) // ENTRY_SIZE
        return table, self._input.records(begin, end)

    def _elements(self, table: bytes, records: bytes) -> Iterator[Element]:
        rank, at = self._rank, 0
        for due, schedule_id, _, length, _ in ENTRY.iter_unpack(table):
            end = at + (length & LENGTH)
            yield due, schedule_id, rank, records[at:end]
            at = end


def _extent(table: bytes, i: int) -> tuple[int, int]:
    """Where the record of an entry lies in its file."""
    _, _, offset, length, _ = ENTRY.unpack_from(table, i * ENTRY_SIZE)
    return offset, offset + (length & LENGTH)
