"""Keeps the wheel loaded and the schedule files filled: the task that moves the lines of schedule.py.

    load   the next window of due times comes into the wheel before it begins: up to the end of an hour, or
           less, so that no more than a million entries are brought at a time; and not before the wheel has
           room for them
    fill   what was parked since the last fill goes into a schedule file: when it is much, when a segment of
           the log was rolled (so that the log can be cut and a start need not read it), before a load,
           before a search through the files, and at a clean stop
    merge  small files become larger ones, and what has passed goes; beside all else, in a task of its own

Fills, loads and changes of the list of files exclude one another (`lock`). What blocks runs in threads.
What fails is tried again after a second; the log says so once.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable

import trio

from core.errors import KumquatError
from core.logs.service import MessageService
from core.pools import FILL, in_thread
from core.wheel.bodies import LogBodies
from core.wheel.schedule import Schedule
from core.wheel.schedule_file import ScheduleFile
from core.wheel.schedule_format import (
    ENTRY,
    ENTRY_SIZE,
    HOUR_MS,
    MESSAGE,
    TOMBSTONE,
    Row,
    ScheduleDamaged,
    hour_of,
)
from core.wheel.shelf import Shelf

log = logging.getLogger("kumquat.delay")

AHEAD_MS = 300_000
"""How long before its end a window is followed by the next."""
URGENT_MS = 5_000
SLICE = 1_000_000
"""The most entries that are loaded at a time, where due times allow it. A wheel with so many is not loaded
further, and one with twice as many not even in urgency."""
ADMIT = 8_192
"""Entries that are put into the wheel in one go."""
FILL_BYTES = 64 << 20
FILL_ITEMS = 200_000
"""Frames, names, tombstones, deliveries: what is kept in memory or read at a start, until the next fill."""
LOOK_SECONDS = 0.5
RETRY_SECONDS = 1.0
MERGE_RETRY_SECONDS = 30.0
"""A merge may read a lot before it fails."""

Tables = list[tuple[int, bytes]]
"""Entries, each part with the number of its file."""


class Loader:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        shelf: Shelf,
        now_ms: Callable[[], int],
        nudge: Callable[[int], None],
    ) -> None:
        self.lock = trio.Lock()
        self.failing: str | None = None
        """Why nothing can be filled or loaded at the moment."""
        self._merges_fail = False
        self._delivered = 0
        """How many had been delivered at the last fill."""
        self._log = message_log
        self._schedule = schedule
        self._shelf = shelf
        self._bodies = LogBodies(message_log.log)
        self._now_ms = now_ms
        self._nudge = nudge

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Started when the first window is loaded, or could not be."""
        await self._try(self._load)
        task_status.started()
        while True:
            if self._window_wanted():
                done = await self._try(self._load)
            elif self._fill_wanted():
                done = await self._try(self.fill)
            else:
                done = False
            if not done:
                await trio.sleep(LOOK_SECONDS if self.failing is None else RETRY_SECONDS)

    async def _try(self, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except (OSError, KumquatError) as error:
            self._fails(error)
            return False
        self._works()
        return True

    # --- loading --------------------------------------------------------------------------------

    def _window_wanted(self) -> bool:
        schedule = self._schedule
        if schedule.border != schedule.loaded_until:
            return True
        left, held = schedule.loaded_until - self._now_ms(), schedule.wheel.count
        return left < AHEAD_MS and (held < SLICE or (left < URGENT_MS and held < 2 * SLICE))

    async def _load(self) -> None:
        schedule = self._schedule
        async with self.lock:
            begin = max(0, schedule.loaded_until)
            if schedule.recent:
                await self.fill_locked()  # so that it counts
            end = await in_thread(FILL, self._window_end, begin, self._now_ms())
            schedule.begin_load(end, self._log.log.written_end)
            await self.fill_locked()
            tables, struck = await in_thread(FILL, self._read, begin, schedule.border)
            await self._admit(tables, struck)
            schedule.finish_load()
        self._nudge(begin)

    async def _admit(self, tables: Tables, struck: set[int]) -> None:
        """Nothing fails in here: a load that has begun to admit is finished."""
        schedule, seen, admitted = self._schedule, 0, 0
        for source, table in tables:
            struck.update(tombstone.sid for tombstone in schedule.tombstones[seen:])
            seen = len(schedule.tombstones)
            schedule.admit(source, table, struck)
            admitted += len(table) // ENTRY_SIZE
            if admitted >= ADMIT:
                admitted = 0
                await trio.lowlevel.checkpoint()

    def _window_end(self, begin: int, now: int) -> int:
        """Blocks: where the window that begins there is to end."""
        files = self._shelf.current
        end = (max(begin, now) // HOUR_MS + 1) * HOUR_MS
        if end < now + AHEAD_MS:
            end += HOUR_MS
        first = min((file.hours()[0] * HOUR_MS for file in files), default=0)
        first = max(begin, min(first, end - 1))

        def entries_within(length: int) -> int:
            return sum(_count(file, begin, first + length) for file in files)

        if entries_within(end - first) <= SLICE:
            return end
        return first + max(1, bisect_right(range(1, end - first), SLICE, key=entries_within))

    def _read(self, begin: int, end: int) -> tuple[Tables, set[int]]:
        """Blocks: the entries due in [begin, end), and the schedule ids that are struck."""
        tables: Tables = []
        struck: set[int] = set()
        live = self._live
        for file in self._shelf.current:
            number, hours = self._shelf.number_of(file), (hour_of(begin), hour_of(end - 1) + 1)
            for row in file.rows(TOMBSTONE, *hours):
                table = self._entries(file, row, begin, end)
                struck.update(entry[1] for entry in ENTRY.iter_unpack(table))
            for row in file.rows(MESSAGE, *hours):
                if live(row.subject_id):
                    table = self._entries(file, row, begin, end)
                    for at in range(0, len(table), ADMIT * ENTRY_SIZE):
                        tables.append((number, table[at : at + ADMIT * ENTRY_SIZE]))
        return tables, struck

    def _entries(self, file: ScheduleFile, row: Row, begin: int, end: int) -> bytes:
        """Without those that lie in a damaged part of the table: they are lost, loudly."""
        try:
            return file.entries(row, begin, end)
        except ScheduleDamaged:
            table, damages, lost = file.salvage(row, begin, end)
        what = "messages for later"
        if row.kind == MESSAGE:
            self._schedule.counters.damaged += lost
        else:
            what = "cancels of messages for later"
        log.error("up to %d %s are lost: %s", lost, what, "; ".join(map(str, damages)))
        return table

    def _live(self, subject_id: int) -> bool:
        return subject_id in self._log.subjects.by_id

    # --- filling --------------------------------------------------------------------------------

    def _fill_wanted(self) -> bool:
        schedule = self._schedule
        delivered = schedule.counters.delivered - self._delivered
        named, struck = len(schedule.names), len(schedule.tombstones)
        kept = (schedule.recent_frames, named, struck, delivered)
        return (
            schedule.recent_bytes >= FILL_BYTES
            or max(kept) >= FILL_ITEMS
            or schedule.filled < self._log.log.state.active.base
        )

    async def fill(self) -> None:
        """All that is parked by now is in files when it returns. OSError, KumquatError: it could not."""
        async with self.lock:
            await self.fill_locked()

    async def fill_locked(self) -> None:
        """The same for who holds the lock."""
        schedule, end = self._schedule, self._log.log.written_end
        fill, delivered = schedule.begin_fill(end), schedule.counters.delivered
        try:
            await self._log.wait_synced(end)
            file, manifest = await in_thread(
                FILL, self._shelf.write_fill, fill, self._bodies.payload, self._live
            )
        except BaseException:
            schedule.abandon_fill(fill)
            raise
        schedule.finish_fill(fill)
        self._delivered = delivered
        self._shelf.add(file, manifest)

    # --- merging --------------------------------------------------------------------------------

    async def run_merges(self) -> None:
        while True:
            try:
                while await self._merge():
                    pass
                spare = self._shelf.unused(self._schedule.wheel.files_in_use())
                await in_thread(FILL, self._shelf.remove, spare)
            except (OSError, KumquatError) as error:
                if not self._merges_fail:
                    log.error("schedule files cannot be merged, trying again and again: %s", error)
                self._merges_fail = True
                await trio.sleep(MERGE_RETRY_SECONDS)
                continue
            self._merges_fail = False
            await trio.sleep(RETRY_SECONDS)

    async def _merge(self) -> bool:
        shelf, until = self._shelf, self._schedule.delivered_until[0]
        inputs = await in_thread(FILL, shelf.plan, until)
        if not inputs:
            return False
        merged = await in_thread(FILL, shelf.merge, inputs, until, self._live)
        async with self.lock:
            manifest = await in_thread(FILL, shelf.list_merged, inputs, merged)
            shelf.replace(inputs, merged, manifest)
        return True

    # --- trouble --------------------------------------------------------------------------------

    def _fails(self, error: Exception) -> None:
        if self.failing is None:
            log.error("the schedule cannot be kept, trying again every second: %s", error)
        self.failing = str(error)

    def _works(self) -> None:
        if self.failing is not None:
            self.failing = None
            log.warning("the schedule is kept again")


def _count(file: ScheduleFile, begin: int, end: int) -> int:
    """Entries due in [begin, end); those of whole hours where a table is damaged."""
    try:
        return file.count(None, begin, end)
    except ScheduleDamaged:
        return file.count(None, begin // HOUR_MS * HOUR_MS, -(-end // HOUR_MS) * HOUR_MS)
