"""Retries of one group and subject that wait for their time, packed: a million of them take some 35 MB.

An entry is a run of messages with the attempt they are to get, the time they are due, and the time of their
first delivery (both ms). Entries are sorted by sequence and disjoint. They lie in blocks of at most LIMIT;
a block keeps each field in an array, so that no entry is an object of its own.

There is no list of all due times. A block knows its earliest one, and `order` sorts the blocks by it: so
`next_due` is exact and costs nothing. `due` looks only at blocks that have something due, and goes through
all entries of such a block. Retries fail in about the order of their sequences, so mostly all of a block is
due at about the same time.

`copy` costs nothing, because each commit of a sharing member makes one, to be able to take back what it
changes (undo.py). A copy shares the table of blocks; who writes first makes a table of its own, and a copy
of each block that it changes.

`pack` is for snapshots: the fields of all entries, byte by byte (all lowest bytes, then all next ones …),
compressed by zstd. The high bytes hardly ever change, so that they take next to no room.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import compress
from typing import Final, NamedTuple

import zstandard

LIMIT: Final = 256
"""Entries in a block. A change moves part of the block, and `due` looks at all of it."""
FEW: Final = 32
"""So many entries are taken out one by one; of more, the columns are made anew."""
TYPES: Final = "qIIqq"
"""Of the arrays, in the order of the fields of `Wait`."""
MAX_SIZE: Final = (1 << 32) - 1

_HEAD: Final = struct.Struct("<BI")
_FORMAT: Final = 1
_PACKED: Final = 64
"""Blocks at a time."""


class Wait(NamedTuple):
    first: int
    size: int
    attempt: int
    """Which delivery the next one is."""
    due: int
    """Not to be delivered before, ms since the epoch."""
    since: int
    """When it was delivered for the first time, ms since the epoch."""

    @property
    def end(self) -> int:
        return self.first + self.size


def check(first: int, size: int, attempt: int, due: int, since: int = 0) -> None:
    """ValueError: such an entry cannot be kept."""
    if (first | due | since) >> 63 or attempt >> 32 or not 0 < size <= MAX_SIZE:
        new = Wait(first, size, attempt, due, since)
        raise ValueError(f"{new} cannot wait: a number is negative or too large")


class Waiting:
    __slots__ = ("_count", "_table", "total")

    def __init__(self) -> None:
        self._table = _NOTHING
        self._count = 0
        self.total = 0
        """How many messages wait."""

    def copy(self) -> Waiting:
        copied = Waiting()
        copied._table, copied._count, copied.total = self._table, self._count, self.total
        self._table.shared = True
        return copied

    def __len__(self) -> int:
        """How many entries that are."""
        return self._count

    def count_below(self, sequence: int) -> int:
        """How many messages wait below it."""
        i = max(0, bisect_left(self._table.firsts, sequence) - 1)
        whole = sum(sum(block.sizes) for block in self._table.blocks[:i])
        some = [each for block in self._table.blocks[i : i + 1] for each in block.entries(0, LIMIT)]
        return whole + sum(max(0, min(each.end, sequence) - each.first) for each in some)

    def __iter__(self) -> Iterator[Wait]:
        for block in self._table.blocks:
            yield from block.entries(0, len(block.firsts))

    @property
    def lowest(self) -> int | None:
        return self._table.firsts[0] if self._table.firsts else None

    @property
    def next_due(self) -> int | None:
        return self._table.order[0][0] if self._table.order else None

    def next_from(self, sequence: int) -> Wait | None:
        """The first entry that has messages at `sequence` or above."""
        table = self._table
        for i in range(max(0, bisect_right(table.firsts, sequence) - 1), len(table.blocks)):
            block = table.blocks[i]
            at = max(0, bisect_right(block.firsts, sequence) - 1)
            if block.end(at) <= sequence:
                at += 1
            if at < len(block.firsts):
                return next(block.entries(at, at + 1))
        return None

    def behind_later(self, now: int) -> int:
        """Behind the last message that is not due yet; 0: all are due."""
        for block in reversed(self._table.blocks):
            for at in range(len(block.firsts) - 1, -1, -1):
                if block.dues[at] > now:
                    return block.end(at)
        return 0

    def holds(self, sequence: int) -> bool:
        """Whether a message waits."""
        return self.find(sequence) is not None

    def find(self, sequence: int) -> Wait | None:
        """The entry with which a message waits."""
        i = bisect_right(self._table.firsts, sequence) - 1
        if i < 0:
            return None
        block = self._table.blocks[i]
        at = bisect_right(block.firsts, sequence) - 1
        if at < 0 or sequence >= block.end(at):
            return None
        return next(block.entries(at, at + 1))

    def add(self, first: int, size: int, attempt: int, due: int, since: int) -> None:
        """Messages none of which waits. They become one entry with a neighbour that differs in nothing."""
        check(first, size, attempt, due, since)
        table = self._writable()
        self.total += size
        i = max(0, bisect_right(table.firsts, first) - 1)
        if i == len(table.blocks):
            table.insert(i, Block.of([(first, size, attempt, due, since)]))
            self._count = 1
            return
        assert i + 1 == len(table.firsts) or first + size <= table.firsts[i + 1]
        block = table.own(i)
        at = bisect_left(block.firsts, first)
        assert at == 0 or block.end(at - 1) <= first
        assert at == len(block.firsts) or first + size <= block.firsts[at]
        if at and block.continues(at - 1, first, size, attempt, due, since):
            block.sizes[at - 1] += size
            if at < len(block.firsts) and block.joins(at - 1):
                block.sizes[at - 1] += block.sizes[at]
                block.delete(at, at + 1)
                self._count -= 1
            return
        self._count += 1
        if len(block.firsts) == LIMIT:
            if at == LIMIT:
                table.insert(i + 1, Block.of([(first, size, attempt, due, since)]))
                return
            table.halve(i)
            if at > LIMIT // 2:
                i, at = i + 1, at - LIMIT // 2
            block = table.blocks[i]
        block.insert(at, (first, size, attempt, due, since))
        if at == 0 or due < block.earliest:
            table.moved(i, min(due, block.earliest))

    def cut(self, first: int, end: int) -> list[Wait]:
        """Take out all from `first` to below `end`, as far as it waits; what that was, by sequence."""
        taken: list[Wait] = []
        i = max(0, bisect_right(self._table.firsts, first) - 1)
        while i < len(self._table.firsts) and self._table.firsts[i] < end:
            block = self._table.blocks[i]
            low = max(0, bisect_right(block.firsts, first) - 1)
            if block.end(low) <= first:
                low += 1
            high = bisect_left(block.firsts, end)
            if low < high:
                i += self._cut_block(i, low, high, first, end, taken)
            else:
                i += 1
        return taken

    def drop(self, first: int, end: int) -> int:
        """`cut`, where it does not matter what that was: how many messages. A million may be gone at
        once."""
        firsts = self._table.firsts
        low = bisect_left(firsts, first)
        high = bisect_left(firsts, end) - 1  # the last one may have some behind
        dropped = 0
        if high > low:
            table = self._writable()
            gone = table.remove_run(low, high)
            dropped = sum(sum(block.sizes) for block in gone)
            self._count -= sum(len(block.firsts) for block in gone)
            self.total -= dropped
        return dropped + sum(entry.size for entry in self.cut(first, end))

    def _cut_block(
        self, i: int, low: int, high: int, first: int, end: int, taken: list[Wait]
    ) -> int:
        """Take out the entries from `low` to below `high`, but for what of the first and the last one lies
        outside; how many blocks the rest is in."""
        table = self._writable()
        found = list(table.blocks[i].entries(low, high))
        kept: list[Wait] = []
        head, tail = found[0], found[-1]
        if head.first < first:
            kept.append(head._replace(size=first - head.first))
        if end < tail.end:
            kept.append(tail._replace(first=end, size=tail.end - end))
            found[-1] = tail._replace(size=end - tail.first)
        if head.first < first:  # the last one may be the same
            found[0] = found[0]._replace(first=first, size=found[0].end - first)
        taken += found
        self.total -= sum(entry.size for entry in found)
        self._count += len(kept) - (high - low)
        if not kept and high - low == len(table.blocks[i].firsts):
            table.remove(i)
            return 0
        block = table.own(i)
        block.delete(low, high)
        for entry in reversed(kept):
            block.insert(low, entry)
        if any(entry.due == block.earliest for entry in found):
            table.moved(i, min(block.dues))
        else:
            table.moved(i, block.earliest)
        if len(block.firsts) > LIMIT:
            table.halve(i)
            return 2
        return 1

    def due(self, now: int, most: int) -> list[Wait]:
        """Take out at most so many entries that are due. What is due the longest is among them, with others
        of its block: the order is no strict one."""
        taken: list[Wait] = []
        while most > len(taken) and self._table.order and self._table.order[0][0] <= now:
            table = self._writable()
            i = bisect_left(table.firsts, table.order[0][1])
            block = table.blocks[i]
            hits = [at for at, due in enumerate(block.dues) if due <= now]
            if len(hits) > most - len(taken):
                hits = sorted(nsmallest(most - len(taken), hits, key=block.dues.__getitem__))
            self._count -= len(hits)
            if len(hits) == len(block.firsts):
                taken += block.entries(0, len(hits))
                table.remove(i)
            else:
                block = table.own(i)
                taken += block.take(hits)
                table.moved(i, min(block.dues))
        self.total -= sum(entry.size for entry in taken)
        return taken

    def _writable(self) -> _Table:
        if self._table.shared:
            self._table = self._table.copy()
        return self._table

    def pack(self) -> bytes:
        planes: list[list[bytes]] = [[] for kind in TYPES for _ in range(array(kind).itemsize)]
        blocks = self._table.blocks
        for low in range(
            0, len(blocks), _PACKED
        ):  # parts that fit a processor's cache: twice as fast
            parts = zip(*(block.columns for block in blocks[low : low + _PACKED]), strict=True)
            split = (plane for column in parts for plane in _planes(column))
            for known, plane in zip(planes, split, strict=True):
                known.append(plane)
        packed = b"".join([b"".join(plane) for plane in planes])
        return _HEAD.pack(_FORMAT, self._count) + zstandard.compress(packed, 1)

    @classmethod
    def unpack(cls, packed: bytes) -> Waiting:
        """ValueError: that is no such thing."""
        try:
            version, count = _HEAD.unpack_from(packed)
            if version != _FORMAT:
                raise ValueError(f"waiting retries of format {version}: only {_FORMAT} is known")
            planes = zstandard.decompress(packed[_HEAD.size :])
        except (struct.error, zstandard.ZstdError) as error:
            raise ValueError(f"waiting retries cannot be unpacked: {error}") from None
        if len(planes) != count * sum(array(kind).itemsize for kind in TYPES):
            raise ValueError(f"{len(planes)} bytes of waiting retries are not {count} entries")
        columns, at = [], 0
        for kind in TYPES:
            columns.append(_column(kind, planes, at, count))
            at += count * columns[-1].itemsize
        waiting = cls()
        table = waiting._writable()
        for low in range(0, count, LIMIT):
            table.append(Block([column[low : low + LIMIT] for column in columns]))
        table.order.sort()
        waiting._count, waiting.total = count, sum(columns[1])
        return waiting


class Block:
    """Neighbouring entries, at least one. `Waiting` decides; this moves the columns."""

    __slots__ = ("attempts", "dues", "earliest", "firsts", "owner", "sinces", "sizes")

    def __init__(self, columns: list[array[int]], earliest: int | None = None) -> None:
        self.firsts, self.sizes, self.attempts, self.dues, self.sinces = columns
        self.earliest = min(self.dues) if earliest is None else earliest
        self.owner: object = None

    @classmethod
    def of(cls, entries: list[tuple[int, int, int, int, int]]) -> Block:
        return cls([array(k, c) for k, c in zip(TYPES, zip(*entries, strict=True), strict=True)])

    @property
    def columns(self) -> tuple[array[int], ...]:
        return self.firsts, self.sizes, self.attempts, self.dues, self.sinces

    def end(self, at: int) -> int:
        return self.firsts[at] + self.sizes[at]

    def entries(self, low: int, high: int) -> Iterator[Wait]:
        return map(Wait, *(column[low:high] for column in self.columns))

    def part(self, low: int, high: int) -> Block:
        return Block([column[low:high] for column in self.columns])

    def continues(self, at: int, first: int, size: int, attempt: int, due: int, since: int) -> bool:
        """Whether the entry there and this one can be one."""
        return (
            self.firsts[at] + self.sizes[at] == first
            and self.dues[at] == due
            and self.attempts[at] == attempt
            and self.sinces[at] == since
            and self.sizes[at] + size <= MAX_SIZE
        )

    def joins(self, at: int) -> bool:
        """Whether the entry there and the next one can be one."""
        return self.continues(at, *(column[at + 1] for column in self.columns))

    def insert(self, at: int, entry: Iterable[int]) -> None:
        for column, value in zip(self.columns, entry, strict=True):
            column.insert(at, value)

    def delete(self, low: int, high: int) -> None:
        for column in self.columns:
            del column[low:high]

    def take(self, hits: list[int]) -> list[Wait]:
        """Take out the entries at these places, which rise."""
        columns = self.columns
        taken = [Wait(*[column[at] for column in columns]) for at in hits]
        if len(hits) <= FEW:
            for at in reversed(hits):
                self.delete(at, at + 1)
            return taken
        stays = bytearray(b"\1") * len(self.firsts)
        for at in hits:
            stays[at] = 0
        for column in columns:
            column[:] = array(column.typecode, compress(column, stays))
        return taken


class _Table:
    """The blocks by sequence, and their order by time. A block belongs to the table whose token it has."""

    __slots__ = ("blocks", "firsts", "order", "shared", "token")

    def __init__(
        self, blocks: list[Block], firsts: list[int], order: list[tuple[int, int]]
    ) -> None:
        self.blocks = blocks
        self.firsts = firsts
        """The lowest sequence of each block."""
        self.order = order
        """The earliest due time and the lowest sequence of each block, sorted."""
        self.shared = False
        self.token = object()

    def copy(self) -> _Table:
        return _Table(self.blocks.copy(), self.firsts.copy(), self.order.copy())

    def own(self, i: int) -> Block:
        """The block, to be changed."""
        block = self.blocks[i]
        if block.owner is not self.token:
            block = self.blocks[i] = Block([column[:] for column in block.columns], block.earliest)
            block.owner = self.token
        return block

    def append(self, block: Block) -> None:
        """`order` is to be sorted when all are there."""
        block.owner = self.token
        self.blocks.append(block)
        self.firsts.append(block.firsts[0])
        self.order.append((block.earliest, block.firsts[0]))

    def insert(self, i: int, block: Block) -> None:
        block.owner = self.token
        self.blocks.insert(i, block)
        self.firsts.insert(i, block.firsts[0])
        insort(self.order, (block.earliest, block.firsts[0]))

    def remove(self, i: int) -> None:
        self._forget(i)
        del self.blocks[i], self.firsts[i]

    def remove_run(self, low: int, high: int) -> list[Block]:
        """Take out the blocks from `low` to below `high`."""
        gone = self.blocks[low:high]
        first, behind = self.firsts[low], self.firsts[high - 1]
        self.order = [entry for entry in self.order if not first <= entry[1] <= behind]
        del self.blocks[low:high], self.firsts[low:high]
        return gone

    def moved(self, i: int, earliest: int) -> None:
        """The block begins elsewhere, or its earliest due time is another one."""
        block = self.blocks[i]
        if block.earliest != earliest or self.firsts[i] != block.firsts[0]:
            self._forget(i)
            block.earliest, self.firsts[i] = earliest, block.firsts[0]
            insort(self.order, (earliest, block.firsts[0]))

    def halve(self, i: int) -> None:
        block, middle = self.blocks[i], LIMIT // 2
        self.remove(i)
        self.insert(i, block.part(middle, len(block.firsts)))
        self.insert(i, block.part(0, middle))

    def _forget(self, i: int) -> None:
        del self.order[bisect_left(self.order, (self.blocks[i].earliest, self.firsts[i]))]


_NOTHING: Final = _Table([], [], [])
_NOTHING.shared = True


def _planes(column: Sequence[array[int]]) -> Iterator[bytes]:
    """The lowest bytes of all numbers, then the next ones, …"""
    width = column[0].itemsize
    raw = b"".join([_little_endian(part) for part in column])
    return (raw[plane::width] for plane in range(width))


def _little_endian(part: array[int]) -> bytes:
    if sys.byteorder == "big":
        part = part[:]
        part.byteswap()
    return part.tobytes()


def _column(kind: str, planes: bytes, at: int, count: int) -> array[int]:
    column = array(kind)
    raw = bytearray(count * column.itemsize)
    for plane in range(column.itemsize):
        raw[plane :: column.itemsize] = planes[at + plane * count : at + (plane + 1) * count]
    column.frombytes(raw)
    if sys.byteorder == "big":
        column.byteswap()
    return column
