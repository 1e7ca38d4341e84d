"""When garbage is collected: in small steps, and all of it only when memory says that it must be.

Python frees what is no longer referred to at once; the collector is only for cycles. By default it
traverses all objects whenever enough new ones have survived. A run cannot be cut: with a million objects
it stops the event loop for a fifth of a second. So:

- What was loaded at the start is frozen: it is not traversed again. So is what is loaded once later.
- Young objects are traversed in portions that take a few milliseconds (`YOUNG`, `MIDDLE`).
- `Collector` traverses what has survived since, once a second, and then freezes that too: ten thousand
  connections are looked at once, some hundred at a time. Where more than MOST_PORTIONS survive within a
  second, they are frozen without that look.
- All objects, the frozen ones too, are traversed only when much may be garbage: GROWN_BYTES more are
  resident than after the last time. Then it waits for a second in which the loop is quiet, and is so rare
  that the pauses are at most one part in SHARE of the time; if the loop is never quiet, it comes after
  LONGEST_WAIT. So what lives long, or is large, should not end in a cycle.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final, Literal

import trio

YOUNG: Final = 3_000
MIDDLE: Final = 4
MOST_PORTIONS: Final = 2
NEVER: Final = 1 << 30
INTERVAL: Final = 1.0
QUIET: Final = 0.2
"""The loop is quiet when it uses less than this part of a processor."""
SHORTEST_WAIT: Final = 30.0
LONGEST_WAIT: Final = 600.0
SHARE: Final = 2_000
GROWN_BYTES: Final = 256 << 20


def settle() -> None:
    """The start is over: freeze what there is, and collect in small steps from here on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


def freeze() -> None:
    """Many modules were loaded: they need not be traversed either. What else there is now stays free to go
    when nobody refers to it; only a cycle that it is part of would stay."""
    gc.freeze()


def resident_bytes() -> int:
    """0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class Collector:
    def __init__(self) -> None:
        self._last = 0.0
        self._took = 0.0
        self._resident = 0
        """After all was last traversed."""

    async def run(self) -> None:
        """Collect now and then, until cancelled."""
        self.collected(trio.current_time(), 0.0, resident_bytes())
        used = thread_time()
        gc.callbacks.append(_portion_survived)
        try:
            while True:
                await trio.sleep(INTERVAL)
                before, used = used, thread_time()
                if gc.get_count()[2]:
                    gc.collect()
                    gc.freeze()
                    await trio.lowlevel.checkpoint()
                now, busy = trio.current_time(), (used - before) / INTERVAL
                if self.is_due(now, busy, resident_bytes()):
                    self._collect_all()
        finally:
            gc.callbacks.remove(_portion_survived)

    def _collect_all(self) -> None:
        began = perf_counter()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        took = perf_counter() - began
        self.collected(trio.current_time(), took, resident_bytes())

    def is_due(self, now: float, busy: float, resident: int) -> bool:
        """Whether to traverse all objects now."""
        if resident - self._resident < GROWN_BYTES:
            return False
        wait = SHORTEST_WAIT if busy < QUIET else LONGEST_WAIT
        return now - self._last >= max(wait, SHARE * self._took)

    def collected(self, now: float, took: float, resident: int) -> None:
        self._last, self._took, self._resident = now, took, resident


def _portion_survived(phase: Literal["start", "stop"], info: dict[str, int]) -> None:
    """Called by Python for each run of the collector."""
    if phase == "stop" and info["generation"] == 1 and gc.get_count()[2] > MOST_PORTIONS:
        gc.freeze()
