"""Keeps the wheel loaded and the schedule files filled: the task that moves the lines of schedule.py.

    load   the next window of due times comes into the wheel before it begins: up to the end of an hour, or
           less, so that no more than a million entries are brought at a time; and not before the wheel has
           room for them
    fill   what was parked since the last fill goes into a schedule file: when it is much, when a segment of
           the log was rolled (so that the log can be cut and a start need not read it), before a load,
           before a search through the files, and at a clean stop
    merge  small files become larger ones, and what has passed goes; beside all else, in a task of its own

Fills, loads and changes of the list of files exclude one another (`lock`). What blocks runs in threads.
What fails is tried again after a second; the log says so once. It holds up only what it touches: a load
takes what can be read (window.py), from the log where a fill fails, and comes back for the rest. Files are
not merged until it has it.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.errors import KumquatError
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.pools import FILL, in_thread
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.record_reader import LogBodies
from kumquat.core.wheel.files.window_reader import (
    ADMIT,
    Loaded,
    Trouble,
    Window,
    read_frames,
    read_window,
)
from kumquat.core.wheel.format import (
    ENTRY_SIZE,
    HOUR_MS,
    MESSAGE,
    Row,
    ScheduleDamaged,
)
from kumquat.core.wheel.schedule.model import FRAME, Unfiled
from kumquat.core.wheel.schedule.schedule import Schedule

log = logging.getLogger("kumquat.delay")

AHEAD_MS = 300_000
"""How long before its end a window is followed by the next."""
URGENT_MS = 5_000
SLICE = 1_000_000
"""The most entries that are loaded at a time, where due times allow it. A wheel with so many is not loaded
further, and one with twice as many not even in urgency."""
FILL_BYTES = 64 << 20
FILL_ITEMS = 200_000
"""Frames, names, tombstones, deliveries: what is kept in memory or read at a start, until the next fill."""
LOOK_SECONDS = 0.5
RETRY_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
MERGE_RETRY_SECONDS = 30.0
"""When files that could not be merged are tried again: a merge may read a lot before it fails."""


class Loader:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        file_set: FileSet,
        now_ms: Callable[[], int],
        nudge: Callable[[int], None],
    ) -> None:
        self.lock = trio.Lock()
        self._failing: str | None = None
        self._fill_fails = False
        self._merge_again_at = 0.0
        self._unread: list[Window] = []
        """What could not be read of windows that are loaded."""
        self._unread_frames: dict[int, int] = {}
        """The same for frames that no file holds yet: by position, the due time from which on their
        messages are not in the wheel."""
        self._unread_reason: str | None = None
        self._pause, self._read_again_at = RETRY_SECONDS, 0.0
        self._complaints = Complaints(log)
        self._delivered = 0
        """How many had been delivered at the last fill."""
        self._log = message_log
        self._schedule = schedule
        self._file_set = file_set
        self._bodies = LogBodies(message_log.log)
        self._now_ms = now_ms
        self._nudge = nudge

    @property
    def failing(self) -> str | None:
        """Why something cannot be filled or loaded at the moment."""
        return self._failing or self._unread_reason

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Started when the first window is loaded, or could not be."""
        await self._try(self._load)
        task_status.started()
        while True:
            if self._window_wanted():
                done = await self._try(self._load)
            elif self._rest_wanted():
                done = await self._try(self._load_rest)
            elif self._fill_wanted():
                done = await self._try(self.fill)
            else:
                done = False
            if not done:
                await trio.sleep(LOOK_SECONDS if self._failing is None else RETRY_SECONDS)

    async def _try(self, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except (OSError, KumquatError) as error:
            self._fails(error)
            return False
        except Exception as error:
            # Not foreseen. It must not end the broker: the log has all that is parked.
            if self._failing is None:
                log.exception("the schedule cannot be kept: this was not foreseen")
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
        """OSError, KumquatError: the fill before it failed. The window is loaded all the same."""
        schedule = self._schedule
        async with self.lock:
            begin = max(0, schedule.loaded_until)
            if schedule.recent:
                with suppress(OSError, KumquatError):
                    await self.fill_locked()  # so that it counts
            end = await in_thread(FILL, self._window_end, begin, self._now_ms())
            schedule.begin_load(end, self._log.log.written_end)
            trouble = await self._try_to_fill()
            window = Window(begin, schedule.border, schedule.mark, None)
            loaded = await self._read(window)
            heads = await self._read_frames(begin) if trouble is not None else []
            await self._admit(loaded, window.mark)
            schedule.admit_unfiled(heads, begin, schedule.border)
            if loaded.unread:
                rest = window._replace(only=loaded.unread)
                self._owe([*self._unread, rest], loaded.trouble, RETRY_SECONDS)
            schedule.finish_load()
        self._nudge(begin)
        if trouble is not None:
            raise trouble

    async def _try_to_fill(self) -> OSError | KumquatError | None:
        try:
            await self.fill_locked()
        except (OSError, KumquatError) as error:
            return error
        return None

    async def _read(self, window: Window) -> Loaded:
        file_set = self._file_set
        read = partial(
            read_window, file_set.current, window, file_set.number_of, self._live, self._lost
        )
        return await in_thread(FILL, read)

    def _lost(
        self, file: ScheduleFile, row: Row, lost: int, damages: list[ScheduleDamaged]
    ) -> None:
        """Blocks: entries that lie in a damaged part of a table are lost, loudly."""
        what = "messages for later"
        if row.kind == MESSAGE:
            self._schedule.counters.damaged += lost
        else:
            what = "cancels of messages for later"
        log.error("up to %d %s are lost: %s", lost, what, "; ".join(map(str, damages)))

    async def _read_frames(self, begin: int) -> list[Unfiled]:
        """The heads of messages that no file holds, parked before the load under way. A frame that cannot
        be read is noted: nothing is filed before it can be."""
        mark, unread = self._schedule.mark, self._unread_frames
        heads, failed = await self._heads(
            lambda position: position < mark and position not in unread
        )
        self._unread_frames.update(dict.fromkeys(failed, begin))
        return heads

    async def _admit_unread_frames(self) -> None:
        """What the loads before could not read of the log comes into the wheel. OSError: not all of it."""
        if self._unread_frames:
            heads, failed = await self._heads(self._unread_frames.__contains__)
            due_from, until = self._unread_frames, self._schedule.loaded_until
            positions = sorted(due_from)
            for head in heads:  # what is due later comes with its window, as all else does
                position = positions[bisect_right(positions, head.sid) - 1]
                self._schedule.admit_unfiled([head], due_from[position], until)
            self._unread_frames = {position: due_from[position] for position in failed}
            for error in failed.values():
                raise error

    async def _heads(
        self, wanted: Callable[[int], bool]
    ) -> tuple[list[Unfiled], dict[int, OSError]]:
        recent = self._schedule.recent
        frames = [recent[i : i + FRAME] for i in range(0, len(recent), FRAME) if wanted(recent[i])]
        return await in_thread(FILL, read_frames, frames, self._bodies.payload)

    def _rest_wanted(self) -> bool:
        return bool(self._unread) and trio.current_time() >= self._read_again_at

    async def _load_rest(self) -> None:
        """What could not be read when its window was loaded."""
        async with self.lock:
            trouble: Trouble | None = None
            for i, window in enumerate(self._unread):
                loaded = await self._read(window)
                await self._admit(loaded, window.mark)
                self._unread[i] = window._replace(only=loaded.unread)  # also if the next one fails
                trouble = trouble or loaded.trouble
            rest = [window for window in self._unread if window.only]
            self._owe(rest, trouble, min(2 * self._pause, LONGEST_PAUSE_SECONDS))
        self._nudge(0)

    def _owe(self, windows: list[Window], trouble: Trouble | None, pause: float) -> None:
        """These have to be read again, after a pause."""
        self._unread, self._pause = windows, pause
        self._read_again_at = trio.current_time() + pause
        self._schedule.unloaded = bool(windows)
        self._unread_reason = str(trouble) if windows else None
        if windows:
            self._complaints.error(
                "unread",
                "a part of the schedule cannot be read; its messages wait, it is tried again until it can "
                f"be. A damaged file is made again by a restart, while the message log has it: {trouble}",
            )

    async def _admit(self, loaded: Loaded, mark: int) -> None:
        """Nothing fails in here: a load that has begun to admit is finished."""
        schedule, seen, admitted, struck = self._schedule, 0, 0, loaded.struck
        for source, table in loaded.tables:
            struck.update(tombstone.sid for tombstone in schedule.tombstones[seen:])
            seen = len(schedule.tombstones)
            schedule.admit(source, table, struck, mark, loaded.dues)
            admitted += len(table) // ENTRY_SIZE
            if admitted >= ADMIT:
                admitted = 0
                await trio.lowlevel.checkpoint()

    def _window_end(self, begin: int, now: int) -> int:
        """Blocks: where the window that begins there is to end."""
        files = self._file_set.current
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

    def _live(self, subject_id: int) -> bool:
        return subject_id in self._log.subjects.by_id

    # --- filling --------------------------------------------------------------------------------

    def _fill_wanted(self) -> bool:
        schedule = self._schedule
        delivered = schedule.counters.delivered - self._delivered
        named, struck = len(schedule.names), len(schedule.tombstones)
        kept = (schedule.recent_frames, named, struck, delivered)
        return (
            self._fill_fails
            or schedule.recent_bytes >= FILL_BYTES
            or max(kept) >= FILL_ITEMS
            or schedule.filled < self._log.log.state.active.base
        )

    async def fill(self) -> None:
        """All that is parked by now is in files when it returns. OSError, KumquatError: it could not."""
        async with self.lock:
            await self.fill_locked()

    async def fill_locked(self) -> None:
        """The same for who holds the lock."""
        self._fill_fails = True
        await self._admit_unread_frames()
        schedule, end = self._schedule, self._log.log.written_end
        schedule.forget_remembered(self._now_ms())
        fill, delivered = schedule.begin_fill(end), schedule.counters.delivered
        # A deletion behind `end` may not be durable: what holds here is what counts.
        live = self._log.subjects.by_id.keys() & set(fill.frames[2::FRAME])
        try:
            await self._log.wait_synced(end)
            file, manifest = await in_thread(
                FILL, self._file_set.write_fill, fill, self._bodies.payload, live.__contains__
            )
        except BaseException:
            schedule.abandon_fill(fill)
            raise
        schedule.finish_fill(fill)
        self._fill_fails = False
        self._delivered = delivered
        self._file_set.add(file, manifest)

    # --- merging --------------------------------------------------------------------------------

    async def run_merges(self) -> None:
        while True:
            try:
                while await self._merge():
                    pass
                spare = self._file_set.unused(self._schedule.wheel.files_in_use())
                await in_thread(FILL, self._file_set.remove, spare)
            except Exception as error:  # also what is not foreseen: it must not end the broker
                text = "schedule files cannot be merged at the moment; they are tried again, others go on"
                self._complaints.error("merge", f"{text}: {error!r}")
            if trio.current_time() >= self._merge_again_at:
                self._merge_again_at = trio.current_time() + MERGE_RETRY_SECONDS
                self._file_set.put_off.clear()
            await trio.sleep(RETRY_SECONDS)

    async def _merge(self) -> bool:
        """A merge leaves out what is delivered, and subjects that are deleted, by what is written. A power
        cut can take that back until it is synced: only then may the merged file stand for the others."""
        if self._unread:
            return False
        file_set, schedule = self._file_set, self._schedule
        if (
            file_set.has_tombstones
        ):  # what they took out may lie in another file: W alone keeps it from a start
            until = schedule.delivered_until[0]
        else:
            until = schedule.settled_until(self._now_ms())
        inputs = await in_thread(FILL, file_set.plan, until)
        if not inputs:
            return False
        merged = await in_thread(FILL, file_set.merge, inputs, until, self._live)
        try:
            await self._log.wait_synced(self._log.log.written_end)
        except BaseException:
            file_set.discard(merged)
            raise
        async with self.lock:
            if self._unread:  # by the files that there were
                file_set.discard(merged)
                return False
            manifest = await in_thread(FILL, file_set.list_merged, inputs, merged)
            file_set.replace(inputs, merged, manifest)
        return True

    # --- trouble --------------------------------------------------------------------------------

    def _fails(self, error: Exception) -> None:
        if self._failing is None:
            log.error("the schedule cannot be kept, trying again every second: %s", error)
        self._failing = str(error)

    def _works(self) -> None:
        if self._failing is not None:
            self._failing = None
            log.warning("the schedule is kept again")


def _count(file: ScheduleFile, begin: int, end: int) -> int:
    """Entries due in [begin, end); those of whole hours where a table is damaged, all where the file cannot
    be read."""
    with suppress(OSError, ScheduleDamaged):
        try:
            return file.count(None, begin, end)
        except ScheduleDamaged:
            return file.count(None, begin // HOUR_MS * HOUR_MS, -(-end // HOUR_MS) * HOUR_MS)
    return file.entry_count
