"""How long the event loop keeps its tasks waiting.

All connections share one loop, so every client feels what holds it up. `Lag` wakes every INTERVAL, or up
to LONGEST_INTERVAL while the process does next to nothing, and counts how late it woke. Any other task
would have waited as long: for a long step of another task, for the garbage collector, for the interpreter
while a thread has it, for a processor. GET /statistics shows it, as percentiles and in buckets. Which step
was long is reported by process/step_tracer.py.
"""

from __future__ import annotations

import gc
from bisect import bisect_left
from dataclasses import dataclass
from math import inf
from time import perf_counter, process_time
from typing import Final

import trio

from kumquat.core.histogram import Histogram

INTERVAL: Final = 0.02
LONGEST_INTERVAL: Final = 0.32
QUIET: Final = 0.05
"""The process does next to nothing while it uses less than this part of a processor."""
WINDOW_SECONDS: Final = 30.0
BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)


@dataclass(frozen=True, slots=True)
class LagStatistics:
    """Of the event loop; times are microseconds."""

    looks: int
    p50: int
    p99: int
    p999: int
    max: int
    buckets_ms: dict[str, int]
    """Upper bound in milliseconds → how many looks were that late, and later than the bucket before."""
    collections: int
    """Runs of the garbage collector."""
    longest_collection: int
    """How long the longest of them took."""


class Lag:
    def __init__(self) -> None:
        self.histogram = Histogram()
        """In µs."""
        self.looked = -inf
        """When it last woke, on Trio's clock; -inf: it does not run."""
        self._window_ends = -inf
        self._worst = self._worst_before = 0.0
        self._buckets = [0] * (len(BUCKETS_MS) + 1)
        self._collections = 0
        self._longest_collection = 0.0
        self._collection_began = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        gc.callbacks.append(self._collected)
        try:
            interval, used = INTERVAL, process_time()
            while True:
                due = trio.current_time() + interval
                await trio.sleep_until(due)
                self.looked = trio.current_time()
                self.add(self.looked - due)
                self._remember(self.looked - due)
                before, used = used, process_time()
                interval = next_interval(interval, used - before)
        finally:
            gc.callbacks.remove(self._collected)

    def add(self, seconds: float) -> None:
        self.histogram.add(round(seconds * 1e6))
        self._buckets[bisect_left(BUCKETS_MS, seconds * 1e3)] += 1

    def _remember(self, seconds: float) -> None:
        if self.looked > self._window_ends:
            self._window_ends = self.looked + WINDOW_SECONDS
            self._worst_before, self._worst = self._worst, 0.0
        self._worst = max(self._worst, seconds)

    @property
    def worst(self) -> float:
        """How late it was at most in the last WINDOW_SECONDS, or up to twice as long; seconds."""
        return max(self._worst, self._worst_before)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = perf_counter()
        else:
            self._collections += 1
            took = perf_counter() - self._collection_began
            self._longest_collection = max(self._longest_collection, took)

    def statistics(self) -> LagStatistics:
        looks, p50, p99, p999, longest = self.histogram.snapshot()
        names = [*map(str, BUCKETS_MS), "more"]
        return LagStatistics(
            looks=looks,
            p50=p50,
            p99=p99,
            p999=p999,
            max=longest,
            buckets_ms=dict(zip(names, self._buckets, strict=True)),
            collections=self._collections,
            longest_collection=round(self._longest_collection * 1e6),
        )


def next_interval(interval: float, used: float) -> float:
    """How long to sleep, after so long a sleep in which the process used so many seconds of processor."""
    return min(2 * interval, LONGEST_INTERVAL) if used < QUIET * interval else INTERVAL
