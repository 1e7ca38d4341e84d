"""Timers of hand-outs and locks: one task for all, which sleeps until the earliest.

What is due is named by the time that groups live by, in milliseconds (`now_ms`); the task sleeps by Trio's
clock. A timer that is set again for an earlier time replaces the later one. Nothing goes off early: a timer
is due when `now_ms` has reached it.
"""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_SLEEP = 60.0
"""Seconds, so that no clock has to agree with another for long."""
SPARE = 64
"""So many more entries that were replaced by earlier ones than there are timers, then they are dropped."""

AT_ONCE = 16

logger = logging.getLogger(__name__)


class Due(Protocol):
    def feed(self) -> None:
        """The time has come."""


class Timers:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._heap: list[tuple[int, int, Due]] = []
        self._when: dict[Due, int] = {}
        self._count = 0
        self._sooner = trio.Event()
        self._sleeps_until = 0

    def set(self, what: Due, when: int) -> None:
        known = self._when.get(what)
        if known is not None and known <= when:
            return
        self._when[what] = when
        self._count += 1
        heappush(self._heap, (when, self._count, what))
        if len(self._heap) > 2 * len(self._when) + SPARE:
            self._heap = [entry for entry in self._heap if self._when.get(entry[2]) == entry[0]]
            heapify(self._heap)
        if when < self._sleeps_until:
            self._sooner.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._fire()
            self._sooner = trio.Event()
            now = self._now_ms()
            seconds = LONGEST_SLEEP
            if self._heap:
                seconds = min(seconds, max(0.0, (self._heap[0][0] - now) / 1000))
            self._sleeps_until = now + int(seconds * 1000) + 1
            with trio.move_on_after(seconds):
                await self._sooner.wait()
            self._sleeps_until = 0

    def _fire(self) -> None:
        """Those that are due, AT_ONCE of them: then others have their turn. One that sets itself again for
        a time that is past does not hold up the loop."""
        now = self._now_ms()
        due: list[Due] = []
        while self._heap and self._heap[0][0] <= now and len(due) < AT_ONCE:
            when, _, what = heappop(self._heap)
            if self._when.get(what) == when:
                del self._when[what]
                due.append(what)
        for what in due:
            try:
                what.feed()
            except Exception:  # a fault of one group must not stop the timers of all
                logger.exception("what was due for %s failed", what)
