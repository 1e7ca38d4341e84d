"""What is pending, by subject and due time: counted and listed, cheaply, however much there is.

How many messages of a subject wait in all is a number that is kept. Within bounds of due time it is counted
from the ledgers of the schedule files, with a search at either end. A list is read hour by hour from where
it begins, a page at a time, in order of (due, schedule id), which is also the cursor.

Schedule files hold what was parked up to the last fill. What came since is read from the log as long as it
is little; else it is filled first. All runs in threads, while neither fills nor merges do (`lock`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from kumquat.core.errors import KumquatError
from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.logs.messages.parked import RECORD_HEAD, RECORD_HEAD_SIZE, heads_of
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.records.records import varint
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.record_reader import Body, LogBodies, read_bodies
from kumquat.core.wheel.format import (
    ENTRY,
    HOUR_MS,
    LENGTH,
    MESSAGE,
    TOMBSTONE,
    Row,
    hour_of,
)
from kumquat.core.wheel.intake.intake import search_in_thread
from kumquat.core.wheel.schedule.model import FRAME, Key
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.schedule.wheel import LOG, Slot
from kumquat.core.wheel.tasks.loader import Loader

EVER = 1 << 47
"""A due time beyond all that can be asked for: within what the hours of schedule files reach."""
_READ_RECENT = 1 << 20
"""Up to this many bytes of what was parked since the last fill are read from the log."""
_PIECE = 512
_FEW = 1_000


class Cursor(NamedTuple):
    due: int
    sid: int


class Pending(NamedTuple):
    subject: str
    sid: int
    delay_id: str | None
    due: int
    created: int
    """The producer's timestamp."""
    key: bytes | None
    size: int
    """Bytes of the value."""


class Page(NamedTuple):
    items: list[Pending]
    next: Cursor | None
    """Where the next page begins; None: this is the last."""


class _Asked(NamedTuple):
    """What is asked for, and the state that it is answered by."""

    subject_id: int | None
    due_from: int
    due_to: int
    cursor: Key
    """All up to this one was on an earlier page."""
    after: Key
    """All that is filed up to this one is left out: delivered, or on an earlier page."""
    files: list[ScheduleFile]
    frames: list[int]
    gone: set[int]
    done: set[int]
    struck: set[int]


