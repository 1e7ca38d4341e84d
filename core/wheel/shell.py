"""Carries out what decisions of the delay service ask for: appends to the message log, and wake-ups.

    decision                         effect       what the shell does
    intake/: park, cancel, move      Parking      appends it, wakes the deliverer if it is due soon
    schedule/delivery_queue.py       Delivery     appends it

An append is one write, all or nothing. When it is written, the log calls `Schedule.apply`, which changes
the state; when it fails, StorageError is raised and the state is as it was before.

The alarm is how other tasks wake the deliverer. A batch that turns out to ask for nothing is not the delay
service's business: intake.py appends it as any other batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import trio

from kumquat.core.logs.messages.parked import schedule_ids_of
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.writer import Appended
from kumquat.core.wheel.schedule.delivery_queue import READ_MS
from kumquat.core.wheel.schedule.effects import Delivery, Parking


class DeliveryObserver(Protocol):
    """Who is told which parked messages got which sequences: the history of messages. It must not raise."""

    def delivered(
        self, subject: Subject, first: int, schedule_ids: Sequence[int], dues: Mapping[int, int]
    ) -> None:
        """They were written, in this order, from sequence `first` on: their schedule ids, and when each was
        due (among others)."""


class Alarm:
    """Wakes the deliverer, at a time or earlier."""

    def __init__(self) -> None:
        self._rings = trio.Event()
        self._set_for = 0

    async def wait(self, now: int, until: int) -> None:
        """Sleep until the time `until`, or until something that is due earlier comes up."""
        self._rings = trio.Event()
        self._set_for = until
        with trio.move_on_after((until - now) / 1000):
            await self._rings.wait()
        self._set_for = 0

    def ring_for(self, due: int) -> None:
        """Something that is due then came into the wheel: its record has to be read a little earlier."""
        if due - READ_MS < self._set_for:
            self._rings.set()


class Shell:
    def __init__(self, message_log: MessageService) -> None:
        self.alarm = Alarm()
        self.observer: DeliveryObserver | None = None
        """None while nobody's history is recorded."""
        self._log = message_log

    def park(self, parking: Parking) -> Appended:
        """Written when it returns, durable when synced. StorageError: nothing has happened."""
        subject, origin, parked, cancels, plain, wake_at = parking
        appended = self._log.log.park_nowait(subject, origin, parked, cancels, plain)
        self._log.write_nowait()
        self.alarm.ring_for(wake_at)
        return appended

    def deliver(self, delivery: Delivery) -> int:
        """Written when it returns; gives the position up to which the log must be synced for consumers to
        see it. StorageError: nothing has happened."""
        message_log = self._log.log
        firsts: list[tuple[Subject, int, bytes]] = []
        for subject, schedule_ids, batch in delivery.appends:
            if batch is None:
                message_log.give_up_nowait(subject, schedule_ids)
            else:
                appended = message_log.deliver_nowait(subject, schedule_ids, batch)
                firsts.append((subject, appended.base_sequence, schedule_ids))
        self._log.write_nowait()
        if self.observer is not None:
            dues = {entry.schedule_id: entry.due for entry in delivery.entries}
            for subject, first, schedule_ids in firsts:
                if subject.config.history:
                    self.observer.delivered(subject, first, schedule_ids_of(schedule_ids), dues)
        return message_log.written_end
