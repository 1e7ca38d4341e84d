"""Cancels and moves that come by the admin interface, for one message at a time.

The message is looked up, which takes time. Then all is decided on the loop, by the state at that moment
(cancels.py), and written in one step. The answer is given when it is durable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import trio

from kumquat.core.logs.messages.parked import CancelItem
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.wheel.files.message_finder import MessageFinder
from kumquat.core.wheel.intake.cancels import (
    Change,
    Moment,
    change_message,
    decide,
    decide_unnamed,
)
from kumquat.core.wheel.intake.lookup import Lookup, check_alive, search_in_thread
from kumquat.core.wheel.intake.options import DelayOptions
from kumquat.core.wheel.schedule.model import FRAME
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.shell import Shell


class Changes:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        finder: MessageFinder,
        lookup: Lookup,
        lock: trio.Lock,
        shell: Shell,
        options: DelayOptions,
        now_ms: Callable[[], int],
    ) -> None:
        self._log = message_log
        self._schedule = schedule
        self._finder = finder
        self._lookup = lookup
        self._lock = lock
        self._shell = shell
        self._options = options
        self._now_ms = now_ms

    async def change_named(
        self, subject: Subject, delay_id: bytes, new_due: int | None
    ) -> CancelItem:
        """Cancel or move the message that a delay id names, durably."""
        key = (subject.id, delay_id)
        while True:
            target = await self._lookup.find(subject, delay_id, new_due is not None)
            check_alive(subject)
            named = self._schedule.look_up(key) or target.named
            if new_due is None or named == target.named:  # else another message has the id now
                moment = self._moment()
                item = decide(moment, key, named, new_due)
                return await self._carry_out(change_message(moment, subject, item, target.record))

    async def change_scheduled(
        self, subject: Subject, schedule_id: int, new_due: int | None
    ) -> CancelItem | None:
        """Cancel or move the message with a schedule id, durably; None: there is none."""
        async with self._lock:
            frame = self._recent_frame(subject, schedule_id)
            found = await search_in_thread(self._finder.scheduled, subject.id, schedule_id, frame)
            if found is None or schedule_id in self._schedule.finished.struck_recently():
                return None
            due, delay_id, record = found
            holder = None
            if delay_id:
                holder = (await self._lookup.find(subject, delay_id, False)).named
            check_alive(subject)
            moment = self._moment()
            item = decide_unnamed(moment, schedule_id, due, new_due)
            if holder is not None and holder.schedule_id == schedule_id:
                item = item._replace(delay_id=delay_id)
            return await self._carry_out(change_message(moment, subject, item, record))

    async def _carry_out(self, change: Change) -> CancelItem:
        if change.parking is not None:
            self._shell.park(change.parking)
            await self._log.wait_synced(self._log.log.written_end)
        return change.answer

    def _moment(self) -> Moment:
        return Moment(self._schedule, self._now_ms(), self._options)

    def _recent_frame(self, subject: Subject, schedule_id: int) -> tuple[int, int] | None:
        """Position and length of the frame of this subject that holds a schedule id, if no file holds
        it."""
        recent = self._schedule.recent
        frames = range(0, len(recent), FRAME)
        i = bisect_right(frames, schedule_id, key=lambda at: recent[at]) - 1
        if i < 0 or recent[frames[i] + 2] != subject.id:
            return None
        return recent[frames[i]], recent[frames[i] + 1]
