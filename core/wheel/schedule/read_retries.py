"""Retries of records that are due and cannot be read at the moment, with longer and longer pauses.

An error of the machine (EIO, no file descriptors, no memory) does not mean that the message is damaged, and
must not hold up other messages. So its entry leaves the delivery queue and comes back after a second, then
two, then four, up to a minute. In the wheel it stays at hand, so it can be cancelled meanwhile.
`schedule_ids` is the schedule's set `held_back`: while it is not empty, W does not move (schedule.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from kumquat.core.complaints import Complaints
from kumquat.core.wheel.schedule.entries import Entry

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0


@dataclass(slots=True)
class _Retry:
    entry: Entry
    error: OSError
    pause: float
    again_at: float
    waits: bool
    """False: it was given back, and is being read."""


class ReadRetries:
    def __init__(self, schedule_ids: set[int]) -> None:
        self._schedule_ids = schedule_ids
        self._retries: dict[int, _Retry] = {}
        self._complaints = Complaints(logging.getLogger("kumquat.delay"))

    def __len__(self) -> int:
        return sum(retry.waits for retry in self._retries.values())

    def __contains__(self, schedule_id: int) -> bool:
        retry = self._retries.get(schedule_id)
        return retry is not None and retry.waits

    @property
    def reason(self) -> str | None:
        for retry in self._retries.values():
            return f"{len(self._retries)} messages that are due cannot be read: {retry.error}"
        return None

    def add(self, entry: Entry, error: OSError, now: float) -> None:
        before = self._retries.get(entry.schedule_id)
        pause = FIRST_PAUSE if before is None else min(LONGEST_PAUSE, 2 * before.pause)
        self._retries[entry.schedule_id] = _Retry(entry, error, pause, now + pause, True)
        self._schedule_ids.add(entry.schedule_id)
        self._complaints.error(
            entry.source,
            f"a message that is due cannot be read at the moment, it is tried again until it can be: "
            f"schedule id {entry.schedule_id}, due at {entry.due}: {error}",
        )

    def due_again(self, now: float) -> list[Entry]:
        """The entries whose pause is over: to be read again, and then added again or discarded."""
        again = [retry for retry in self._retries.values() if retry.waits and retry.again_at <= now]
        for retry in again:
            retry.waits = False
        return [retry.entry for retry in again]

    def discard(self, schedule_id: int) -> None:
        """Its record is read."""
        if self._retries.pop(schedule_id, None) is not None:
            self._schedule_ids.discard(schedule_id)

    def keep(self, still: Callable[[list[Entry]], list[Entry]]) -> None:
        """Forget the entries that were cancelled."""
        kept = {
            entry.schedule_id for entry in still([retry.entry for retry in self._retries.values()])
        }
        for schedule_id in self._retries.keys() - kept:
            self.discard(schedule_id)
