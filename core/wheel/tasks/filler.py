"""Fills schedule files: what was parked since the last fill goes into a new file.

A fill is due when that is much, or when the log began a new segment (so that the log can be cut, and a
start need not read it). Also before a load, before a search through the files, and at a clean stop.

`lock` excludes fills, loads and changes of the list of files from one another. What blocks runs in threads.
A fill that fails leaves all as it was, and is tried again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import trio

from kumquat.core.logs.messages.service import MessageService
from kumquat.core.pools import FILL, in_thread
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.record_reader import LogRecords
from kumquat.core.wheel.files.window_reader import read_frames
from kumquat.core.wheel.schedule.model import FRAME, Unfiled
from kumquat.core.wheel.schedule.schedule import Schedule

FILL_BYTES = 64 << 20
FILL_ITEMS = 200_000
"""Frames, names, tombstones, deliveries: these are kept in memory, or read at a start, until the next
fill."""


class Filler:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        file_set: FileSet,
        log_records: LogRecords,
        now_ms: Callable[[], int],
    ) -> None:
        self.lock = trio.Lock()
        self._failed = False
        self._delivered = 0
        """How many had been delivered at the last fill."""
        self._unread_frames: dict[int, int] = {}
        """Frames that a load could not read and that no file holds yet: by position, the due time from
        which on their messages are not in the wheel."""
        self._log = message_log
        self._schedule = schedule
        self._file_set = file_set
        self._log_records = log_records
        self._now_ms = now_ms

    def wanted(self) -> bool:
        schedule = self._schedule
        items = (
            schedule.recent_frames,
            len(schedule.ids.names),
            len(schedule.finished.tombstones),
            schedule.counters.delivered - self._delivered,
        )
        return (
            self._failed
            or schedule.recent_bytes >= FILL_BYTES
            or max(items) >= FILL_ITEMS
            or schedule.filled < self._log.log.state.active.base
        )

    async def fill(self) -> None:
        """All that is parked by now is in files when it returns. OSError, KumquatError: nothing is."""
        async with self.lock:
            await self.fill_locked()

    async def fill_locked(self) -> None:
        """The same, for a caller that holds the lock."""
        self._failed = True
        await self._admit_unread_frames()
        schedule, end = self._schedule, self._log.log.written_end
        schedule.ids.forget_expired(self._now_ms())
        fill, delivered = schedule.begin_fill(end), schedule.counters.delivered
        # A deletion behind `end` may not be durable: the subjects that exist here are the ones that count.
        live = self._log.subjects.by_id.keys() & set(fill.frames[2::FRAME])
        try:
            await self._log.wait_synced(end)
            file, manifest = await in_thread(
                FILL, self._file_set.write_fill, fill, self._log_records.payload, live.__contains__
            )
        except BaseException:
            schedule.abandon_fill(fill)
            raise
        schedule.finish_fill(fill)
        self._failed = False
        self._delivered = delivered
        self._file_set.add(file, manifest)

    # --- messages that no file holds yet --------------------------------------------------------

    async def read_unfiled(self, begin: int) -> list[Unfiled]:
        """The heads of messages that no file holds, parked before the load under way. A frame that cannot
        be read is noted: its messages due from `begin` on are missing in the wheel."""
        mark, unread = self._schedule.mark, self._unread_frames
        heads, failed = await self._heads(
            lambda position: position < mark and position not in unread
        )
        self._unread_frames.update(dict.fromkeys(failed, begin))
        return heads

    async def _admit_unread_frames(self) -> None:
        """Put into the wheel what earlier loads could not read of the log. OSError: not all can be read
        yet, and nothing may be filed before: what is filed counts as loaded."""
        if self._unread_frames:
            heads, failed = await self._heads(self._unread_frames.__contains__)
            due_from, until = self._unread_frames, self._schedule.loaded_until
            positions = sorted(due_from)
            for head in heads:  # what is due later comes with its window
                position = positions[bisect_right(positions, head.schedule_id) - 1]
                self._schedule.admit_unfiled([head], due_from[position], until)
            self._unread_frames = {position: due_from[position] for position in failed}
            for error in failed.values():
                raise error

    async def _heads(
        self, wanted: Callable[[int], bool]
    ) -> tuple[list[Unfiled], dict[int, OSError]]:
        recent = self._schedule.recent
        frames = [recent[i : i + FRAME] for i in range(0, len(recent), FRAME) if wanted(recent[i])]
        return await in_thread(FILL, read_frames, frames, self._log_records.payload)
