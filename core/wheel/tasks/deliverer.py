"""The task that delivers messages when they are due. Decisions are in schedule/delivery_queue.py.

- Never early: the wall clock is read at the moment of each delivery.
- After some milliseconds of work other tasks run. While too much is unsynced nothing is written.
- A write that fails changes nothing. It is tried again every second. One line in the broker's log says when
  that begins, another when it ends; `failing` says so meanwhile.

Lateness is counted when the messages are synced: that is when consumers can see them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

import trio

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.histogram import Histogram
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.pools import DELIVER, in_thread
from kumquat.core.wheel.files.record_reader import RecordReader
from kumquat.core.wheel.schedule.delivery_queue import DeliveryQueue
from kumquat.core.wheel.schedule.effects import Damaged
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.shell import Shell

log = logging.getLogger("kumquat.delay")

RETRY_SECONDS = 1.0


class Deliverer:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        reader: RecordReader,
        shell: Shell,
        now_ms: Callable[[], int],
    ) -> None:
        self.lateness = Histogram()
        self._failing: str | None = None
        """Why nothing can be delivered at the moment."""
        self._queue = DeliveryQueue(schedule)
        self._log = message_log
        self._reader = reader
        self._shell = shell
        self._now_ms = now_ms

    @property
    def overdue(self) -> int:
        """How many of the messages at hand should have been delivered by now."""
        return self._queue.overdue(self._now_ms())

    @property
    def failing(self) -> str | None:
        """Why messages cannot be delivered at the moment."""
        return self._failing or self._queue.failing

    async def run(self) -> None:
        while True:
            try:
                await self._work()
                self._succeeded()
            except (StorageError, OSError) as error:
                self._failed(error)
                await trio.sleep(RETRY_SECONDS)
                continue
            now = self._now_ms()
            await self._shell.alarm.wait(now, self._queue.next_look(now))

    async def _work(self) -> None:
        """Deliver all that is due, and read ahead."""
        queue = self._queue
        while True:
            await self._take()
            queue.retry(trio.current_time())
            if queue.is_due(self._now_ms()):
                if not queue.first_is_read and await self._read():
                    continue
                await self._log.wait_produce_unblocked()
                self._deliver()
                await trio.lowlevel.checkpoint()
            elif not await self._read():
                return

    async def _take(self) -> None:
        until = self._queue.take_until(self._now_ms())
        while until is not None and self._queue.take(until):
            await trio.lowlevel.checkpoint()

    async def _read(self) -> bool:
        """Read some records ahead; False: there is nothing to read, or no room."""
        self._queue.drop_withdrawn()
        entries = self._queue.to_read()
        if not entries:
            return False
        records = await in_thread(DELIVER, self._reader.read, entries)
        subjects = self._log.subjects.by_id
        self._queue.records_read(entries, records, subjects, trio.current_time())
        return True

    def _deliver(self) -> None:
        """Deliver the first messages that are due. StorageError: nothing of it has happened."""
        self._queue.drop_withdrawn()
        try:
            delivery = self._queue.decide(self._now_ms(), self._log.subjects.by_id)
        except MemoryError as error:
            raise StorageError("there is no memory to build batches of delayed messages") from error
        if delivery is None:
            return
        end = self._shell.deliver(delivery)
        self._queue.delivered(delivery)
        dues = [entry.due for entry in delivery.entries]
        self._log.call_when_synced(end, partial(self._synced, dues))
        for damaged in delivery.damaged:
            _report(damaged)

    def _synced(self, dues: list[int], error: KumquatError | None) -> None:
        if error is None:
            now = self._now_ms()
            for due, count in Counter(dues).items():
                self.lateness.add(now - due, count)

    # --- trouble --------------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        if self._failing is None:
            log.error("delayed messages cannot be delivered, trying again every second: %s", error)
        self._failing = str(error)

    def _succeeded(self) -> None:
        if self._failing is not None:
            self._failing = None
            log.warning("delayed messages are delivered again")


def _report(damaged: Damaged) -> None:
    log.error(
        "a message of %r, scheduled as %d and due at %d, is lost: its record is damaged: %s",
        damaged.subject,
        damaged.entry.schedule_id,
        damaged.entry.due,
        damaged.reason,
    )
