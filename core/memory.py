"""Room for bytes that the broker holds for clients. It is taken before the memory is allocated.

A `Memory` counts; it allocates nothing. Code that is about to hold many bytes takes room for them first
and gives it back when they are gone. Room is given in the order in which it was asked for, so nobody
starves. A request that is larger than all the room gets it when nothing else holds any; it would wait
forever otherwise.

    memory.try_take(size)     True if there is room and nobody waits for it
    await memory.take(size)   when it is this one's turn; a cancelled wait takes nothing
    memory.overdraw(size)     for bytes that are held already: `free` may fall below zero
    memory.give(size)         back

To be called from the thread of the event loop only.
"""

from __future__ import annotations

from collections import deque

import trio


class Memory:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free = limit
        self._waiting: deque[tuple[int, float, trio.Event]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    def waited(self, now: float) -> float:
        """For how many seconds the first one has been waiting."""
        return now - self._waiting[0][1] if self._waiting else 0.0

    def try_take(self, size: int) -> bool:
        if self._waiting or not self._fits(size):
            return False
        self.free -= size
        return True

    async def take(self, size: int) -> None:
        if self.try_take(size):
            return
        entry = (size, trio.current_time(), trio.Event())
        self._waiting.append(entry)
        try:
            await entry[2].wait()
        except BaseException:
            if entry[2].is_set():
                self.give(size)
            else:
                self._waiting.remove(entry)
                self._let_in()
            raise

    def overdraw(self, size: int) -> None:
        self.free -= size

    def give(self, size: int) -> None:
        self.free += size
        if self._waiting:
            self._let_in()

    def _fits(self, size: int) -> bool:
        return size <= self.free or self.free >= self.limit

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, _, ready = self._waiting.popleft()
            self.free -= size
            ready.set()
