"""The delay service of a running broker: what the gateway sees of messages for later.

It decides nothing. It puts the parts together and runs their tasks:

    schedule.py    what is known; changes only in `apply`, which the message log calls
    intake/intake.py        takes batches in; cancels and moves
    deliverer.py   writes what is due into its subject
    loader.py      keeps the wheel loaded and the schedule files filled and merged
    wheel/queries.py     counts and lists what is pending

It lives inside the broker and shares its message log; all else is behind this file, so that it can become
a process of its own.

Start: `open_with_delay` opens both; `run` is started when the first window is loaded, or was tried in vain.
Stop: what is parked is filled into files once more, so that the next start has little to read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import trio

from kumquat.core.errors import KumquatError, StartError
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.parked import (
    CANCELLED,
    DELIVERED,
    MOVE_REMEMBERED,
    MOVED,
    REMEMBERED,
    CancelItem,
)
from kumquat.core.logs.messages.service import MessageService, wall_clock_ms
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.message_finder import Finder
from kumquat.core.wheel.files.record_reader import LogBodies, read_bodies
from kumquat.core.wheel.files.refill import refill
from kumquat.core.wheel.intake.cancels import Moment
from kumquat.core.wheel.intake.intake import DelayOptions, Intake
from kumquat.core.wheel.intake.split import encode_id
from kumquat.core.wheel.queries import Cursor, Page, Pending, Queries, parse
from kumquat.core.wheel.schedule.lateness import Lateness
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.tasks.deliverer import Deliverer
from kumquat.core.wheel.tasks.loader import Loader

__all__ = [
    "Cursor",
    "DelayOptions",
    "DelayService",
    "DelayStatistics",
    "Page",
    "Pending",
    "Shown",
    "open_with_delay",
]

log = logging.getLogger("kumquat.delay")

_STOP_SECONDS = 10.0
_STATUS = {
    CANCELLED: "cancelled",
    MOVED: "moved",
    DELIVERED: "delivered",
    REMEMBERED: "remembered",
    MOVE_REMEMBERED: "remembered",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What became of a message."""

    status: str
    """pending, moved (and pending still), cancelled, delivered, remembered (a cancel or a move that waits
    for its message), unknown."""
    due: int
    sid: int
    """-1 where there is none."""
    created: int | None = None
    """From here on: told of what is pending, when it was asked for."""
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class DelayStatistics:
    pending: int
    scheduled: int
    """From here to `damaged`: since the start of the broker."""
    delivered: int
    cancelled: int
    moved: int
    dropped: int
    """With their subjects."""
    damaged: int
    overdue: int
    """Due, and not delivered yet, of those at hand."""
    lateness: Lateness
    """In milliseconds, when consumers could see the messages."""
    loaded: int
    """Entries in memory."""
    loaded_until: int
    files: int
    failing: str | None
    """Why messages cannot be delivered, loaded or filed at the moment."""


