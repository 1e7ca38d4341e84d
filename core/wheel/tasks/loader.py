"""Loads the wheel: the task that keeps the next window of due times in memory, and fills when that is due.

A window goes up to the end of an hour, or less, so that no more than a million entries are loaded at a
time. It is loaded some minutes before it begins, and not before the wheel has room.

Each round does one thing: it loads a window, or reads again what could not be read, or fills, or sleeps.
What fails is tried again after a second; the broker's log says so once. It holds up only what it is about:
a load takes what can be read (window_reader.py), from the log where the fill before it fails, and comes
back for the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.errors import KumquatError
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.pools import FILL, in_thread
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.window_reader import (
    ADMIT,
    Loaded,
    Trouble,
    Window,
    read_window,
    window_end,
)
from kumquat.core.wheel.format import ENTRY_SIZE, MESSAGE
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.shell import Alarm
from kumquat.core.wheel.tasks.filler import Filler

log = logging.getLogger("kumquat.delay")

AHEAD_MS = 300_000
"""The next window is loaded this long before the current one ends."""
URGENT_MS = 5_000
SLICE = 1_000_000
"""The most entries that are loaded at a time, if their due times allow it. A wheel with so many is not
loaded further; one with twice as many not even when it is urgent."""
LOOK_SECONDS = 0.5
RETRY_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


class Loader:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        file_set: FileSet,
        filler: Filler,
        alarm: Alarm,
        now_ms: Callable[[], int],
    ) -> None:
        self._failing: str | None = None
        self._unread: list[Window] = []
        """What could not be read of windows that are loaded; `Schedule.unloaded` says whether there is
        any."""
        self._unread_reason: str | None = None
        self._pause, self._read_again_at = RETRY_SECONDS, 0.0
        self._complaints = Complaints(log)
        self._log = message_log
        self._schedule = schedule
        self._file_set = file_set
        self._filler = filler
        self._alarm = alarm
        self._now_ms = now_ms

    @property
    def failing(self) -> str | None:
        """Why something cannot be filled or loaded at the moment."""
        return self._failing or self._unread_reason

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Started when the first window is loaded, or could not be."""
        await self._try(self._load)
        task_status.started()
        while True:
            work = self._next_work()
            if work is None or not await self._try(work):
                await trio.sleep(LOOK_SECONDS if self._failing is None else RETRY_SECONDS)

    def _next_work(self) -> Callable[[], Awaitable[None]] | None:
        """What is to be done now."""
        if self._window_wanted():
            return self._load
        if self._unread and trio.current_time() >= self._read_again_at:
            return self._load_unread
        if self._filler.wanted():
            return self._filler.fill
        return None

    async def _try(self, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except (OSError, KumquatError) as error:
            self._failed(error)
            return False
        except Exception as error:
            # Unforeseen. It must not end the broker: the log has all that is parked.
            if self._failing is None:
                log.exception("the schedule cannot be kept: this was not foreseen")
            self._failed(error)
            return False
        self._succeeded()
        return True

    # --- windows --------------------------------------------------------------------------------

    def _window_wanted(self) -> bool:
        schedule = self._schedule
        if schedule.border != schedule.loaded_until:  # the last load was not finished
            return True
        left, held = schedule.loaded_until - self._now_ms(), schedule.wheel.count
        return left < AHEAD_MS and (held < SLICE or (left < URGENT_MS and held < 2 * SLICE))

    async def _load(self) -> None:
        """OSError, KumquatError: the fill before it failed. The window is loaded all the same."""
        schedule, filler = self._schedule, self._filler
        async with filler.lock:
            begin = max(0, schedule.loaded_until)
            if schedule.recent:
                with suppress(OSError, KumquatError):
                    await filler.fill_locked()  # so that `window_end` counts it
            files = self._file_set.current
            end = await in_thread(FILL, window_end, files, begin, self._now_ms(), AHEAD_MS, SLICE)
            schedule.begin_load(end, self._log.log.written_end)
            fill_error = await self._try_to_fill()
            window = Window(begin, schedule.border, schedule.mark, None)
            loaded = await self._read(window)
            heads = await filler.read_unfiled(begin) if fill_error is not None else []
            await self._admit(loaded, window.mark)
            schedule.admit_unfiled(heads, begin, schedule.border)
            if loaded.unread:
                rest = window._replace(only=loaded.unread)
                self._read_later([*self._unread, rest], loaded.trouble, RETRY_SECONDS)
            schedule.finish_load()
        self._alarm.ring_for(begin)
        if fill_error is not None:
            raise fill_error

    async def _try_to_fill(self) -> OSError | KumquatError | None:
        try:
            await self._filler.fill_locked()
        except (OSError, KumquatError) as error:
            return error
        return None

    async def _load_unread(self) -> None:
        """Read again what could not be read when its window was loaded."""
        async with self._filler.lock:
            trouble: Trouble | None = None
            for i, window in enumerate(self._unread):
                loaded = await self._read(window)
                await self._admit(loaded, window.mark)
                self._unread[i] = window._replace(only=loaded.unread)  # also if the next one fails
                trouble = trouble or loaded.trouble
            rest = [window for window in self._unread if window.only]
            self._read_later(rest, trouble, min(2 * self._pause, LONGEST_PAUSE_SECONDS))
        self._alarm.ring_for(0)

    def _read_later(self, windows: list[Window], trouble: Trouble | None, pause: float) -> None:
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

    async def _read(self, window: Window) -> Loaded:
        file_set = self._file_set
        live = self._log.subjects.by_id.__contains__
        return await in_thread(
            FILL, read_window, file_set.current, window, file_set.number_of, live
        )

    async def _admit(self, loaded: Loaded, mark: int) -> None:
        """Put what was read into the wheel. Nothing fails here: a load that begins to admit is finished."""
        schedule, seen, admitted, struck = self._schedule, 0, 0, loaded.struck
        self._report_lost(loaded)
        for source, table in loaded.tables:
            tombstones = schedule.finished.tombstones
            struck.update(tombstone.schedule_id for tombstone in tombstones[seen:])
            seen = len(tombstones)
            schedule.admit(source, table, struck, mark, loaded.dues)
            admitted += len(table) // ENTRY_SIZE
            if admitted >= ADMIT:
                admitted = 0
                await trio.lowlevel.checkpoint()

    def _report_lost(self, loaded: Loaded) -> None:
        for kind, count, damages in loaded.lost:
            what = "messages for later"
            if kind == MESSAGE:
                self._schedule.counters.damaged += count
            else:
                what = "cancels of messages for later"
            log.error("up to %d %s are lost: %s", count, what, "; ".join(map(str, damages)))

    # --- trouble --------------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        if self._failing is None:
            log.error("the schedule cannot be kept, trying again every second: %s", error)
        self._failing = str(error)

    def _succeeded(self) -> None:
        if self._failing is not None:
            self._failing = None
            log.warning("the schedule is kept again")
