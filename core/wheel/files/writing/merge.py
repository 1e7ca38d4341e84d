"""Merges neighbouring schedule files into one, so that there are few of them.

Nothing is delivered or cancelled here: the new file says the same as the old ones did together, without
what is no longer needed:
- rows of hours that have passed, and of subjects that are gone;
- messages that a newer one of the files has a tombstone for, and that tombstone. A tombstone is kept as
  long as its message may be in a file older than all of these: the schedule id of the message says so;
- names that have passed, and what older files say about a name that a newer file has.

The name of a message that is taken out here gets the status "delivered", unless a newer file says what
became of it: no tombstone is left to say that the message is not pending.

The files are read side by side, a few thousand entries at a time, and records are copied with their CRCs.
So memory does not grow with the size of the files, apart from what tombstones took out: rows that lost
entries are noted until the ledger is written, and messages with names until the names are written.

Damage of a table, a row or a name raises ScheduleDamaged, and nothing of the new file stays. A damaged
record is copied; it is reported when it is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from heapq import merge as merge_sorted
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.messages.parked import DELIVERED, MOVED
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.writing.merge_input import Element, InputRow, MergeInput
from kumquat.core.wheel.files.writing.output import Output, has_name
from kumquat.core.wheel.format import (
    MESSAGE,
    PENDING,
    TOMBSTONE,
    Name,
    Row,
    hour_of,
    name_hash,
)

AT_ONCE = 8
HELD = 2 << 20


def merge(
    files: Files,
    inputs: Sequence[ScheduleFile],
    directory: Path,
    drop_hours_before: int,
    live: Callable[[int], bool],
) -> ScheduleFile | None:
    """The file that replaces all inputs, durable and open; None when nothing of them is needed any more.
    The inputs are neighbours, oldest first. `live`: whether there is a subject with this id."""
    assert all(a.stretch[1] <= b.stretch[0] for a, b in pairwise(inputs))
    stretch = inputs[0].stretch[0], inputs[-1].stretch[1]
    with Output(files, directory, stretch, HELD) as out:
        work = _Merge(inputs, drop_hours_before, cache(live), out)
        work.merge_rows()
        for kind in (MESSAGE, TOMBSTONE):
            work.merge_ledgers(kind)
        work.merge_names()
        return None if out.is_empty else out.finish()


class Weighed(NamedTuple):
    """What a plan needs to know of a file."""

    size: int
    passed: int
    """Bytes of hours that have passed, see ScheduleFile.bytes_before."""


def plan_merge(files: Sequence[Weighed]) -> range | None:
    """Which of the files, in the order of their stretches, should be merged now.

    First a single file of which more than half has passed: it shrinks, or is removed. Then eight neighbours
    of which none is larger than the others together; of several such eights the smallest. So a message is
    copied only a few times, each time into a file several times as large as the one before."""
    for i, one in enumerate(files):
        if 2 * one.passed > one.size:
            return range(i, i + 1)
    best: tuple[int, int] | None = None
    for i in range(len(files) - AT_ONCE + 1):
        sizes = [one.size for one in files[i : i + AT_ONCE]]
        total = sum(sizes)
        if 2 * max(sizes) <= total and (best is None or total < best[0]):
            best = total, i
    return None if best is None else range(best[1], best[1] + AT_ONCE)


class _Merge:
    """The work of one merge."""

    def __init__(
        self,
        inputs: Sequence[ScheduleFile],
        first_hour: int,
        live: Callable[[int], bool],
        out: Output,
    ) -> None:
        self._files = inputs
        self._inputs = [MergeInput(file, age) for age, file in enumerate(inputs)]
        self._first_hour = first_hour
        self._live = live
        self._out = out
        self._oldest = inputs[0].stretch[0]
        self._fewer: Counter[tuple[int, int, int]] = Counter()
        """By (kind, subject, hour): how many entries fewer there are than the inputs had together."""
        self._taken_out: set[int] = set()
        """Schedule ids of messages with a name that tombstones took out."""

    def _needed(self, subject_id: int, hour: int) -> bool:
        return hour >= self._first_hour and self._live(subject_id)

    def merge_rows(self) -> None:
        streams = [
            _rows(file, age, kind, self._first_hour)
            for age, file in enumerate(self._files)
            for kind in (MESSAGE, TOMBSTONE)
        ]
        for (hour, subject_id), group in groupby(merge_sorted(*streams), key=itemgetter(0, 1)):
            if not self._needed(subject_id, hour):
                continue
            rows = [InputRow(self._inputs[age], row) for _, _, age, row in group]
            if len(rows) == 1 and rows[0].row.kind == MESSAGE:
                for table, records in rows[0].pieces():
                    self._out.copy_messages(table, records)
            else:
                self._merge_row(rows)
            for kind in (MESSAGE, TOMBSTONE):
                before = sum(one.row.entries for one in rows if one.row.kind == kind)
                after = self._out.end_row(kind, hour, subject_id)
                if after < before:
                    self._fewer[kind, subject_id, hour] = before - after

    def _merge_row(self, rows: Sequence[InputRow]) -> None:
        subject_id = rows[0].row.subject_id
        has_tombstones = any(one.row.kind == TOMBSTONE for one in rows)
        bound: Element | None = (0, 0, 0, b"")
        while bound is not None:
            bounds = [known for row in rows if (known := row.known_up_to()) is not None]
            bound = min(bounds, default=None)
            batch = [one for row in rows for one in row.take(bound)]
            batch.sort()
            if has_tombstones:
                batch, dead = self._settle(batch)
                self._out.add_tombstones(subject_id, dead)
            self._out.add_messages(subject_id, batch)

    def _settle(self, batch: Iterable[Element]) -> tuple[list[Element], list[tuple[int, int]]]:
        """The messages that stay, and the tombstones that stay."""
        stay: list[Element] = []
        dead: list[tuple[int, int]] = []
        for one in batch:
            key = one[:2]
            if one[2] & 1:
                stay.append(one)
            elif stay and stay[-1][:2] == key:
                if has_name(stay.pop()[3]):
                    self._taken_out.add(one[1])
            elif one[1] < self._oldest and dead[-1:] != [key]:
                dead.append(key)
        return stay, dead

    def merge_ledgers(self, kind: int) -> None:
        ledgers = [file.ledger(kind) for file in self._files]
        for (subject_id, hour), group in groupby(merge_sorted(*ledgers), key=itemgetter(0, 1)):
            entries = sum(one[2] for one in group) - self._fewer[kind, subject_id, hour]
            if entries and self._needed(subject_id, hour):
                self._out.add_to_ledger(kind, subject_id, hour, entries)

    def merge_names(self) -> None:
        """Each name once: as the newest file has it, kept as long as any of them."""
        streams = [_names(file, age) for age, file in enumerate(self._files)]
        for _, group in groupby(merge_sorted(*streams), key=itemgetter(0, 1, 2)):
            words = [word[4] for word in group]
            name, keep = words[-1], max(word.keep for word in words)
            if self._needed(name.subject_id, hour_of(keep)):
                if name.schedule_id in self._taken_out and name.status in (PENDING, MOVED):
                    name = name._replace(status=DELIVERED)
                self._out.add_name(name._replace(keep=keep))


def _rows(
    file: ScheduleFile, age: int, kind: int, first_hour: int
) -> Iterator[tuple[int, int, int, Row]]:
    for row in file.rows(kind, first_hour):
        yield row.hour, row.subject_id, age, row


def _names(file: ScheduleFile, age: int) -> Iterator[tuple[int, bytes, bytes, int, Name]]:
    for name in file.names():
        yield name.subject_id, name_hash(name.delay_id), name.delay_id, age, name
