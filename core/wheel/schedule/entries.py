"""Entries of the wheel: 32 bytes for each message that waits in memory, and how they are kept in bulk.

An entry has the bytes that it has in a schedule file (`ENTRY` in format.py). They are big-endian, so the
packed bytes sort as the fields do: by due time, then by schedule id.

    due (8)  schedule id (8)  offset of the record in its file (8)  length and flags (4)  subject id (4)

A million entries as Python objects would take hundreds of megabytes. So entries stay packed: a `Notch`
collects them unsorted, a `Run` holds them sorted. Only those that are delivered next become `Entry` tuples.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from kumquat.core.wheel.format import ENTRY, ENTRY_SIZE, LENGTH

NOTCH_MS = 500
"""The due times of one notch span this long."""
LOG = -1
"""The source of entries whose record lies in the message log."""

KEY = struct.Struct(">qq")
"""Due time and schedule id: the first 16 bytes of an entry."""
DUE = struct.Struct(">q")


class Entry(NamedTuple):
    """An unpacked entry. Entries sort by due time, then by schedule id: the order of delivery."""

    due: int
    schedule_id: int
    offset: int
    """Where the record lies in its schedule file; 0 for the log, where it lies at its schedule id."""
    length: int
    subject_id: int
    source: int
    """LOG, or the number of a schedule file."""


class Notch:
    """Packed entries with due times in the same 500 ms, in no order."""

    __slots__ = ("floor", "log", "low", "tables")

    def __init__(self) -> None:
        self.low = sys.maxsize
        """The earliest due time."""
        self.floor = sys.maxsize
        """The lowest schedule id of the entries from the log."""
        self.log = bytearray()
        """Entries from the message log."""
        self.tables: dict[int, bytearray] | None = None
        """Entries from schedule files, by the number of the file."""


class Run:
    """Packed entries of one source: unsorted while they wait to be sorted, else sorted from `at` on."""

    __slots__ = ("at", "count", "data", "floor", "low", "source")

    def __init__(self, source: int, data: bytes, low: int, floor: int, at: int = 0) -> None:
        self.source = source
        self.data = data
        self.low = low
        self.floor = floor
        self.at = at
        """The first entry that was not given out yet."""
        self.count = len(data) // ENTRY_SIZE

    def key(self, i: int) -> bytes:
        return self.data[i * ENTRY_SIZE : i * ENTRY_SIZE + KEY.size]

    def below(self, limit: bytes) -> int:
        """The first entry that is not below `limit`, a packed due time."""
        return bisect_left(range(self.count), limit, self.at, key=self.key)

    def through(self, pivot: bytes) -> int:
        """The first entry behind `pivot`, a packed due time and schedule id."""
        return bisect_right(range(self.count), pivot, self.at, key=self.key)

    def take(self, end: int) -> list[Entry]:
        data = self.data[self.at * ENTRY_SIZE : end * ENTRY_SIZE]
        self.at = end
        new, source, mask = tuple.__new__, self.source, LENGTH
        return [
            new(Entry, (due, schedule_id, offset, length & mask, subject, source))
            for due, schedule_id, offset, length, subject in ENTRY.iter_unpack(data)
        ]


def column(typecode: str, table: bytes) -> array[int]:
    """The big-endian numbers of a packed table, all of one width."""
    numbers = array(typecode)
    numbers.frombytes(table)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def contains_key(key: bytes, data: bytes) -> bool:
    """Whether one of the packed entries begins with `key`."""
    at = data.find(key)
    while at >= 0 and at % ENTRY_SIZE:
        at = data.find(key, at + 1)
    return at >= 0
