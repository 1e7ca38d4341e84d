"""The events that wait to be written: a bounded list, and what was dropped.

The bound is `history.buffer.events`. An event about many ranges, or with a long list of schedule ids,
counts as many, so that the memory is bounded too. What does not fit is dropped and counted: by subject, for
the first thousand subjects. `missed` events say so when the buffer is taken next.

Synchronous, but for two events that wake the writing task (service.py): the first event since the last
`take`, and MANY of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from kumquat.gateway.history.events import MISSED, MOST_RANGES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kumquat.gateway.history.events import Event

MANY = 2_000
"""So many are written at once, without waiting for more."""
_SUBJECTS = 1_000


class Buffer:
    def __init__(self, now_ms: Callable[[], int], most: int) -> None:
        self._now_ms = now_ms
        self._most = most
        self._events: list[Event] = []
        self._weight = 0
        self._missed: dict[str, int] = {}
        self.recorded = self.missed = 0
        """Since the start of the broker."""
        self.news = trio.Event()
        """There are events."""
        self.many = trio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def add(
        self,
        at: int,
        event: str,
        subject: str,
        ranges: list[list[int]] | None,
        fields: Mapping[str, Any],
        weight: int = 1,
    ) -> None:
        """`weight`: how many events it counts as, if its fields are large."""
        if ranges is not None:
            while len(ranges) > MOST_RANGES:
                self._put((at, event, subject, ranges[:MOST_RANGES], fields), MOST_RANGES)
                ranges = ranges[MOST_RANGES:]
        self._put((at, event, subject, ranges, fields), max(weight, len(ranges or ())))

    def _put(self, event: Event, weight: int) -> None:
        weight += self._weight
        if weight > self._most:
            self.miss(event[2], 1)
            return
        if not self._events:
            self.news.set()
        self._events.append(event)
        self._weight = weight
        self.recorded += 1
        if weight >= MANY:
            self.many.set()

    def miss(self, subject: str, count: int) -> None:
        """Events were dropped."""
        self.missed += count
        if subject not in self._missed and len(self._missed) >= _SUBJECTS:
            subject = ""  # of any
        self._missed[subject] = self._missed.get(subject, 0) + count
        self.news.set()

    def take(self) -> list[Event]:
        """All events so far, and what was missed."""
        events, self._events, self._weight = self._events, [], 0
        if self._missed:
            now = self._now_ms()
            events += [
                (now, MISSED, subject, None, {"count": count})
                for subject, count in self._missed.items()
            ]
            self._missed = {}
        self.news, self.many = trio.Event(), trio.Event()
        return events

    def lost(self, events: Sequence[Event]) -> None:
        """These were taken and could not be written."""
        for _, what, subject, _, fields in events:
            count = fields["count"] if what == MISSED else 1
            self.miss(subject, count)
            if what == MISSED:
                self.missed -= count  # it was counted when it was missed
            else:
                self.recorded -= 1
