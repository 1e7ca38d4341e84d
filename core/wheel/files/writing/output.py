"""A schedule file that is being written, piece by piece: by writer.py and by merge.py.

It is written under a temporary name, synced once and renamed. Records go straight into the file. The
sections behind them are collected meanwhile (spool.py).

Without `finish` nothing of it stays. What a power cut leaves is in no manifest: the next start removes it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Self

from crc32c import crc32c

from kumquat.core.logs.disk.files import Buffer, Files
from kumquat.core.logs.messages.parked import RECORD_HEAD_SIZE
from kumquat.core.wheel.files.blocks import SectionWriter
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.writing.spool import Spool
from kumquat.core.wheel.format import (
    ENTRY,
    ENTRY_SIZE,
    LEDGER,
    MESSAGE,
    NAME,
    NAMED,
    REFILED,
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
_AT_ONCE = 4096
_RECORD = itemgetter(3)
_FLAGS = struct.Struct(">8xq8xH")
"""The due time of a record and the length of its delay id."""
assert _FLAGS.size == RECORD_HEAD_SIZE

Message = tuple[int, int, object, Buffer]
"""Due, schedule id, anything, record: a Parked, or an element of a merge."""


class Output:
    """The caller adds rows of each kind, entries of a row, the ledger and the names in the order of the
    format. Each spool holds up to `held` bytes in memory."""

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
        self._batch: list[Message] = []
        self._batch_bytes = 0
        self._subjects: list[int] = []
        self._entries = [0, 0]
        self._row_first = [0, 0]
        self._before = [0, 0]
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
            spool.close()
        if self._fd is not None:
            with suppress(OSError):
                self._files.close(self._fd)
            with suppress(OSError):
                self._files.unlink(self._temporary)

    @property
    def is_empty(self) -> bool:
        return self._hours is None

    # --- what goes in ---------------------------------------------------------------------------

    def add_messages(self, subject_id: int, messages: Sequence[Message]) -> None:
        """Add messages to the current row."""
        self._batch += messages
        self._subjects += [subject_id] * len(messages)
        self._batch_bytes += sum(map(len, map(_RECORD, messages)))
        self._entries[MESSAGE] += len(messages)
        if len(self._batch) >= _AT_ONCE or self._batch_bytes >= _WRITE:
            self._pack_batch()

    def copy_messages(self, table: bytes, records: bytes) -> None:
        """Add messages to the current row as they lie in another file: a table, and all of its records."""
        self._pack_batch()
        numbers = array("Q", table)
        _swap(numbers)
        shift = self._records - numbers[2]
        numbers[2::4] = array("Q", [offset + shift for offset in numbers[2::4]])
        _swap(numbers)
        self._tables[MESSAGE].add(numbers.tobytes())
        self._entries[MESSAGE] += len(table) // ENTRY_SIZE
        self._records += len(records)
        self._append(records)

    def add_tombstones(self, subject_id: int, keys: Sequence[tuple[int, int]]) -> None:
        """Add tombstones to the current row: (due, schedule id)."""
        table = b"".join(
            [ENTRY.pack(due, schedule_id, 0, 0, subject_id) for due, schedule_id in keys]
        )
        self._tables[TOMBSTONE].add(table)
        self._entries[TOMBSTONE] += len(keys)

    def end_row(self, kind: int, hour: int, subject_id: int) -> int:
        """The current row is complete; gives how many entries it has. An empty row is left out."""
        first, end = self._row_first[kind], self._entries[kind]
        if end > first:
            self._rows[kind].add(ROW.pack(hour, subject_id, first, end - first))
            self._row_first[kind] = end
            self._about(hour)
        return end - first

    def add_to_ledger(self, kind: int, subject_id: int, hour: int, entries: int) -> None:
        self._ledger[kind].add(LEDGER.pack(subject_id, hour, self._before[kind]))
        self._before[kind] += entries

    def add_name(self, name: Name) -> None:
        subject_id, delay_id, schedule_id, due, status, keep = name
        hashed, length, where = name_hash(delay_id), len(delay_id), self._ids.size
        self._names.add(
            NAME.pack(subject_id, hashed, schedule_id, due, keep, status, length, where)
        )
        self._ids.add(delay_id)
        self._about(hour_of(keep))

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> ScheduleFile:
        """The file, durable and open."""
        self._pack_batch()
        fences = [
            self._section(self._tables, ENTRY_SIZE),
            self._section(self._rows, ROW.size),
            self._section(self._ledger, LEDGER.size),
            self._section([self._names], NAME.size),
            self._section([self._ids], 1),
        ]
        self._append(b"".join(fences))
        self._append(pack_footer(self._footer(b"".join(fences))))
        self._flush()
        assert self._fd is not None
        self._files.truncate(self._fd, self._written)
        self._files.fdatasync(self._fd)
        fd, self._fd = self._fd, None
        try:
            self._files.close(fd)
            self._files.rename(self._temporary, self._path)
            self._files.fsync_dir(self._path.parent)
            return ScheduleFile(self._files, self._path)
        except OSError:
            for path in (self._temporary, self._path):
                with suppress(OSError):
                    self._files.unlink(path)
            raise

    def _section(self, spools: Iterable[Spool], item_size: int) -> bytes:
        section = SectionWriter(self._append, item_size)
        for spool in spools:
            for data in spool.chunks():
                section.add(data)
        return section.finish()

    def _pack_batch(self) -> None:
        """Rows are often small: their entries are packed and written together."""
        if not self._batch:
            return
        dues, schedule_ids, _, records = zip(*self._batch, strict=True)
        begin = self._records
        offsets = list(accumulate(map(len, records), initial=begin))
        self._records = offsets.pop()
        lengths = list(map(_length, dues, records))
        self._tables[MESSAGE].add(_pack_table(dues, schedule_ids, offsets, lengths, self._subjects))
        self._write(records, self._records - begin)
        self._batch, self._batch_bytes, self._subjects = [], 0, []

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

    def _append(self, data: Buffer) -> None:
        self._write((data,), len(data))

    def _write(self, parts: Iterable[Buffer], size: int) -> None:
        self._parts += parts
        self._pending += size
        if self._pending >= _WRITE:
            self._flush()

    def _flush(self) -> None:
        if self._parts:
            assert self._fd is not None
            self._files.pwritev(self._fd, [b"".join(self._parts)], self._written)
            self._written += self._pending
            self._parts, self._pending = [], 0


def has_name(record: Buffer) -> bool:
    return int(_FLAGS.unpack_from(record)[1]) > 0


def _length(due: int, record: Buffer) -> int:
    """The length of a record, with the flags of its entry."""
    in_record, id_length = _FLAGS.unpack_from(record)
    length = len(record) | NAMED if id_length else len(record)
    return length if in_record == due else length | REFILED


def _pack_table(
    dues: Sequence[int],
    schedule_ids: Sequence[int],
    offsets: Sequence[int],
    lengths: Sequence[int],
    subjects: Sequence[int],
) -> bytes:
    """ENTRY.pack for many entries, a column at a time: it is faster."""
    numbers = array("Q", bytes(ENTRY_SIZE * len(dues)))
    numbers[0::4] = array("Q", dues)
    numbers[1::4] = array("Q", schedule_ids)
    numbers[2::4] = array("Q", offsets)
    last = [length << 32 | subject for length, subject in zip(lengths, subjects, strict=True)]
    numbers[3::4] = array("Q", last)
    _swap(numbers)
    return numbers.tobytes()


def _swap(numbers: array[int]) -> None:
    """Convert between the byte order of the machine and that of the file."""
    if sys.byteorder == "little":
        numbers.byteswap()
