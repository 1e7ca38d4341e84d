"""What is to be looked at when: one heap for all session clocks, held requests and timers.

A deadline that is moved on (each heartbeat does so) leaves its entry in the heap where it is; when that
comes up it is put back for the new time. So a heartbeat costs no heap operation. A deadline that is dropped
is taken out of the heap at once: its key may be large (a group's name has up to 32 kB), and a client can
have thousands dropped a second. So the heap holds one entry for each deadline, and knows where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kumquat.core.delivery.undo import Undo

Key = tuple[Any, ...]


class Deadlines:
    def __init__(self, undo: Undo) -> None:
        self._undo = undo
        self._when: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        """By time, then in the order in which they came. No entry is later than its deadline."""
        self._place: dict[Key, int] = {}
        """Where the heap has the entry of a key."""
        self._count = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._when

    def __len__(self) -> int:
        return len(self._when)

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
            self._undo.call(self._put_back, key, self._when[key])
            self._remove(key)

    def take(self, now: float) -> Key | None:
        """Look at the first entry, if its time has come: the key of a deadline that has passed, which is
        dropped; None if there is none, or it was moved on. One entry at a time: thousands may come up at
        once."""
        if not self._heap or self._heap[0][0] > now:
            return None
        key = self._heap[0][2]
        when = self._when[key]
        if when > now:
            self._enter(0, key, when)
            return None
        self._remove(key)
        return key

    def _put_back(self, key: Key, when: float | None) -> None:
        if when is not None:
            self._put(key, when)
        elif key in self._when:
            self._remove(key)

    def _put(self, key: Key, when: float) -> None:
        self._when[key] = when
        place = self._place.get(key)
        if place is None:
            self._heap.append((when, 0, key))
            self._enter(len(self._heap) - 1, key, when)
        elif when < self._heap[place][0]:
            self._enter(place, key, when)

    def _remove(self, key: Key) -> None:
        del self._when[key]
        place, last = self._place.pop(key), self._heap.pop()
        if place < len(self._heap):
            self._settle(place, last)

    def _enter(self, place: int, key: Key, when: float) -> None:
        self._count += 1
        self._settle(place, (when, self._count, key))

    def _settle(self, place: int, entry: tuple[float, int, Key]) -> None:
        """Put an entry into a place of the heap, and move it to where it belongs."""
        heap, places = self._heap, self._place
        while place and entry < heap[above := (place - 1) // 2]:
            heap[place] = heap[above]
            places[heap[place][2]] = place
            place = above
        size = len(heap)
        while (below := 2 * place + 1) < size:
            if below + 1 < size and heap[below + 1] < heap[below]:
                below += 1
            if entry < heap[below]:
                break
            heap[place] = heap[below]
            places[heap[place][2]] = place
            place = below
        heap[place] = entry
        places[entry[2]] = place
