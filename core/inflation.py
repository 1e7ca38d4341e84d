"""Where compressed batches are inflated off the event loop: few at a time, in memory taken beforehand.

The size of a batch on the wire says nothing about what it inflates to: two kilobytes may hold sixty
megabytes, and a hundred connections may send such a batch each. So:
- Threads are few. They are split in two lanes, so that no honest producer waits behind such batches. Work
  that is not known to be large first runs in the *quick* lane, for batches that inflate to QUICK bytes at
  the most. What turns out to be larger (WouldBlock) is begun again in the *slow* lane, one at a time.
- Before a thread begins, room is taken for all that it will hold (core/memory.py), and only by work that is
  in a lane already: work that has to wait for much room does not stand in front of other work. The room is
  this object's own. Work that waits here may hold room elsewhere, for the bytes that were received; if it
  were the same room, all could wait for each other.
- An error comes back as a new one. The one that was raised in the thread refers to the thread's frames, and
  so to whatever they had inflated. Trio's way back to the loop ties it into a reference cycle, which only
  the garbage collector frees.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import trio

from kumquat.core.errors import KumquatError, WouldBlock
from kumquat.core.memory import Memory

QUICK: Final = 2 << 20
QUICK_THREADS: Final = 2
QUICK_ROOM: Final = 24 << 20
"""The most that work in the quick lane may hold: the slow lane can never keep it waiting for room."""

T = TypeVar("T")


class Inflation:
    def __init__(self, max_decompressed_bytes: int) -> None:
        self.limit = max_decompressed_bytes
        self.memory = Memory(max_decompressed_bytes + QUICK_THREADS * QUICK_ROOM)
        self._quick = trio.CapacityLimiter(QUICK_THREADS)
        self._slow = trio.CapacityLimiter(1)

    async def run(
        self,
        work: Callable[[int | None], T],
        held: int,
        held_slow: int | None = None,
        expected: int = 0,
    ) -> T:
        """The result of `work(most)`, run in a thread: it is to raise WouldBlock when it inflates more than
        `most` bytes; None: it may. It holds `held` bytes at the most, `held_slow` in the slow lane. It is
        expected to inflate `expected` bytes."""
        if held <= QUICK_ROOM and expected <= QUICK:
            with suppress(WouldBlock):
                return await self._run(lambda: work(QUICK), held, self._quick)
        return await self._run(lambda: work(None), held_slow or held, self._slow)

    async def run_sized(self, work: Callable[[], T], size: int, held: int) -> T:
        """The result of a work on so many inflated bytes."""
        quick = size <= QUICK and held <= QUICK_ROOM
        return await self._run(work, held, self._quick if quick else self._slow)

    async def _run(self, work: Callable[[], T], held: int, lane: trio.CapacityLimiter) -> T:
        held = min(held, max(self.limit, QUICK_ROOM))
        async with lane:
            await self.memory.take(held)
            try:
                result = await trio.to_thread.run_sync(_outcome, work)
            finally:
                self.memory.give(held)
        if isinstance(result, _Failed):
            raise result.kind(*result.args)
        return result


class _Failed:
    """An error without its traceback."""

    def __init__(self, error: KumquatError | WouldBlock) -> None:
        self.kind = type(error)
        self.args = error.args


def _outcome(work: Callable[[], T]) -> T | _Failed:
    try:
        return work()
    except (KumquatError, WouldBlock) as error:
        return _Failed(error)
