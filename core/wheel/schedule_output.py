"""A schedule file that is being written, piece by piece: by schedule_writer.py and by merge.py.

It is written under a temporary name, synced once and renamed into place. Records go straight into the
file. The sections behind them are collected meanwhile in *spools*: in memory, and beyond a limit in
temporary files of their own, so that a merge needs little memory whatever its size.

Left without `finish`, nothing of it stays. What a power cut leaves is known to no manifest: it is removed
at the next start.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import Self

from crc32c import crc32c

from core.logs.files import Buffer, Files
from core.wheel.blocks import SectionWriter
from core.wheel.schedule_file import ScheduleFile
from core.wheel.schedule_format import (
    ENTRY,
    ENTRY_SIZE,
    LEDGER,
    LENGTH,
    MESSAGE,
    NAME,
    ROW,
    TEMPORARY,
    TOMBSTONE,
    VERSION,
    Footer,
    Name,
    file_name,
    hour_of,
    name_hash,
    pack_footer,
)

_WRITE = 1 << 20


class Spool:
    """Bytes to be read once, from the first on, when all are there."""

    def __init__(self, files: Files, path: Path, held: int) -> None:
        self._files = files
        self._path = path
        self._limit = held
        self._parts: list[Buffer] = []
        self._in_memory = 0
        self._on_disk = 0
        self._fd: int | None = None

    @property
    def size(self) -> int:
        return self._on_disk + self._in_memory

    def add(self, data: Buffer) -> None:
        self._parts.append(data)
        self._in_memory += len(data)
        if self._in_memory > self._limit:
            if self._fd is None:
                self._fd = self._files.open(self._path, create=True)
            self._files.pwritev(self._fd, [b"".join(self._parts)], self._on_disk)
            self._on_disk += self._in_memory
            self._parts, self._in_memory = [], 0

    def chunks(self) -> Iterator[Buffer]:
        for at in range(0, self._on_disk, _WRITE):
            assert self._fd is not None
            yield self._files.pread(self._fd, min(_WRITE, self._on_disk - at), at)
        yield b"".join(self._parts)

    def close(self) -> None:
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None
            self._files.unlink(self._path)


class Output:
    """Rows of each kind come in the order of the format, the entries of a row too; so do the ledger and
    the names. Each spool holds up to `held` bytes in memory."""

    def __init__(self, files: Files, directory: Path, stretch: tuple[int, int], held: int) -> None:
        self._files = files
        self._stretch = stretch
        number = 0
        while files.exists(directory / file_name(stretch, number)):
            number += 1
        self._path = directory / file_name(stretch, number)
        self._temporary = self._path.with_name(self._path.name + TEMPORARY)
        self._parts: list[Buffer] = []
        self._written = self._pending = 0
        self._records = 0
        self._tables, self._rows, self._ledger = (
            [self._spool(f"{what}{kind}", held) for kind in (MESSAGE, TOMBSTONE)]
            for what in ("tables", "rows", "ledger")
        )
        self._names, self._ids = self._spool("names", held), self._spool("ids", held)
        self._before = [0, 0]
        self._row_first = [0, 0]
        self._named = 0
        self._hours: tuple[int, int] | None = None
        self._fd: int | None = files.open(self._temporary, create=True)

    def _spool(self, what: str, held: int) -> Spool:
        path = self._path.with_name(f"{self._path.name}.{what}{TEMPORARY}")
        return Spool(self._files, path, held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for spool in (*self._tables, *self._rows, *self._ledger, self._names, self._ids):
            with suppress(OSError):
                spool.close()
        if self._fd is not None:
            with suppress(OSError):
                self._files.close(self._fd)
                self._files.unlink(self._temporary)

    @property
    def is_empty(self) -> bool:
        return self._hours is None

    # What goes in

    def add_entries(
        self,
        subject_id: int,
        dues: Sequence[int],
        sids: Sequence[int],
        lengths: Sequence[int],
        records: Sequence[Buffer],
    ) -> None:
        """More of the row at hand. Lengths carry the flag NAMED."""
        plain = [length & LENGTH for length in lengths]
        offsets = list(accumulate(plain, initial=self._records))
        self._records = offsets.pop()
        self._tables[MESSAGE].add(pack_table(subject_id, dues, sids, offsets, lengths))
        self._named += sum(length >> 31 for length in lengths)
        self._write(*records)

    def copy_entries(self, table: bytes, records: bytes) -> None:
        """More of the row at hand, as it lies in another file: the records of a table, all of them."""
        numbers = array("Q", table)
        _swap(numbers)
        shift = self._records - numbers[2]
        self._named += sum(flags >> 63 for flags in numbers[3::4])
        numbers[2::4] = array("Q", [offset + shift for offset in numbers[2::4]])
        _swap(numbers)
        self._tables[MESSAGE].add(numbers.tobytes())
        self._records += len(records)
        self._write(records)

    def add_tombstones(self, subject_id: int, keys: Iterable[tuple[int, int]]) -> None:
        """More of the row at hand: (due, schedule id)."""
        self._tables[TOMBSTONE].add(
            b"".join(ENTRY.pack(due, sid, 0, 0, subject_id) for due, sid in keys)
        )

    def end_row(self, kind: int, hour: int, subject_id: int) -> int:
        """The row at hand is complete; gives how many entries it has. One without any is left out."""
        first, end = self._row_first[kind], self._tables[kind].size // ENTRY_SIZE
        named = 0
        if kind == MESSAGE:
            named, self._named = self._named, 0
        if end > first:
            self._rows[kind].add(ROW.pack(hour, subject_id, first, end - first, named))
            self._row_first[kind] = end
            self._about(hour)
        return end - first

    def rows_of(self, kind: int) -> Iterator[tuple[int, int, int]]:
        """(subject, hour, entries) of the rows so far: for the ledger of a file that is small."""
        for data in self._rows[kind].chunks():
            for hour, subject_id, _, entries, _ in ROW.iter_unpack(data):
                yield subject_id, hour, entries

    def add_to_ledger(self, kind: int, subject_id: int, hour: int, entries: int) -> None:
        self._ledger[kind].add(LEDGER.pack(subject_id, hour, self._before[kind]))
        self._before[kind] += entries

    def add_name(self, name: Name) -> None:
        subject_id, delay_id, sid, due, status, keep = name
        hashed, length, where = name_hash(delay_id), len(delay_id), self._ids.size
        self._names.add(NAME.pack(subject_id, hashed, sid, due, keep, status, length, where))
        self._ids.add(delay_id)
        self._about(hour_of(keep))

    # The end

    def finish(self) -> ScheduleFile:
        """Durable and open."""
        fences = [
            self._section(self._tables, ENTRY_SIZE),
            self._section(self._rows, ROW.size),
            self._section(self._ledger, LEDGER.size),
            self._section([self._names], NAME.size),
            self._section([self._ids], 1),
        ]
        self._write(b"".join(fences))
        self._write(pack_footer(self._footer(b"".join(fences))))
        self._flush()
        assert self._fd is not None
        self._files.truncate(self._fd, self._written)
        self._files.fdatasync(self._fd)
        self._files.close(self._fd)
        self._fd = None
        try:
            self._files.rename(self._temporary, self._path)
            self._files.fsync_dir(self._path.parent)
            return ScheduleFile(self._files, self._path)
        except OSError:
            for path in (self._temporary, self._path):
                with suppress(OSError):
                    self._files.unlink(path)
            raise

    def _section(self, spools: Iterable[Spool], item_size: int) -> bytes:
        section = SectionWriter(self._write, item_size)
        for spool in spools:
            for data in spool.chunks():
                section.add(data)
        return section.finish()

    def _footer(self, fences: bytes) -> Footer:
        parked, tombstones = (spool.size // ENTRY_SIZE for spool in self._tables)
        parked_rows, tombstone_rows = (spool.size // ROW.size for spool in self._rows)
        first, last = self._hours or (0, 0)
        return Footer(
            version=VERSION,
            begin=self._stretch[0],
            end=self._stretch[1],
            records=self._records,
            parked=parked,
            tombstones=tombstones,
            parked_rows=parked_rows,
            tombstone_rows=tombstone_rows,
            names=self._names.size // NAME.size,
            ids=self._ids.size,
            first_hour=first,
            last_hour=last,
            fences_crc=crc32c(fences),
        )

    def _about(self, hour: int) -> None:
        first, last = self._hours or (hour, hour)
        self._hours = min(first, hour), max(last, hour)

    def _write(self, *data: Buffer) -> None:
        self._parts += data
        self._pending += sum(map(len, data))
        if self._pending >= _WRITE:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            assert self._fd is not None
            self._files.pwritev(self._fd, [b"".join(self._parts)], self._written)
            self._written += self._pending
            self._parts, self._pending = [], 0


def pack_table(
    subject_id: int,
    dues: Sequence[int],
    sids: Sequence[int],
    offsets: Sequence[int],
    lengths: Sequence[int],
) -> bytes:
    """ENTRY.pack for many, four columns at a time."""
    numbers = array("Q", bytes(ENTRY_SIZE * len(dues)))
    numbers[0::4] = array("Q", dues)
    numbers[1::4] = array("Q", sids)
    numbers[2::4] = array("Q", offsets)
    numbers[3::4] = array("Q", [length << 32 | subject_id for length in lengths])
    _swap(numbers)
    return numbers.tobytes()


def _swap(numbers: array[int]) -> None:
    """Between the machine's byte order and the file's."""
    if sys.byteorder == "little":
        numbers.byteswap()
