"""Takes in a client's batch that may hold delayed records; the shell around split.py and cancels.py.

A batch that asks for something is split, off the loop when it is large (core/inflation.py). If the look at
it (core/records/look.py) could not say whether it asks, it is first looked through piece by piece in a
thread, which also says how much memory it takes to split it. What it cancels or moves is looked up first
(lookup.py). That takes time: so all is decided on the loop, in one step with the write, by the state at
that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kumquat.core.errors import InvalidTimestamp
from kumquat.core.logs.messages.parked import Origin
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.writer import Appended
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, LOG_APPEND_TIME, BatchHead
from kumquat.core.records.compression import held, inflate
from kumquat.core.records.look import LARGE, Look
from kumquat.core.records.marks import Survey, survey
from kumquat.core.wheel.intake.cancels import BatchOutcome, Moment
from kumquat.core.wheel.intake.lookup import Lookup, check_alive
from kumquat.core.wheel.intake.options import DelayOptions
from kumquat.core.wheel.intake.split import Split, split
from kumquat.core.wheel.schedule.effects import Parking
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.shell import Shell

_HEAVY = 16 << 10
"""Records of so many bytes are not split on the event loop."""
_WHILE_SPLIT = 2
"""How many times its records a batch takes while it is split: they, and what they become."""


class Intake:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        lookup: Lookup,
        shell: Shell,
        options: DelayOptions,
        now_ms: Callable[[], int],
    ) -> None:
        self._inflation = message_log.inflation
        self._log = message_log
        self._schedule = schedule
        self._lookup = lookup
        self._shell = shell
        self._options = options
        self._now_ms = now_ms

    async def produce(self, subject: Subject, batch: memoryview, look: Look) -> Appended:
        """Store a batch that asks for something, or is too large for the loop to know; written when it
        returns, durable when synced. `look`: Subject.look(batch)."""
        head = look.head
        original = self._log.log.original_of(subject, head)
        if original is not None:
            return original
        if head.attributes & LOG_APPEND_TIME and not subject.config.log_append_time:
            raise InvalidTimestamp("a producer may not send batches of log append time")
        opened = await self._open(subject, batch, look)
        if opened is not None:
            return await self._park(subject, head, opened)
        check_alive(subject)
        appended = self._log.append_nowait(subject, batch, head)
        self._log.write_nowait()
        return appended

    async def _open(self, subject: Subject, batch: memoryview, look: Look) -> Split | None:
        """What a batch is split into; None: it asks for nothing."""
        size = look.size
        if look.verdict is LARGE:
            size, asks = await self._survey(batch, look)
            if not asks:
                return None
        now, most, limit = self._now_ms(), subject.config.max_message_bytes, self._inflation.limit
        work = partial(_split, batch, look, now, self._options.max_ms, most, limit)
        if size < _HEAVY:
            return work()
        return await self._inflation.run_sized(work, size, _WHILE_SPLIT * size)

    async def _survey(self, batch: memoryview, look: Look) -> Survey:
        limit = self._inflation.limit
        needed = held(look.head.attributes & CODEC_MASK, batch[HEAD_SIZE:], limit)
        work = partial(survey, batch, look.head, limit)
        return await self._inflation.run(work, needed, expected=look.size)

    async def _park(self, subject: Subject, head: BatchHead, opened: Split) -> Appended:
        moves = {cancel.delay_id: False for cancel in opened.cancels}
        moves.update({c.delay_id: True for c in opened.cancels if c.new_due is not None})
        targets = await self._lookup.find_all(subject, moves) if moves else {}
        check_alive(subject)
        moment = Moment(self._schedule, self._now_ms(), self._options)
        outcome = BatchOutcome(moment, subject.id, opened, targets)
        origin = Origin(
            head.producer_id, head.producer_epoch, head.base_sequence, head.record_count
        )
        items, wake_at = outcome.items, outcome.wake_at
        return self._shell.park(
            Parking(subject, origin, outcome.parked, items, opened.plain, wake_at)
        )


def _split(
    batch: memoryview, look: Look, now: int, max_ms: int, most: int, limit: int
) -> Split | None:
    head, records = look.head, look.records
    if records is None:
        records = inflate(head.attributes & CODEC_MASK, batch[HEAD_SIZE:], limit)
    return split(batch, head, records, now, max_ms, most)
