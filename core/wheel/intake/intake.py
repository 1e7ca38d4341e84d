"""Where messages for later are taken in, cancelled and moved; the shell around split.py and outcomes.py.

A batch that has to be opened is split, off the loop when it is large (core/inflation.py). A compressed
one is first looked through piece by piece, which says whether it asks for anything at all, and how much
memory it takes to split it. What it cancels or moves is looked up first, in a thread too where schedule
files have to be searched. Time passes meanwhile: so all is decided on the loop, in one go with the write,
by what holds then; and it is looked up again if a fill came in between.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, TypeVarTuple

import trio

from kumquat.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KumquatError,
    StorageError,
    WouldBlock,
)
from kumquat.core.logs.messages.parked import (
    DELIVERED,
    MOVE_REMEMBERED,
    MOVED,
    NO_ORIGIN,
    REMEMBERED,
    CancelItem,
    Origin,
)
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.writer import HEAVY, Appended
from kumquat.core.pools import QUERY, in_thread
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, LOG_APPEND_TIME, BatchHead, read_head
from kumquat.core.records.compression import LIGHT, held, inflate
from kumquat.core.records.marks import Survey, survey
from kumquat.core.wheel.files.message_finder import Finder
from kumquat.core.wheel.intake.cancels import (
    WAITING,
    BatchOutcome,
    Moment,
    Target,
    decide,
    decide_unnamed,
    moved,
)
from kumquat.core.wheel.intake.split import Split, split
from kumquat.core.wheel.schedule.model import FRAME, Named
from kumquat.core.wheel.schedule.schedule import Schedule

_WHILE_SPLIT = 2
"""How many times its records a batch takes while it is split: they, and what they become."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SubjectGone(KumquatError):
    """The subject was deleted while something was done for it."""

    error_code = 3  # UNKNOWN_TOPIC_OR_PARTITION


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOptions:
    max_ms: int = 2 * 365 * 86_400_000
    """`delay.max.ms`: no message may wait for longer."""
    cancel_remember_ms: int = 600_000
    """`delay.cancel.remember.ms`: how long a cancel waits for the message with its id."""