class DelayService:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        file_set: FileSet,
        options: DelayOptions,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._log = message_log
        self._schedule = schedule
        self._file_set = file_set
        self._options = options
        self._now_ms = now_ms
        bodies = LogBodies(message_log.log)
        read = partial(read_bodies, log_bodies=bodies, files=file_set.by_number)
        self._deliverer = Deliverer(message_log, schedule, read, now_ms)
        nudge = self._deliverer.nudge
        self._loader = Loader(message_log, schedule, file_set, now_ms, nudge)
        finder = Finder(file_set, bodies)
        self._intake = Intake(
            message_log, schedule, finder, self._loader.lock, options, now_ms, nudge
        )
        self._queries = Queries(message_log, schedule, file_set, self._loader)
        self.count = self._queries.count
        self.list = self._queries.page
        self.produce = self._intake.produce

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled; then file what is parked, while the log is still running."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._loader.run)
                nursery.start_soon(self._deliverer.run)
                nursery.start_soon(self._loader.run_merges)
                task_status.started()
        finally:
            with trio.move_on_after(_STOP_SECONDS, shield=True):
                await self._fill_before_stop()
            self._file_set.close()

    async def _fill_before_stop(self) -> None:
        """The log has it all: if it fails, the next start has more to read, and nothing is lost."""
        try:
            await self._loader.fill()
        except (OSError, KumquatError) as error:
            log.warning("what is parked is not filed before the stop: %s", error)
        except Exception:
            log.exception("what is parked is not filed before the stop")

    async def show(self, subject: Subject, delay_id: str, *, content: bool = False) -> Shown:
        """What became of the message that a delay id stands for; with `content`, what is in it if it is
        still pending."""
        key = (subject.id, encode_id(delay_id))
        target = await self._intake.find(subject, key[1], content)
        moment = Moment(self._schedule, self._now_ms(), self._options.cancel_remember_ms)
        named = target.named
        remembered = self._schedule.remembers(key, moment.now)
        if named is None or named.status == REMEMBERED:
            return Shown("remembered" if remembered else "unknown", -1, -1)
        if named.status in (CANCELLED, DELIVERED):
            return Shown(_STATUS[named.status], named.due, named.sid)
        if not moment.waits(named):
            return Shown("delivered", named.due, named.sid)
        status = "moved" if named.status == MOVED else "pending"
        due = self._schedule.due_of(named.sid, named.due)
        if target.record is None:
            return Shown(status, due, named.sid)
        found = parse(target.record)
        return Shown(status, due, named.sid, found.created, found.key, found.value)

    async def cancel(
        self, subject: Subject, *, delay_id: str | None = None, sid: int | None = None
    ) -> Shown:
        """Durable when it returns."""
        return await self._change(subject, delay_id, sid, None)

    async def move(
        self, subject: Subject, *, delay_id: str | None = None, sid: int | None = None, due: int
    ) -> Shown:
        """Durable when it returns. A time that has passed means now."""
        return await self._change(subject, delay_id, sid, due)

    async def _change(
        self, subject: Subject, delay_id: str | None, sid: int | None, due: int | None
    ) -> Shown:
        item: CancelItem | None
        if delay_id is not None:
            item = await self._intake.change_named(subject, encode_id(delay_id), due)
            if item.outcome == DELIVERED and item.sid < 0:
                item = None
        else:
            assert sid is not None, "a delay id or a schedule id"
            item = await self._intake.change_scheduled(subject, sid, due)
        if item is None:
            return Shown("unknown", -1, -1)
        return Shown(
            _STATUS[item.outcome], item.until if item.outcome == MOVED else item.due, item.sid
        )

    def recount(self) -> None:
        """Blocks: how much is pending, counted again, since some of it was lost."""
        schedule = self._schedule
        subjects = [subject.id for subject in self._log.subjects]
        counts = {sid: self._queries.count_blocking(sid) for sid in subjects}
        schedule.pending = {sid: count for sid, count in counts.items() if count > 0}

    def statistics(self) -> DelayStatistics:
        schedule, counters = self._schedule, self._schedule.counters
        return DelayStatistics(
            pending=sum(schedule.pending.values()),
            scheduled=counters.scheduled,
            delivered=counters.delivered,
            cancelled=counters.cancelled,
            moved=counters.moved,
            dropped=counters.dropped,
            damaged=counters.damaged,
            overdue=self._deliverer.overdue,
            lateness=self._deliverer.lateness.snapshot(),
            loaded=schedule.wheel.count,
            loaded_until=schedule.loaded_until,
            files=len(self._file_set.current),
            failing=self._deliverer.failing or self._loader.failing,
        )


def open_with_delay(
    options: LogOptions,
    delay_options: DelayOptions,
    files: Files | None = None,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> tuple[MessageService, DelayService]:
    """The message log and the delay service upon it. Blocks. StartError says why it cannot."""
    opened: list[tuple[Schedule, FileSet]] = []

    def listen(files: Files, directory: Path) -> Schedule:
        file_set = FileSet(files, directory)
        start = file_set.manifest
        schedule = Schedule(
            start.filled,
            start.delivered_until,
            start.pending,
            start.remembered,
            start.done,
            start.done_until,
        )
        opened.append((schedule, file_set))
        return schedule

    try:
        message_log = MessageService.open(options, files, now_ms, listen)
    except BaseException:
        for _, file_set in opened:
            file_set.close()
        raise
    [(schedule, file_set)] = opened
    schedule.end_replay()
    try:
        lost_some = refill(file_set, message_log.log, schedule)
    except OSError as error:
        file_set.close()
        raise StartError(f"lost schedule files cannot be made again: {error}") from error
    # What is delivered was due by then: the clock may have been ahead of what it is now.
    stored = max(segment.newest_store_time for segment in message_log.log.state.segments)
    schedule.done_until = max(schedule.done_until, stored, now_ms())
    service = DelayService(message_log, schedule, file_set, delay_options, now_ms)
    if lost_some:
        service.recount()
    return message_log, service
