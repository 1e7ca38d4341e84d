"""Reads what is due in a window: from the schedule files, and from the log what no file holds yet. Blocks.

An error of the machine touches only what it is about. What could not be read is given back, to be read
again later; and so are the rows that unread tombstones may be about: rather late than delivered although
it was cancelled. Rows that turn out to be damaged are treated alike. Tombstones are about strictly older
files, so the newest file is read first, and of each file the messages before the tombstones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.logs.messages.parked import RECORD_HEAD, heads_of
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.fill import ReadFrame
from kumquat.core.wheel.format import (
    ENTRY,
    ENTRY_SIZE,
    MESSAGE,
    REFILED,
    TOMBSTONE,
    Row,
    ScheduleDamaged,
    hour_of,
)
from kumquat.core.wheel.schedule.model import Unfiled

ADMIT = 8_192
"""Entries that are put into the wheel in one go."""

Part = tuple[ScheduleFile, Row | None]
"""A row of messages of a file; None: all of its rows."""
Trouble = OSError | ScheduleDamaged
"""Why something could not be read: for the moment, or until a start makes the file again from the log."""
Lost = Callable[[ScheduleFile, Row, int, list[ScheduleDamaged]], None]
"""Told of a damaged table: how many entries it costs at most."""


class Window(NamedTuple):
    begin: int
    end: int
    """Due times."""
    mark: int
    """Where the log ended when it was begun to be loaded: see Schedule.mark."""
    only: set[Part] | None
    """What is to be read of it; None: all."""

    @property
    def hours(self) -> tuple[int, int]:
        return hour_of(self.begin), hour_of(self.end - 1) + 1


@dataclass(slots=True)
class Loaded:
    tables: list[tuple[int, bytes]] = field(default_factory=list)
    """Entries, each part with the number of its file."""
    dues: dict[int, int] = field(default_factory=dict)
    """When those are due that are filed under another time, by schedule id."""
    struck: set[int] = field(default_factory=set)
    """Schedule ids that tombstones take out."""
    unread: set[Part] = field(default_factory=set)
    trouble: Trouble | None = None


def read_window(
    files: Sequence[ScheduleFile],
    window: Window,
    number_of: Callable[[ScheduleFile], int],
    live: Callable[[int], bool],
    lost: Lost,
) -> Loaded:
    """The entries that are due in the window, of all files, oldest first."""
    reading = _Reading(window, live, lost)
    for file in reversed(files):
        reading.messages(file, number_of(file))
        reading.tombstones(file)
    return reading.loaded


class _Reading:
    def __init__(self, window: Window, live: Callable[[int], bool], lost: Lost) -> None:
        self.loaded = Loaded()
        self._window = window
        self._live = live
        self._lost = lost
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
        """Without those that lie in a damaged part of the table."""
        begin, end = self._window.begin, self._window.end
        try:
            return file.entries(row, begin, end)
        except ScheduleDamaged:
            table, damages, lost = file.salvage(row, begin, end)
            self._lost(file, row, lost, damages)
            return table


def _true_dues(file: ScheduleFile, table: bytes) -> Iterator[tuple[int, int]]:
    """Of entries that are filed under another time; of a damaged record that time counts."""
    refiled = [entry for entry in ENTRY.iter_unpack(table) if entry[3] & REFILED]
    records = file.read_many([(entry[2], entry[3]) for entry in refiled])
    for (due, sid, *_), record in zip(refiled, records, strict=True):
        yield sid, RECORD_HEAD.unpack_from(record)[2] if isinstance(record, bytes) else due


def read_frames(
    frames: Iterable[Sequence[int]], read: ReadFrame
) -> tuple[list[Unfiled], dict[int, OSError]]:
    """The heads of all messages in PARKED frames, each given by position, length and subject id; and the
    positions of frames that cannot be read at the moment, and why."""
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