class Queries:
    def __init__(
        self, message_log: MessageService, schedule: Schedule, file_set: FileSet, loader: Loader
    ) -> None:
        self._log = message_log
        self._schedule = schedule
        self._file_set = file_set
        self._loader = loader
        self._bodies = LogBodies(message_log.log)

    async def count(self, subject: Subject | None, due_from: int, due_to: int) -> int:
        pending = self._schedule.pending
        if due_from <= 0 and due_to >= EVER:
            return sum(pending.values()) if subject is None else pending.get(subject.id, 0)
        wanted = [subject.id] if subject is not None else list(pending)
        subject_ids = wanted if len(wanted) <= _FEW else [None]
        async with self._loader.lock:
            asked = await self._ask(None, due_from, due_to, Cursor(-1, -1))
            return await search_in_thread(self._count_all, asked, subject_ids)

    async def page(
        self,
        subject: Subject | None,
        due_from: int,
        due_to: int,
        after: Cursor | None,
        limit: int,
    ) -> Page:
        subject_id = None if subject is None else subject.id
        after = after or Cursor(-1, -1)
        async with self._loader.lock:
            asked = await self._ask(subject_id, due_from, due_to, after)
            return await search_in_thread(self._page, asked, limit)

    async def _ask(
        self, subject_id: int | None, due_from: int, due_to: int, after: Cursor
    ) -> _Asked:
        """The lock is held."""
        if self._schedule.recent_bytes > _READ_RECENT:
            with suppress(OSError, KumquatError):
                await self._loader.fill_locked()  # else all of it is read from the log
        return self._asked(subject_id, due_from, due_to, after)

    def _asked(self, subject_id: int | None, due_from: int, due_to: int, after: Cursor) -> _Asked:
        schedule = self._schedule
        cursor = (after.due, after.sid)
        return _Asked(
            subject_id,
            max(0, due_from, after.due),
            min(due_to, EVER),
            cursor,
            max(cursor, schedule.delivered_until),
            self._file_set.current,
            schedule.recent.tolist(),
            set(schedule.gone),
            set(schedule.done),
            {tombstone.sid for tombstone in schedule.tombstones},
        )

    def count_blocking(self, subject_id: int) -> int:
        """All that is pending of a subject, counted, while nothing else runs."""
        return self._count(self._asked(subject_id, 0, EVER, Cursor(-1, -1)))

    def _is_live(self, subject_id: int) -> bool:
        return subject_id in self._log.subjects.by_id

    # --- counting (blocks) ----------------------------------------------------------------------

    def _count_all(self, asked: _Asked, subject_ids: Iterable[int | None]) -> int:
        return sum(self._count(asked._replace(subject_id=subject_id)) for subject_id in subject_ids)

    def _count(self, asked: _Asked) -> int:
        """Whatever lies behind the millisecond of the last delivery is counted; within it, listed."""
        edge = asked.after[0] + 1
        begin = max(asked.due_from, edge)
        total = 0
        for file in asked.files:
            total += file.count(asked.subject_id, begin, asked.due_to)
            total -= file.count(asked.subject_id, begin, asked.due_to, TOMBSTONE)
        total -= self._struck_recently(asked, begin)
        if asked.due_from < edge:
            within = asked._replace(due_to=min(edge, asked.due_to))
            total += sum(1 for _ in self._filed(within))
        return total + len(self._recent(asked))

    def _struck_recently(self, asked: _Asked, begin: int) -> int:
        return sum(
            begin <= tombstone.due < asked.due_to
            and asked.subject_id in (None, tombstone.subject_id)
            for tombstone in list(self._schedule.tombstones)
        )

    # --- listing (blocks) -----------------------------------------------------------------------

    def _page(self, asked: _Asked, limit: int) -> Page:
        slots = list(islice(merge(self._filed(asked), self._recent(asked)), limit + 1))
        more = len(slots) > limit
        del slots[limit:]
        bodies = read_bodies(slots, self._bodies, self._file_set.by_number)
        items = [self._pending(slot, body) for slot, body in zip(slots, bodies, strict=True)]
        return Page(items, Cursor(*slots[-1][:2]) if more else None)

    def _filed(self, asked: _Asked) -> Iterator[Slot]:
        """What the files hold, in order, hour by hour."""
        rows = merge(*(self._rows(file, asked) for file in asked.files), key=_hour)
        for hour, of_hour in groupby(rows, key=_hour):
            struck = self._struck(asked, hour)
            tables = [self._slots(file, row, asked) for row, file in of_hour]
            for slot in merge(*tables):
                dead = slot.sid in struck or slot.sid in asked.done
                if not dead and slot[:2] > asked.after:
                    yield slot

    def _rows(self, file: ScheduleFile, asked: _Asked) -> Iterator[tuple[Row, ScheduleFile]]:
        begin = max(asked.due_from, asked.after[0])
        hours = hour_of(begin), hour_of(asked.due_to - 1) + 1
        if asked.subject_id is None:
            rows = file.rows(MESSAGE, *hours)
        else:
            rows = file.rows_of_subject(asked.subject_id, MESSAGE, *hours)
        return ((row, file) for row in rows if self._is_live(row.subject_id))

    def _slots(self, file: ScheduleFile, row: Row, asked: _Asked) -> Iterator[Slot]:
        """The entries of a row from `due_from` on, read piece by piece."""
        begin = max(asked.due_from, asked.after[0], row.hour * HOUR_MS)
        number = self._file_set.number_of(file)
        at = row.first + file.count(row.subject_id, row.hour * HOUR_MS, begin)
        end = row.first + row.entries
        while at < end:
            table = file.table(at, min(_PIECE, end - at))
            for due, sid, offset, length, subject_id in ENTRY.iter_unpack(table):
                if due >= asked.due_to:
                    return
                yield Slot(due, sid, offset, length & LENGTH, subject_id, number)
            at += _PIECE

    def _struck(self, asked: _Asked, hour: int) -> set[int]:
        struck = set(asked.struck)
        for file in asked.files:
            for row in file.rows(TOMBSTONE, hour, hour + 1):
                if asked.subject_id in (None, row.subject_id):
                    table = file.table(row.first, row.entries)
                    struck.update(map(itemgetter(1), ENTRY.iter_unpack(table)))
        return struck

    def _recent(self, asked: _Asked) -> list[Slot]:
        """What was parked since the last fill, in order."""
        found = []
        for i in range(0, len(asked.frames), FRAME):
            position, length, subject_id = asked.frames[i : i + FRAME]
            if asked.subject_id in (None, subject_id) and self._is_live(subject_id):
                for at, head in heads_of(self._bodies.payload(position, length)):
                    sid, due = position + HEADER_SIZE + at, head.due
                    if (
                        asked.due_from <= due < asked.due_to
                        and sid not in asked.gone
                        and (due, sid) > asked.cursor
                    ):
                        found.append(Slot(due, sid, 0, head.length, subject_id, LOG))
        return sorted(found)

    def _pending(self, slot: Slot, body: Body) -> Pending:
        subject = self._log.subjects.by_id.get(slot.subject_id)
        name = "" if subject is None else subject.name
        if not isinstance(body, bytes):
            return Pending(name, slot.sid, None, slot.due, -1, None, slot.length)
        content = parse(body)
        delay_id = content.delay_id.decode(errors="replace") or None
        size = len(content.value or b"")
        return Pending(name, slot.sid, delay_id, content.due, content.created, content.key, size)


def _hour(row: tuple[Row, ScheduleFile]) -> int:
    return row[0].hour


class Content(NamedTuple):
    """What a parked record says."""

    due: int
    created: int
    delay_id: bytes
    key: bytes | None
    value: bytes | None


def parse(record: bytes) -> Content:
    _, _, due, created, id_length = RECORD_HEAD.unpack_from(record)
    at = RECORD_HEAD_SIZE + id_length
    delay_id = record[RECORD_HEAD_SIZE:at]
    key, at = _field(record, at)
    value, _ = _field(record, at)
    return Content(due, created, delay_id, key, value)


def _field(record: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = varint(record, at)
    return (None, at) if length < 0 else (record[at : at + length], at + length)
