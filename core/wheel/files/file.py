"""A schedule file, open for reading: rows by hour, entries by due time, counts, records, names.

The format is in ../format.py, the writer in writer.py. Opening checks the footer, the fences, the rows and
the ledger: all that is needed to know what is in the file. The rest is checked when it is read. What does
not match its checksum is never returned: ScheduleDamaged says what and where.

All calls may wait for the disk, and several threads may call at a time. `close` may come meanwhile: later
calls raise ScheduleClosed.

A file does not know what is delivered, nor what the tombstones of newer files say. The caller puts the
files together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from crc32c import crc32c

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.messages.parked import parked_damage
from kumquat.core.wheel.files.blocks import Section, SharedFile, fence_count
from kumquat.core.wheel.files.neighbours import Place, neighbours
from kumquat.core.wheel.format import (
    DUE,
    ENTRY_SIZE,
    FENCE,
    FOOTER,
    HOUR_MS,
    LEDGER,
    LENGTH,
    MESSAGE,
    NAME,
    NAME_KEY,
    ROW,
    ROW_KEY,
    TOMBSTONE,
    Name,
    Row,
    ScheduleDamaged,
    file_name,
    hour_of,
    name_hash,
    number_of,
    parse_footer,
)

_SECTIONS = (
    ("tables", ENTRY_SIZE),
    ("rows", ROW.size),
    ("ledger", LEDGER.size),
    ("names", NAME.size),
    ("ids", 1),
)
_HOURS_END = 1 << 32


class ScheduleFile:
    """One file. `crc` covers all of its content except the records, which have their own."""

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._file = SharedFile(files, path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        source = self._file
        self.size = source.size
        at = max(0, self.size - FOOTER.size)
        footer, self.crc = parse_footer(self.path, source.read(at, self.size - at))
        self.footer = footer
        self.stretch = (footer.begin, footer.end)
        self.number = number_of(self.path.name)
        if self.path.name != file_name(self.stretch, self.number):
            expected = f"{file_name(self.stretch, 0)} or another number at its end"
            raise ScheduleDamaged(self.path, "name", expected, self.path.name)
        self.entry_count = footer.parked
        rows = footer.parked_rows + footer.tombstone_rows
        counts = (footer.parked + footer.tombstones, rows, rows, footer.names, footer.ids)
        self._tables, self._rows, self._ledger, self._names, self._ids = self._sections(counts)
        self._rows.check()
        self._ledger.check()

    def _sections(self, counts: Sequence[int]) -> list[Section]:
        sizes = [
            FENCE.size * fence_count(n, s) for n, (_, s) in zip(counts, _SECTIONS, strict=True)
        ]
        begin = self.footer.records + sum(
            n * s for n, (_, s) in zip(counts, _SECTIONS, strict=True)
        )
        expected = begin + sum(sizes) + FOOTER.size
        if self.size != expected:
            raise ScheduleDamaged(self.path, "size", expected, self.size)
        fences = self._file.read(begin, sum(sizes))
        if crc32c(fences) != self.footer.fences_crc:
            expected_crc, found = f"CRC {self.footer.fences_crc:#010x}", f"{crc32c(fences):#010x}"
            raise ScheduleDamaged(self.path, f"fences at byte {begin}", expected_crc, found)
        sections, offset, at = [], self.footer.records, 0
        for (name, size), count, held in zip(_SECTIONS, counts, sizes, strict=True):
            section = Section(self._file, name, offset, count, size, fences[at : at + held])
            sections.append(section)
            offset, at = section.end, at + held
        return sections

    def close(self) -> None:
        self._file.close()

    # --- rows -----------------------------------------------------------------------------------

    def hours(self) -> tuple[int, int]:
        """The first and the last hour that anything here is about; (0, 0) when there is nothing. When the
        last one is over and all is delivered, the file may be removed."""
        return self.footer.first_hour, self.footer.last_hour

    def rows_of(self, hour: int) -> list[Row]:
        """Rows of both kinds, MESSAGE first, each by subject."""
        return [row for kind in (MESSAGE, TOMBSTONE) for row in self.rows(kind, hour, hour + 1)]

    def rows(self, kind: int, hour_from: int = 0, hour_to: int = _HOURS_END) -> Iterator[Row]:
        """Rows by hour, then by subject."""
        low, high = self._row_at(kind, hour_from), self._row_at(kind, hour_to)
        base = self._entry_base(kind)
        for data in self._rows.chunks(low, high):
            for hour, subject_id, first, entries in ROW.iter_unpack(data):
                yield Row(hour, subject_id, kind, base + first, entries)

    def rows_of_subject(
        self, subject_id: int, kind: int = MESSAGE, hour_from: int = 0, hour_to: int = _HOURS_END
    ) -> Iterator[Row]:
        """Rows by hour; hours without a row cost nothing."""
        low, high = (self._ledger_at(kind, subject_id, hour) for hour in (hour_from, hour_to))
        for data in self._ledger.chunks(low, high):
            for _, hour, _ in LEDGER.iter_unpack(data):
                row = self.row(hour, subject_id, kind)
                if row is not None:
                    yield row

    def row(self, hour: int, subject_id: int, kind: int = MESSAGE) -> Row | None:
        at = self._row_at(kind, hour, subject_id)
        if at == self._row_range(kind)[1]:
            return None
        found, subject, first, entries = ROW.unpack(self._rows.item(at))
        if (found, subject) != (hour, subject_id):
            return None
        return Row(hour, subject_id, kind, self._entry_base(kind) + first, entries)

    def ledger(self, kind: int) -> Iterator[tuple[int, int, int]]:
        """(subject, hour, entries) of every row, by subject and hour."""
        last: tuple[int, int, int] | None = None
        low, high = self._row_range(kind)
        for data in self._ledger.chunks(low, high):
            for subject_id, hour, before in LEDGER.iter_unpack(data):
                if last is not None:
                    yield last[0], last[1], before - last[2]
                last = subject_id, hour, before
        if last is not None:
            yield last[0], last[1], self._entry_count(kind) - last[2]

    # --- entries --------------------------------------------------------------------------------

    def entries(self, row: Row, due_from: int, due_to: int) -> bytes:
        """The part of the row's table with a due time in [due_from, due_to): ENTRY after ENTRY."""
        low, high = self._bisect(row, due_from), self._bisect(row, due_to)
        return self._tables.items(low, high - low) if low < high else b""

    def salvage(
        self, row: Row, due_from: int, due_to: int
    ) -> tuple[bytes, list[ScheduleDamaged], int]:
        """What `entries` would give, without the damaged blocks; the damage; and how many entries of the
        row are in these blocks."""
        entries: list[bytes] = []
        damages: list[ScheduleDamaged] = []
        lost, at, end = 0, row.first, row.first + row.entries
        while at < end:
            until = min(end, self._tables.block_end(at))
            try:
                table = self._tables.items(at, until - at)
            except ScheduleDamaged as damage:
                damages.append(damage)
                lost += until - at
            else:
                each = (table[i : i + ENTRY_SIZE] for i in range(0, len(table), ENTRY_SIZE))
                low, high = DUE.pack(max(0, due_from)), DUE.pack(max(0, due_to))
                entries += [entry for entry in each if low <= entry[: DUE.size] < high]
            at = until
        return b"".join(entries), damages, lost

    def table(self, first: int, count: int) -> bytes:
        """Entries by their number, as Row.first has it."""
        return self._tables.items(first, count)

    def count(self, subject_id: int | None, due_from: int, due_to: int, kind: int = MESSAGE) -> int:
        """How many entries are due in [due_from, due_to): from the ledger, and a search at either end."""
        if due_from >= due_to:
            return 0
        return self._below(kind, subject_id, due_to) - self._below(kind, subject_id, due_from)

    def bytes_before(self, hour: int) -> int:
        """About how many bytes of messages belong to hours before this one; the size of the file when
        nothing in it belongs to a later one. It reads no table, so a damaged one does not matter."""
        if self.footer.last_hour < hour:
            return self.size
        at = self._row_at(MESSAGE, hour)
        if at == self.footer.parked_rows:
            return self.footer.records + self.footer.parked * ENTRY_SIZE
        entries = int(ROW.unpack(self._rows.item(at))[2])
        return self.footer.records * entries // self.footer.parked + entries * ENTRY_SIZE

    # --- records --------------------------------------------------------------------------------

    def read(self, offset: int, length: int) -> bytes:
        """A parked record. The length may still have its flags."""
        [found] = self.read_many([(offset, length)])
        if isinstance(found, ScheduleDamaged):
            raise found
        return found

    def read_many(self, flagged: Sequence[Place]) -> list[bytes | ScheduleDamaged]:
        """A record for each (offset, length), in this order; neighbours are read together. A damaged one
        does not keep the others from being read. Lengths may still have their flags."""
        places = [(offset, length & LENGTH) for offset, length in flagged]
        found: list[bytes | ScheduleDamaged] = [b""] * len(places)
        for run in neighbours(places):
            begin = places[run[0]][0]
            end = max(places[i][0] + places[i][1] for i in run)
            data = self.read_raw(begin, end - begin)
            for i in run:
                offset, length = places[i]
                record = data[offset - begin : offset - begin + length]
                damage = parked_damage(record)
                found[i] = record
                if damage is not None:
                    place = f"record at byte {offset}"
                    found[i] = ScheduleDamaged(self.path, place, "a whole record", damage)
        return found

    def read_raw(self, offset: int, size: int) -> bytes:
        """Bytes of records, unchecked: to be copied, each with its CRC."""
        if offset + size > self.footer.records:
            place = f"records, {size} bytes at {offset}"
            raise ScheduleDamaged(self.path, place, f"an end at {self.footer.records}", "more")
        return self._file.read(offset, size)

    # --- names ----------------------------------------------------------------------------------

    def find(self, subject_id: int, delay_id: bytes) -> Name | None:
        """What this file says about a delay id."""
        key = NAME_KEY.pack(subject_id, name_hash(delay_id))
        at = self._names.bisect(key, 0, self.footer.names)
        while at < self.footer.names:
            item = self._names.item(at)
            if not item.startswith(key):
                break
            name = self._name(item)
            if name.delay_id == delay_id:
                return name
            at += 1
        return None

    def names(self) -> Iterator[Name]:
        """All names, by subject, hash and id."""
        for data in self._names.chunks(0, self.footer.names):
            for at in range(0, len(data), NAME.size):
                yield self._name(data[at : at + NAME.size])

    def _name(self, item: bytes) -> Name:
        subject_id, _, schedule_id, due, keep, status, length, begin = NAME.unpack(item)
        return Name(subject_id, self._ids.items(begin, length), schedule_id, due, status, keep)

    # --- where things are -----------------------------------------------------------------------

    def _row_range(self, kind: int) -> tuple[int, int]:
        if kind == MESSAGE:
            return 0, self.footer.parked_rows
        return self.footer.parked_rows, self._rows.count

    def _entry_base(self, kind: int) -> int:
        return 0 if kind == MESSAGE else self.footer.parked

    def _entry_count(self, kind: int) -> int:
        return self.footer.parked if kind == MESSAGE else self.footer.tombstones

    def _row_at(self, kind: int, hour: int, subject_id: int = 0) -> int:
        low, high = self._row_range(kind)
        if hour >= _HOURS_END:
            return high
        return self._rows.bisect(ROW_KEY.pack(max(0, hour), subject_id), low, high)

    def _ledger_at(self, kind: int, subject_id: int, hour: int) -> int:
        low, high = self._row_range(kind)
        if hour >= _HOURS_END:
            return self._ledger.bisect(
                ROW_KEY.pack(subject_id, _HOURS_END - 1) + b"\xff", low, high
            )
        return self._ledger.bisect(ROW_KEY.pack(subject_id, max(0, hour)), low, high)

    def _bisect(self, row: Row, due: int) -> int:
        end = row.first + row.entries
        if due <= row.hour * HOUR_MS:
            return row.first
        if due >= (row.hour + 1) * HOUR_MS:
            return end
        return self._tables.bisect(DUE.pack(due), row.first, end)

    def _below(self, kind: int, subject_id: int | None, due: int) -> int:
        """How many entries come before `due`, in the order of the rows; with a subject, in the order of the
        ledger: there all entries of lower subjects count too."""
        hour = min(max(0, hour_of(due)), _HOURS_END)
        if subject_id is None:
            at = self._row_at(kind, hour)
            before = ROW.unpack(self._rows.item(at))[2] if at < self._row_range(kind)[1] else None
            edge = self.rows(kind, hour, hour + 1) if due % HOUR_MS else iter(())
        else:
            at = self._ledger_at(kind, subject_id, hour)
            inside = at < self._row_range(kind)[1]
            before = LEDGER.unpack(self._ledger.item(at))[2] if inside else None
            row = self.row(hour, subject_id, kind) if due % HOUR_MS else None
            edge = iter(() if row is None else (row,))
        if before is None:
            before = self._entry_count(kind)
        return int(before) + sum(self._bisect(row, due) - row.first for row in edge)
