"""What is to be looked at when: one heap for all session clocks, held requests and timers.

A deadline that is moved on (each heartbeat does so) leaves its entry in the heap where it is; when that
comes up it is put back for the new time. So a heartbeat costs no heap operation, and the heap holds
about one entry for each deadline.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kumquat.core.delivery.undo import Undo

Key = tuple[Any, ...]


class Deadlines:
    def __init__(self, undo: Undo) -> None:
        self._undo = undo
        self._when: dict[Key, float] = {}
        self._queued: dict[Key, float] = {}
        """The earliest entry that the heap has for a key."""
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._when

    @property
    def next(self) -> float:
        """Nothing is due before; infinity when there is nothing at all."""
        return self._heap[0][0] if self._heap else float("inf")

    def when(self, key: Key) -> float | None:
        return self._when.get(key)

    def set(self, key: Key, when: float) -> None:
        self._undo.call(self._put_back, key, self._when.get(key))
        self._put(key, when)

    def move_on(self, key: Key, when: float) -> None:
        """`set`, which stays when the decision is taken back, unless the deadline is new: somebody was
        heard, whatever becomes of the request."""
        if key in self._when:
            self._put(key, when)
        else:
            self.set(key, when)

    def drop(self, key: Key) -> None:
        if key in self._when:
            self._undo.call(self._put_back, key, self._when.pop(key))

    def _put_back(self, key: Key, when: float | None) -> None:
        if when is None:
            self._when.pop(key, None)
        else:
            self._put(key, when)

    def _put(self, key: Key, when: float) -> None:
        self._when[key] = when
        queued = self._queued.get(key)
        if queued is None or when < queued:
            self._push(key, when)

    def due(self, now: float) -> list[Key]:
        """The deadlines that have passed; they are dropped."""
        passed = []
        while self._heap and self._heap[0][0] <= now:
            queued, _, key = heappop(self._heap)
            if self._queued.get(key) != queued:
                continue
            del self._queued[key]
            when = self._when.get(key)
            if when is None:
                continue
            if when <= now:
                del self._when[key]
                passed.append(key)
            else:
                self._push(key, when)
        return passed

    def _push(self, key: Key, when: float) -> None:
        self._queued[key] = when
        self._count += 1
        heappush(self._heap, (when, self._count, key))
