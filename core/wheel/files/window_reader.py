"""Reads what is due in a window: from the schedule files, and from the log what no file holds yet. Blocks.

An error of the machine affects only what it is about. What could not be read is given back, to be read
again later. So are the rows that unread tombstones may be about: better late than delivered although it was
cancelled. Rows that turn out to be damaged are treated alike. Tombstones are about strictly older files, so
the newest file is read first, and of each file the messages before the tombstones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.logs.messages.parked import RECORD_HEAD, heads_of
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.fill import ReadFrame
from kumquat.core.wheel.format import (
    ENTRY,
    ENTRY_SIZE,
    HOUR_MS,
    MESSAGE,
    REFILED,
    TOMBSTONE,
    Row,
    ScheduleDamaged,
    hour_of,
)
from kumquat.core.wheel.schedule.model import Unfiled

ADMIT = 8_192
"""Entries that are put into the wheel in one step."""

Part = tuple[ScheduleFile, Row | None]
"""A row of messages of a file; None: all of its rows."""
Trouble = OSError | ScheduleDamaged
"""Why something could not be read: for the moment, or until a start makes the file again from the log."""


class Window(NamedTuple):
    begin: int
    end: int
    """Due times."""
    mark: int
    """Where the log ended when the load began: see Schedule.mark."""
    only: set[Part] | None
    """Which parts of it are to be read; None: all."""

    @property
    def hours(self) -> tuple[int, int]:
        return hour_of(self.begin), hour_of(self.end - 1) + 1


class LostEntries(NamedTuple):
    """Entries in a damaged part of a table."""

    kind: int
    """MESSAGE or TOMBSTONE."""
    most: int
    """How many there are at most."""
    damages: list[ScheduleDamaged]


@dataclass(slots=True)
class Loaded:
    """What was read of a window."""

    tables: list[tuple[int, bytes]] = field(default_factory=list)
    """Entries, each part with the number of its file."""
    dues: dict[int, int] = field(default_factory=dict)
    """When those messages are due that are filed under another time, by schedule id."""
    struck: set[int] = field(default_factory=set)
    """Schedule ids that tombstones take out."""
    unread: set[Part] = field(default_factory=set)
    trouble: Trouble | None = None
    """Why those could not be read."""
    lost: list[LostEntries] = field(default_factory=list)


def read_window(
    files: Sequence[ScheduleFile],
    window: Window,
    number_of: Callable[[ScheduleFile], int],
    live: Callable[[int], bool],
) -> Loaded:
    """The entries that are due in the window, of all files."""
    reading = _Reading(window, live)
    for file in reversed(files):
        reading.messages(file, number_of(file))
        reading.tombstones(file)
    return reading.loaded


class _Reading:
    def __init__(self, window: Window, live: Callable[[int], bool]) -> None:
        self.loaded = Loaded()
        self._window = window
        self._live = live
        self._unsure: set[tuple[int, int]] = set()
        """Hours and subjects of which some tombstones could not be read."""
        self._all_unsure = False

    def messages(self, file: ScheduleFile, number: int) -> None:
        loaded = self.loaded
        for row in self._wanted(file):
            if self._all_unsure or (row.hour, row.subject_id) in self._unsure:
                loaded.unread.add((file, row))
                continue
            try:
                table = self._entries(file, row)
                loaded.dues.update(_true_dues(file, table))
            except OSError as error:
                loaded.trouble = error
                loaded.unread.add((file, row))
                continue
            for at in range(0, len(table), ADMIT * ENTRY_SIZE):
                loaded.tables.append((number, table[at : at + ADMIT * ENTRY_SIZE]))

    def _wanted(self, file: ScheduleFile) -> list[Row]:
        only = self._window.only
        if only is not None and (file, None) not in only:
            return [row for of, row in only if of is file and row is not None]
        try:
            rows = list(file.rows(MESSAGE, *self._window.hours))
        except (OSError, ScheduleDamaged) as error:
            self.loaded.trouble = error
            self.loaded.unread.add((file, None))
            return []
        return [row for row in rows if self._live(row.subject_id)]

    def tombstones(self, file: ScheduleFile) -> None:
        try:
            rows = list(file.rows(TOMBSTONE, *self._window.hours))
        except (OSError, ScheduleDamaged) as error:
            self.loaded.trouble = error
            self._all_unsure = True
            return
        for row in rows:
            try:
                table = self._entries(file, row)
            except OSError as error:
                self.loaded.trouble = error
                self._unsure.add((row.hour, row.subject_id))
            else:
                self.loaded.struck.update(entry[1] for entry in ENTRY.iter_unpack(table))

    def _entries(self, file: ScheduleFile, row: Row) -> bytes:
        """The entries of a row that are due in the window, without those in damaged parts of the table."""
        begin, end = self._window.begin, self._window.end
        try:
            return file.entries(row, begin, end)
        except ScheduleDamaged:
            table, damages, lost = file.salvage(row, begin, end)
            self.loaded.lost.append(LostEntries(row.kind, lost, damages))
            return table


def _true_dues(file: ScheduleFile, table: bytes) -> Iterator[tuple[int, int]]:
    """The due times of entries that are filed under another time. If the record is damaged, that other time
    counts."""
    refiled = [entry for entry in ENTRY.iter_unpack(table) if entry[3] & REFILED]
    records = file.read_many([(entry[2], entry[3]) for entry in refiled])
    for (due, schedule_id, *_), record in zip(refiled, records, strict=True):
        yield schedule_id, RECORD_HEAD.unpack_from(record)[2] if isinstance(record, bytes) else due


def window_end(
    files: Sequence[ScheduleFile], begin: int, now: int, ahead_ms: int, most: int
) -> int:
    """Where the window that begins at `begin` is to end: at the end of an hour that is not over in
    `ahead_ms`, or earlier, so that it has no more than `most` entries."""
    end = (max(begin, now) // HOUR_MS + 1) * HOUR_MS
    if end < now + ahead_ms:
        end += HOUR_MS
    first = min((file.hours()[0] * HOUR_MS for file in files), default=0)
    first = max(begin, min(first, end - 1))

    def entries_within(length: int) -> int:
        return sum(_count(file, begin, first + length) for file in files)

    if entries_within(end - first) <= most:
        return end
    return first + max(1, bisect_right(range(1, end - first), most, key=entries_within))


def _count(file: ScheduleFile, begin: int, end: int) -> int:
    """Entries due in [begin, end). If a table is damaged, those of whole hours; if the file cannot be read,
    all of its entries."""
    with suppress(OSError, ScheduleDamaged):
        try:
            return file.count(None, begin, end)
        except ScheduleDamaged:
            return file.count(None, begin // HOUR_MS * HOUR_MS, -(-end // HOUR_MS) * HOUR_MS)
    return file.entry_count


def read_frames(
    frames: Iterable[Sequence[int]], read: ReadFrame
) -> tuple[list[Unfiled], dict[int, OSError]]:
    """The heads of all messages in these PARKED frames, each given by position, length and subject id; and
    the positions of the frames that cannot be read at the moment, with the error."""
    found: list[Unfiled] = []
    failed: dict[int, OSError] = {}
    for position, length, subject_id in frames:
        try:
            payload = read(position, length)
        except OSError as error:
            failed[position] = error
            continue
        begin = position + HEADER_SIZE
        for at, head in heads_of(payload):
            named = head.id_length > 0
            found.append(Unfiled(head.due, begin + at, head.length, subject_id, named))
    return found, failed
