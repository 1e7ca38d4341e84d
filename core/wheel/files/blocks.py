"""Sections of a schedule file: items of one size, in blocks that are checked when they are read.

A section may be far larger than memory. Only its *fences* are held: for each block of up to 64 KiB its
checksum and its first 16 bytes. An item is found by bisection over the fences and then inside one block, so
a search costs at most one read. A few blocks that were read last are kept for each file.

Reads block, and any thread may do them. Nothing is returned that does not match its checksum.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

from kumquat.core.logs.disk.files import Buffer, Files
from kumquat.core.logs.disk.unreadable import read_patiently
from kumquat.core.wheel.format import BLOCK, FENCE, ScheduleClosed, ScheduleDamaged

KEPT_BLOCKS = 16
READ_AT_ONCE = 16
"""How many blocks are read at a time when a section is read from end to end."""


def block_items(item_size: int) -> int:
    return BLOCK // item_size


def fence_count(items: int, item_size: int) -> int:
    return -(-items // block_items(item_size))


class SectionWriter:
    """Passes items on to `write` and makes the fences of their blocks."""

    def __init__(self, write: Callable[[Buffer], None], item_size: int) -> None:
        self._write = write
        self._item_size = item_size
        self._block = block_items(item_size) * item_size
        self._rest = b""
        self._fences: list[bytes] = []

    def add(self, data: Buffer) -> None:
        """Any number of bytes: they need not end with an item."""
        self._write(data)
        view = memoryview(self._rest + data if self._rest else data)
        whole = len(view) // self._block * self._block
        for at in range(0, whole, self._block):
            self._fence(view[at : at + self._block])
        self._rest = bytes(view[whole:])

    def finish(self) -> bytes:
        """The fences."""
        if self._rest:
            self._fence(memoryview(self._rest))
        return b"".join(self._fences)

    def _fence(self, block: memoryview) -> None:
        self._fences.append(FENCE.pack(crc32c(block), bytes(block[:16])))


class SharedFile:
    """An open file that several threads read. `close` may come meanwhile: the last reader closes it
    then."""

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._files = files
        self._fd = files.open(path, readonly=True)
        try:
            self.size = files.size(self._fd)
        except OSError:
            self._close()
            raise
        self._lock = threading.Lock()
        self._readers = 0
        self._closing = False
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def read(self, offset: int, size: int) -> bytes:
        with self._lock:
            if self._closing:
                raise ScheduleClosed(f"{self.path} is closed")
            self._readers += 1
        try:
            data = read_patiently(self._files, self._fd, size, offset)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise
        finally:
            with self._lock:
                self._readers -= 1
                self._close_if_unused()
        if len(data) != size:
            raise ScheduleDamaged(self.path, f"byte {offset}", f"{size} bytes", f"{len(data)}")
        return data

    def kept(self, key: tuple[str, int]) -> bytes | None:
        with self._lock:
            data = self._kept.get(key)
            if data is not None:
                self._kept.move_to_end(key)
            return data

    def keep(self, key: tuple[str, int], data: bytes) -> None:
        with self._lock:
            self._kept[key] = data
            if len(self._kept) > KEPT_BLOCKS:
                self._kept.popitem(last=False)

    def close(self) -> None:
        with self._lock:
            if not self._closing:
                self._closing = True
                self._kept.clear()
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._closing and not self._readers:
            self._close()

    def _close(self) -> None:
        with suppress(OSError):  # it was only read, and it is closed in any case
            self._files.close(self._fd)


class Section:
    """One section of an open file, to be read and searched."""

    def __init__(
        self,
        file: SharedFile,
        name: str,
        offset: int,
        count: int,
        item_size: int,
        fences: bytes,
    ) -> None:
        self.count = count
        self.offset = offset
        self.item_size = item_size
        self._file = file
        self._name = name
        self._per_block = block_items(item_size)
        self._fences = fences

    @property
    def end(self) -> int:
        return self.offset + self.count * self.item_size

    def block_end(self, i: int) -> int:
        """The number of the first item behind the block of item `i`."""
        return (i // self._per_block + 1) * self._per_block

    def item(self, i: int) -> bytes:
        return self.items(i, 1)

    def items(self, first: int, count: int) -> bytes:
        """`count` items from the one with number `first` on. If they span more than two blocks, none is
        kept."""
        if not count:
            return b""
        size, per = self.item_size, self._per_block
        low, high = first // per, (first + count - 1) // per
        if high - low < 2:
            data = self._block(low) if low == high else self._block(low) + self._block(high)
        else:
            data = self._read(low, high + 1)
        begin = (first - low * per) * size
        return data[begin : begin + count * size]

    def chunks(self, first: int, end: int) -> Iterator[bytes]:
        """The items from `first` to `end`, many at a time."""
        step = READ_AT_ONCE * self._per_block
        while first < end:
            until = min(end, (first // step + 1) * step)
            yield self.items(first, until - first)
            first = until

    def check(self) -> None:
        """Read all of it. ScheduleDamaged: a block is not as it was written."""
        for _ in self.chunks(0, self.count):
            pass

    def bisect(self, key: bytes, low: int, high: int) -> int:
        """The first item in [low, high) whose beginning is not less than `key`, else `high`. These items
        are sorted; the key has at most 16 bytes."""
        if low >= high:
            return high
        per, size, width = self._per_block, self.item_size, len(key)
        fences, span = self._fences, FENCE.size

        def begins(number: int) -> bytes:
            return fences[number * span + 4 : number * span + 4 + width]

        blocks = range(low // per + 1, (high - 1) // per + 1)
        number = blocks.start - 1 + bisect_left(blocks, key, key=begins)
        block, start = self._block(number), number * per
        inside = range(max(low, start) - start, min(high, start + per) - start)
        found = bisect_left(inside, key, key=lambda i: block[i * size : i * size + width])
        return start + inside.start + found

    def _block(self, number: int) -> bytes:
        key = (self._name, number)
        data = self._file.kept(key)
        if data is None:
            data = self._read(number, number + 1)
            self._file.keep(key, data)
        return data

    def _read(self, low: int, high: int) -> bytes:
        """The blocks from `low` to `high`, checked."""
        per, size = self._per_block, self.item_size
        begin, end = low * per, min(self.count, high * per)
        at = self.offset + begin * size
        data = self._file.read(at, (end - begin) * size)
        view, length = memoryview(data), per * size
        for number in range(low, high):
            start = (number - low) * length
            (crc, _) = FENCE.unpack_from(self._fences, number * FENCE.size)
            found = crc32c(view[start : start + length])
            if found != crc:
                place = f"{self._name}, block {number} at byte {at + start}"
                raise ScheduleDamaged(self._file.path, place, f"CRC {crc:#010x}", f"{found:#010x}")
        return data
