"""When garbage is collected: in small steps, and all of it only when no client notices.

Python frees what is no longer referred to at once; the collector is only for cycles. By default it
traverses all objects whenever enough new ones have survived. With a million objects that stops the event
loop for a tenth of a second, and it happens under load. So:

- What was loaded at the start is frozen: it is never traversed again. So is what is loaded once later.
- Young objects are traversed in portions that take a few milliseconds (`YOUNG`, `MIDDLE`).
- Only `Collector` traverses all objects: when the loop has been quiet for a second, and so rarely that the
  pauses are at most one part in SHARE of the time; or, if the loop is never quiet, after LONGEST_WAIT.
"""

from __future__ import annotations

import gc
from time import perf_counter, thread_time
from typing import Final

import trio

YOUNG: Final = 10_000
MIDDLE: Final = 8
NEVER: Final = 1 << 30
INTERVAL: Final = 1.0
QUIET: Final = 0.2
"""The loop is quiet when it uses less than this part of a processor."""
SHORTEST_WAIT: Final = 30.0
LONGEST_WAIT: Final = 600.0
SHARE: Final = 2_000


def settle() -> None:
    """The start is over: freeze what there is, and collect in small steps from here on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


def freeze() -> None:
    """Many modules were loaded: they need not be traversed either. What else there is now stays free to go
    when nobody refers to it; only a cycle that it is part of would stay."""
    gc.freeze()


class Collector:
    def __init__(self) -> None:
        self._last = 0.0
        self._took = 0.0

    async def run(self) -> None:
        """Collect now and then, until cancelled."""
        self._last = trio.current_time()
        used = thread_time()
        while True:
            await trio.sleep(INTERVAL)
            before, used = used, thread_time()
            if self.is_due(trio.current_time(), (used - before) / INTERVAL, gc.get_count()[2]):
                began = perf_counter()
                gc.collect()
                self.collected(trio.current_time(), perf_counter() - began)

    def is_due(self, now: float, busy: float, pending: int) -> bool:
        """Whether to collect all now. `pending`: how many portions have survived since the last time."""
        since = now - self._last
        if not pending:
            return False
        if busy < QUIET and since >= max(SHORTEST_WAIT, SHARE * self._took):
            return True
        return since >= max(LONGEST_WAIT, SHARE * self._took)

    def collected(self, now: float, took: float) -> None:
        self._last, self._took = now, took
