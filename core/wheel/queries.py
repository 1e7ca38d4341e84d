"""Counts and lists what is pending, by subject and due time, cheaply however much there is.

How many messages of a subject wait in all is a number that is kept. Within bounds of due time they are
counted from the ledgers of the schedule files, with a search at either end. A list is read hour by hour
from where it begins, a page at a time, in order of (due, schedule id), which is also the cursor.

Schedule files hold what was parked up to the last fill. What came since is read from the log if it is
little; else it is filled first. All of it runs in threads, and excludes fills and merges (`Filler.lock`).
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
from kumquat.core.wheel.files.record_reader import LogRecords, RecordReader
from kumquat.core.wheel.format import (
    ENTRY,
    HOUR_MS,
    LENGTH,
    MESSAGE,
    TOMBSTONE,
    Row,
    Tombstone,
    hour_of,
)
from kumquat.core.wheel.intake.lookup import search_in_thread
from kumquat.core.wheel.schedule.entries import LOG, Entry
from kumquat.core.wheel.schedule.model import FRAME, Key, ReadResult
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.tasks.filler import Filler

EVER = 1 << 47
"""A due time later than any that a message can have; schedule files can still express it."""
_READ_RECENT = 1 << 20
"""Up to this many bytes that were parked since the last fill are read from the log."""
_PIECE = 512
_FEW = 1_000


class Cursor(NamedTuple):
    due: int
    schedule_id: int


class Pending(NamedTuple):
    subject: str
    schedule_id: int
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
    """What is asked for, and the state at that moment."""

    subject_id: int | None
    due_from: int
    due_to: int
    cursor: Key
    """All up to this one was on an earlier page."""
    after: Key
    """Entries of files up to this one are left out: they are delivered, or were on an earlier page."""
    files: list[ScheduleFile]
    frames: list[int]
    gone: set[int]
    """The next four: what is finished and that the files do not know yet, see schedule/finished.py."""
    done: set[int]
    done_until: int
    tombstones: list[Tombstone]


class Queries:
    def __init__(
        self, message_log: MessageService, schedule: Schedule, file_set: FileSet, filler: Filler
    ) -> None:
        self._log = message_log
        self._schedule = schedule
        self._file_set = file_set
        self._filler = filler
        self._log_records = LogRecords(message_log.log)
        self._reader = RecordReader(self._log_records, file_set.by_number)

    async def count(self, subject: Subject | None, due_from: int, due_to: int) -> int:
        pending = self._schedule.pending
        if due_from <= 0 and due_to >= EVER:
            return sum(pending.values()) if subject is None else pending.get(subject.id, 0)
        wanted = [subject.id] if subject is not None else list(pending)
        subject_ids = wanted if len(wanted) <= _FEW else [None]
        async with self._filler.lock:
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
        async with self._filler.lock:
            asked = await self._ask(subject_id, due_from, due_to, after)
            return await search_in_thread(self._page, asked, limit)

    async def _ask(
        self, subject_id: int | None, due_from: int, due_to: int, after: Cursor
    ) -> _Asked:
        """The lock is held."""
        if self._schedule.recent_bytes > _READ_RECENT:
            with suppress(OSError, KumquatError):
                await self._filler.fill_locked()  # if it fails, all is read from the log
        return self._asked(subject_id, due_from, due_to, after)

    def _asked(self, subject_id: int | None, due_from: int, due_to: int, after: Cursor) -> _Asked:
        schedule, finished = self._schedule, self._schedule.finished
        cursor = (after.due, after.schedule_id)
        return _Asked(
            subject_id,
            max(0, due_from, after.due),
            min(due_to, EVER),
            cursor,
            max(cursor, schedule.delivered_until),
            self._file_set.current,
            schedule.recent.tolist(),
            set(finished.gone),
            set(finished.done),
            finished.done_until,
            list(finished.tombstones),
        )

    def count_blocking(self, subject_id: int) -> int:
        """Blocks: count all that is pending of a subject, while nothing else runs."""
        return self._count(self._asked(subject_id, 0, EVER, Cursor(-1, -1)))

    def _is_live(self, subject_id: int) -> bool:
        return subject_id in self._log.subjects.by_id

    # --- counting (blocks) ----------------------------------------------------------------------

    def _count_all(self, asked: _Asked, subject_ids: Iterable[int | None]) -> int:
        return sum(self._count(asked._replace(subject_id=subject_id)) for subject_id in subject_ids)

    def _count(self, asked: _Asked) -> int:
        """What is due after `edge` is counted. What is due before is listed, one by one: it may be
        delivered (the messages of the last millisecond), and of those in `done` the due time is not
        known."""
        edge = max(asked.after[0], asked.done_until if asked.done else -1) + 1
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
            for tombstone in asked.tombstones
        )

    # --- listing (blocks) -----------------------------------------------------------------------

    def _page(self, asked: _Asked, limit: int) -> Page:
        entries = list(islice(merge(self._filed(asked), self._recent(asked)), limit + 1))
        more = len(entries) > limit
        del entries[limit:]
        records = self._reader.read(entries)
        items = [self._pending(one, record) for one, record in zip(entries, records, strict=True)]
        return Page(items, Cursor(*entries[-1][:2]) if more else None)

    def _filed(self, asked: _Asked) -> Iterator[Entry]:
        """What is pending of the files, in order, hour by hour."""
        rows = merge(*(self._rows(file, asked) for file in asked.files), key=_hour)
        for hour, of_hour in groupby(rows, key=_hour):
            struck = self._struck(asked, hour)
            tables = [self._entries(file, row, asked) for row, file in of_hour]
            for entry in merge(*tables):
                finished = entry.schedule_id in struck or entry.schedule_id in asked.done
                if not finished and entry[:2] > asked.after:
                    yield entry

    def _rows(self, file: ScheduleFile, asked: _Asked) -> Iterator[tuple[Row, ScheduleFile]]:
        begin = max(asked.due_from, asked.after[0])
        hours = hour_of(begin), hour_of(asked.due_to - 1) + 1
        if asked.subject_id is None:
            rows = file.rows(MESSAGE, *hours)
        else:
            rows = file.rows_of_subject(asked.subject_id, MESSAGE, *hours)
        return ((row, file) for row in rows if self._is_live(row.subject_id))

    def _entries(self, file: ScheduleFile, row: Row, asked: _Asked) -> Iterator[Entry]:
        """The entries of a row from `due_from` on, read in pieces."""
        begin = max(asked.due_from, asked.after[0], row.hour * HOUR_MS)
        number = self._file_set.number_of(file)
        at = row.first + file.count(row.subject_id, row.hour * HOUR_MS, begin)
        end = row.first + row.entries
        while at < end:
            table = file.table(at, min(_PIECE, end - at))
            for due, schedule_id, offset, length, subject_id in ENTRY.iter_unpack(table):
                if due >= asked.due_to:
                    return
                yield Entry(due, schedule_id, offset, length & LENGTH, subject_id, number)
            at += _PIECE

    def _struck(self, asked: _Asked, hour: int) -> set[int]:
        struck = {tombstone.schedule_id for tombstone in asked.tombstones}
        for file in asked.files:
            for row in file.rows(TOMBSTONE, hour, hour + 1):
                if asked.subject_id in (None, row.subject_id):
                    table = file.table(row.first, row.entries)
                    struck.update(map(itemgetter(1), ENTRY.iter_unpack(table)))
        return struck

    def _recent(self, asked: _Asked) -> list[Entry]:
        """What was parked since the last fill, in order."""
        found = []
        for i in range(0, len(asked.frames), FRAME):
            position, length, subject_id = asked.frames[i : i + FRAME]
            if asked.subject_id in (None, subject_id) and self._is_live(subject_id):
                for at, head in heads_of(self._log_records.payload(position, length)):
                    schedule_id, due = position + HEADER_SIZE + at, head.due
                    if (
                        asked.due_from <= due < asked.due_to
                        and schedule_id not in asked.gone
                        and (due, schedule_id) > asked.cursor
                    ):
                        found.append(Entry(due, schedule_id, 0, head.length, subject_id, LOG))
        return sorted(found)

    def _pending(self, entry: Entry, record: ReadResult) -> Pending:
        subject = self._log.subjects.by_id.get(entry.subject_id)
        name = "" if subject is None else subject.name
        if not isinstance(record, bytes):
            return Pending(name, entry.schedule_id, None, entry.due, -1, None, entry.length)
        content = parse(record)
        delay_id = content.delay_id.decode(errors="replace") or None
        size = len(content.value or b"")
        return Pending(
            name, entry.schedule_id, delay_id, content.due, content.created, content.key, size
        )


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
