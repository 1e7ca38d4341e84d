"""The delay service: messages that a producer sends now and consumers see later, at their due time.

A producer asks for it with a header (`qmq-delay-ms`, `qmq-deliver-at`). Such a message is *parked*: it is
written to the message log at once, as durable as any other, but in a frame that consumers do not see. The
position of its record in the log is its *schedule id*. When it is due, the service appends it to its
subject as an ordinary message, and notes in the same write that it is delivered. It can be cancelled or
moved to another time until then, by schedule id, or by the *delay id* that the producer gave it.

    Produce ──▶ intake/ ──▶ message log ──▶ Schedule.apply
                                │                 │ due soon
                                │ tasks/filler.py │
                                ▼                 ▼
                          schedule files ────▶  wheel  ────▶ message log: consumers see it
                                tasks/loader.py     tasks/deliverer.py

    intake/        takes batches in; cancels and moves
    schedule/      what is known, in memory. Decisions: pure, no Trio, no disk. Begin with schedule.py
    files/         schedule files and their manifest: reading, writing, merging, repairing. Blocks, no Trio
    tasks/         the Trio tasks: deliverer, loader, filler, merger
    shell.py       carries out what decisions ask for: appends to the log, wakes the deliverer
    queries.py     counts and lists what is pending
    format.py      the bytes of a schedule file; dump.py prints them

A decision returns what is to be appended and when to wake (schedule/effects.py). The shell appends it. When
it is written, the log calls `Schedule.apply`, which changes the state; a failed append changes nothing.

This file puts the parts together and runs their tasks. The gateway sees nothing else, so the service could
become a process of its own.

Start: `open_with_delay` opens the log and the service; `run` is started when the first window is loaded, or
could not be. Stop: what is parked is filled into files once more, so that the next start has little to
read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from kumquat.core.clock import wall_clock_ms
from kumquat.core.errors import KumquatError, StartError
from kumquat.core.histogram import Histogram, Lateness
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
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.settles import SettleListener
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.writer import Appended
from kumquat.core.records.look import Look
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.files.message_finder import MessageFinder
from kumquat.core.wheel.files.record_reader import LogRecords, RecordReader
from kumquat.core.wheel.files.refill import refill
from kumquat.core.wheel.intake.cancels import Moment
from kumquat.core.wheel.intake.changes import Changes
from kumquat.core.wheel.intake.headers import encode_id
from kumquat.core.wheel.intake.intake import Intake
from kumquat.core.wheel.intake.lookup import Lookup
from kumquat.core.wheel.intake.options import DelayOptions
from kumquat.core.wheel.queries import Cursor, Page, Pending, Queries, parse
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.shell import Shell
from kumquat.core.wheel.tasks.deliverer import Deliverer
from kumquat.core.wheel.tasks.filler import Filler
from kumquat.core.wheel.tasks.loader import Loader
from kumquat.core.wheel.tasks.merger import Merger

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
    """pending, moved (and still pending), cancelled, delivered, remembered (a cancel or a move that waits
    for its message), unknown."""
    due: int
    schedule_id: int
    """-1 where there is none."""
    created: int | None = None
    """This and the next two: only of a pending message, if its content was asked for."""
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class DelayStatistics:
    pending: int
    scheduled: int
    """This and those up to `damaged`: since the start of the broker."""
    delivered: int
    cancelled: int
    moved: int
    dropped: int
    """They went with their subjects."""
    damaged: int
    overdue: int
    """Due and not delivered yet, of those that left the wheel."""
    lateness: Lateness
    """In milliseconds, measured when consumers can see the messages."""
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
        self.shell = shell = Shell(message_log)
        log_records = LogRecords(message_log.log)
        reader = RecordReader(log_records, file_set.by_number)
        self._deliverer = Deliverer(message_log, schedule, reader, shell, now_ms)
        self._filler = Filler(message_log, schedule, file_set, log_records, now_ms)
        lock = self._filler.lock
        self._loader = Loader(message_log, schedule, file_set, self._filler, shell.alarm, now_ms)
        self._merger = Merger(message_log, schedule, file_set, lock, now_ms)
        finder = MessageFinder(file_set, log_records)
        self._lookup = Lookup(schedule, finder)
        self._intake = Intake(message_log, schedule, self._lookup, shell, options, now_ms)
        self._changes = Changes(
            message_log, schedule, finder, self._lookup, lock, shell, options, now_ms
        )
        self._queries = Queries(message_log, schedule, file_set, self._filler)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled; then file what is parked, while the log still runs."""
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._loader.run)
                nursery.start_soon(self._deliverer.run)
                nursery.start_soon(self._merger.run)
                task_status.started()
        finally:
            with trio.move_on_after(_STOP_SECONDS, shield=True):
                await self._fill_before_stop()
            self._file_set.close()

    async def _fill_before_stop(self) -> None:
        """If it fails nothing is lost: the log has it all, and the next start has more to read."""
        try:
            await self._filler.fill()
        except (OSError, KumquatError) as error:
            log.warning("what is parked is not filed before the stop: %s", error)
        except Exception:
            log.exception("what is parked is not filed before the stop")

    # --- what the gateway calls -----------------------------------------------------------------

    async def produce(self, subject: Subject, batch: memoryview, look: Look) -> Appended:
        """Store a batch that may hold delayed records; written when it returns, durable when synced."""
        return await self._intake.produce(subject, batch, look)

    async def count(self, subject: Subject | None, due_from: int, due_to: int) -> int:
        """How many messages are pending with a due time in [due_from, due_to); None: of all subjects."""
        return await self._queries.count(subject, due_from, due_to)

    def pending_of(self, subject: Subject) -> int:
        """How many messages of a subject are pending, as it is counted all along."""
        return self._schedule.pending.get(subject.id, 0)

    async def list(
        self,
        subject: Subject | None,
        due_from: int,
        due_to: int,
        after: Cursor | None,
        limit: int,
    ) -> Page:
        """A page of the pending messages with a due time in [due_from, due_to), in order of due time."""
        return await self._queries.page(subject, due_from, due_to, after, limit)

    async def show(self, subject: Subject, delay_id: str, *, content: bool = False) -> Shown:
        """What became of the message that a delay id names; with `content`, what is in it if it is still
        pending."""
        key = (subject.id, encode_id(delay_id))
        target = await self._lookup.find(subject, key[1], content)
        moment = Moment(self._schedule, self._now_ms(), self._options)
        named = target.named
        remembered = self._schedule.ids.remembers(key, moment.now)
        if named is None or named.status == REMEMBERED:
            return Shown("remembered" if remembered else "unknown", -1, -1)
        if named.status in (CANCELLED, DELIVERED):
            return Shown(_STATUS[named.status], named.due, named.schedule_id)
        if not moment.waits(named):
            return Shown("delivered", named.due, named.schedule_id)
        status = "moved" if named.status == MOVED else "pending"
        due = self._schedule.due_of(named.schedule_id, named.due)
        if target.record is None:
            return Shown(status, due, named.schedule_id)
        found = parse(target.record)
        return Shown(status, due, named.schedule_id, found.created, found.key, found.value)

    async def cancel(
        self, subject: Subject, *, delay_id: str | None = None, schedule_id: int | None = None
    ) -> Shown:
        """Durable when it returns."""
        return await self._change(subject, delay_id, schedule_id, None)

    async def move(
        self,
        subject: Subject,
        *,
        delay_id: str | None = None,
        schedule_id: int | None = None,
        due: int,
    ) -> Shown:
        """Durable when it returns. A time that has passed means now."""
        return await self._change(subject, delay_id, schedule_id, due)

    async def _change(
        self, subject: Subject, delay_id: str | None, schedule_id: int | None, due: int | None
    ) -> Shown:
        item: CancelItem | None
        if delay_id is not None:
            item = await self._changes.change_named(subject, encode_id(delay_id), due)
            if item.outcome == DELIVERED and item.schedule_id < 0:
                item = None
        else:
            assert schedule_id is not None, "a delay id or a schedule id"
            item = await self._changes.change_scheduled(subject, schedule_id, due)
        if item is None:
            return Shown("unknown", -1, -1)
        return Shown(
            _STATUS[item.outcome],
            item.until if item.outcome == MOVED else item.due,
            item.schedule_id,
        )

    def recount(self) -> None:
        """Blocks: count again how much is pending, since some of it was lost."""
        counts = {one.id: self._queries.count_blocking(one.id) for one in self._log.subjects}
        self._schedule.pending = {subject: count for subject, count in counts.items() if count > 0}

    @property
    def lateness(self) -> Histogram:
        """In milliseconds."""
        return self._deliverer.lateness

    @property
    def failing(self) -> str | None:
        """Why messages cannot be delivered, loaded or filed at the moment."""
        return self._deliverer.failing or self._loader.failing

    @property
    def pending_by_subject(self) -> Mapping[int, int]:
        """Subject id → how many messages are for later; subjects that have none may be missing."""
        return self._schedule.pending

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
            failing=self.failing,
        )


def open_with_delay(
    options: LogOptions,
    delay_options: DelayOptions,
    files: Files | None = None,
    now_ms: Callable[[], int] = wall_clock_ms,
    join: Callable[[Files, Path], SettleListener] | None = None,
) -> tuple[MessageService, DelayService]:
    """Blocks: open the message log and the delay service on it. StartError says why that fails. `join`: see
    MessageService.open."""
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
        message_log = MessageService.open(options, files, now_ms, listen, join)
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
    # What is delivered was due by now, or by the last store time if the clock was ahead then.
    stored = max(segment.newest_store_time for segment in message_log.log.state.segments)
    schedule.finished.done_until = max(schedule.finished.done_until, stored, now_ms())
    service = DelayService(message_log, schedule, file_set, delay_options, now_ms)
    if lost_some:
        service.recount()
    return message_log, service