class Intake:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        finder: Finder,
        lock: trio.Lock,
        options: DelayOptions,
        now_ms: Callable[[], int],
        nudge: Callable[[int], None],
    ) -> None:
        self._inflation = message_log.inflation
        self._log = message_log
        self._schedule = schedule
        self._finder = finder
        self._lock = lock
        self._options = options
        self._now_ms = now_ms
        self._nudge = nudge

    # --- batches --------------------------------------------------------------------------------

    async def produce(self, subject: Subject, batch: memoryview) -> Appended:
        """Store a batch that has to be opened; written when it returns, durable when synced."""
        head = read_head(batch)
        if head.attributes & LOG_APPEND_TIME and not subject.config.log_append_time:
            raise InvalidTimestamp("a producer may not send batches of log append time")
        opened = await self._open(subject, batch, head)
        if opened is not None:
            return await self._park(subject, head, opened)
        _check_alive(subject)
        appended = self._log.log.append_nowait(subject, batch, look=False)
        self._log.write_nowait()
        return appended

    async def _open(self, subject: Subject, batch: memoryview, head: BatchHead) -> Split | None:
        """What a batch is split into; None: it asks for nothing."""
        now, most, limit = self._now_ms(), subject.config.max_message_bytes, self._inflation.limit
        size = len(batch)
        if head.attributes & CODEC_MASK:
            size, asks = await self._survey(batch, head)
            if not asks:
                return None
        work = partial(_split, batch, head, now, self._options.max_ms, most, limit)
        if size < HEAVY:
            return work()
        return await self._inflation.run_sized(work, size, _WHILE_SPLIT * size)

    async def _survey(self, batch: memoryview, head: BatchHead) -> Survey:
        limit = self._inflation.limit
        if len(batch) < HEAVY:
            try:
                return survey(batch, head, limit, LIGHT)
            except WouldBlock:
                pass
        needed = held(head.attributes & CODEC_MASK, batch[HEAD_SIZE:], limit)
        return await self._inflation.run(partial(survey, batch, head, limit), needed)

    async def _park(self, subject: Subject, head: BatchHead, opened: Split) -> Appended:
        moves = {cancel.delay_id: False for cancel in opened.cancels}
        moves.update({c.delay_id: True for c in opened.cancels if c.new_due is not None})
        targets = await self._find_all(subject, moves) if moves else {}
        _check_alive(subject)
        outcome = BatchOutcome(self._moment(), subject.id, opened, targets)
        origin = Origin(
            head.producer_id, head.producer_epoch, head.base_sequence, head.record_count
        )
        appended = self._log.log.park_nowait(
            subject, origin, outcome.parked, outcome.items, opened.plain
        )
        self._log.write_nowait()
        dues = [*opened.dues, *(c.new_due for c in opened.cancels if c.new_due is not None)]
        self._nudge(min(dues, default=1 << 62))
        return appended

    async def _find_all(self, subject: Subject, moves: dict[bytes, bool]) -> dict[bytes, Target]:
        """What the delay ids stand for. To be moved, a message must have been read: if another one came to
        have the id meanwhile, it is looked up again."""
        while True:
            targets = await self._find(subject, moves)
            known = {delay_id: self._schedule.look_up((subject.id, delay_id)) for delay_id in moves}
            named = {delay_id: known[delay_id] or targets[delay_id].named for delay_id in moves}
            if all(named[one] == targets[one].named for one, is_move in moves.items() if is_move):
                return targets

    def _moment(self) -> Moment:
        return Moment(self._schedule, self._now_ms(), self._options.cancel_remember_ms)

    # --- looking up -----------------------------------------------------------------------------

    async def find(self, subject: Subject, delay_id: bytes, with_record: bool) -> Target:
        """What a delay id stands for."""
        return (await self._find(subject, {delay_id: with_record}))[delay_id]

    async def _find(self, subject: Subject, moves: dict[bytes, bool]) -> dict[bytes, Target]:
        """What delay ids stand for, with the record where that is wanted. It holds when it returns."""
        schedule = self._schedule
        while True:
            filled = schedule.filled
            known = {delay_id: schedule.look_up((subject.id, delay_id)) for delay_id in moves}
            if None not in known.values() and True not in moves.values():
                return {delay_id: Target(named, None) for delay_id, named in known.items()}
            targets = await search_in_thread(self._search, subject.id, known, moves, filled)
            if schedule.filled == filled:
                return targets

    def _search(
        self,
        subject_id: int,
        known: dict[bytes, Named | None],
        moves: dict[bytes, bool],
        filled: int,
    ) -> dict[bytes, Target]:
        """Blocks."""
        targets = {}
        for delay_id, found in known.items():
            named = found or self._finder.name(subject_id, delay_id)
            record = None
            if moves[delay_id] and named is not None and named.status in WAITING:
                record = self._finder.record(subject_id, named.sid, named.due, filled)
            targets[delay_id] = Target(named, record)
        return targets

    # --- by hand --------------------------------------------------------------------------------

    async def change_named(
        self, subject: Subject, delay_id: bytes, new_due: int | None
    ) -> CancelItem:
        """Cancel or move what a delay id stands for, durably."""
        while True:
            target = await self.find(subject, delay_id, new_due is not None)
            _check_alive(subject)
            named = self._schedule.look_up((subject.id, delay_id)) or target.named
            if new_due is None or named == target.named:
                item = decide(self._moment(), (subject.id, delay_id), named, new_due)
                return await self._write(subject, item, target.record)

    async def change_scheduled(
        self, subject: Subject, sid: int, new_due: int | None
    ) -> CancelItem | None:
        """Cancel or move the message with a schedule id, durably; None: there is none."""
        async with self._lock:
            frame = self._recent_frame(subject, sid)
            found = await search_in_thread(self._finder.scheduled, subject.id, sid, frame)
            if found is None or any(dead.sid == sid for dead in self._schedule.tombstones):
                return None
            due, delay_id, record = found
            holder = (await self.find(subject, delay_id, False)).named if delay_id else None
            _check_alive(subject)
            item = decide_unnamed(self._moment(), sid, due, new_due)
            if holder is not None and holder.sid == sid:
                item = item._replace(delay_id=delay_id)
            return await self._write(subject, item, record)

    def _recent_frame(self, subject: Subject, sid: int) -> tuple[int, int] | None:
        """Position and length of the frame of this subject that holds a schedule id, if it is not filed."""
        recent = self._schedule.recent
        frames = range(0, len(recent), FRAME)
        i = bisect_right(frames, sid, key=lambda at: recent[at]) - 1
        if i < 0 or recent[frames[i] + 2] != subject.id:
            return None
        return recent[frames[i]], recent[frames[i] + 1]

    async def _write(self, subject: Subject, item: CancelItem, record: bytes | None) -> CancelItem:
        """What needs no frame changes nothing: it is too late, or was cancelled before."""
        remembered = item.outcome in (REMEMBERED, MOVE_REMEMBERED)
        if item.outcome == DELIVERED or (item.sid < 0 and not remembered):
            return item
        parked = b""
        if item.outcome == MOVE_REMEMBERED:
            self._check_due(item.due)
            item = item._replace(due=max(item.due, self._now_ms()))
        elif item.outcome == MOVED:
            self._check_due(item.until)
            item = item._replace(until=max(item.until, self._now_ms()))
            if record is None:
                raise CorruptMessage(f"the message scheduled as {item.sid} cannot be read")
            parked = moved(record, item.until)
        self._log.log.park_nowait(subject, NO_ORIGIN, parked, [item], None)
        self._log.write_nowait()
        self._nudge(item.until if item.outcome == MOVED else 1 << 62)
        await self._log.wait_synced(self._log.log.written_end)
        return item

    def _check_due(self, due: int) -> None:
        delay = due - self._now_ms()
        if delay > self._options.max_ms:
            raise InvalidRecord(
                f"a message cannot be moved to {due}: that is {delay} ms from now, delay.max.ms allows "
                f"{self._options.max_ms}"
            )


async def search_in_thread(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """A search on disk, whose failure the client is told."""
    try:
        return await in_thread(QUERY, work, *args)
    except OSError as error:
        raise StorageError(f"schedule files cannot be read: {error}") from error


def _split(
    batch: memoryview, head: BatchHead, now: int, max_ms: int, most: int, limit: int
) -> Split | None:
    data = inflate(head.attributes & CODEC_MASK, batch[HEAD_SIZE:], limit)
    return split(batch, head, data, now, max_ms, most)


def _check_alive(subject: Subject) -> None:
    if subject.deleted:
        raise SubjectGone(f"the subject {subject.name!r} has been deleted")
