"""How long the event loop keeps tasks waiting, and what held it up.

All connections share one loop, so whatever holds it up is felt by every client. Two things watch it:

- `Lag` wakes every INTERVAL and counts how late it woke. That is what any other task would have waited:
  for a long step of another task, for the garbage collector, for the interpreter while a thread has it,
  for a processor. It is published with the statistics (GET /statistics), as percentiles and in buckets.
- `StepTracer` says which step was long. It costs a little on every step of every task, so it is off
  unless `loop.trace.ms` is set; then each longer step is a line in the log with its task, where that
  waits now, and, for a connection, who is served and with what.

Both belong to a process, not to a broker: server.py starts them.
"""

from __future__ import annotations

import gc
import logging
from bisect import bisect_left
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Final

import trio

from kumquat.core.wheel.schedule.lateness import Histogram
from kumquat.gateway.net.dispatch import dispatch

if TYPE_CHECKING:
    from types import FrameType

    from kumquat.gateway.net.dispatch import Session

INTERVAL: Final = 0.02
BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
_SHOWN_FRAMES: Final = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LagStatistics:
    """Of the event loop, in microseconds."""

    looks: int
    p50: int
    p99: int
    p999: int
    max: int
    buckets_ms: dict[str, int]
    """How many looks were not later than so many milliseconds, and later than the bucket before."""
    collections: int
    """Of garbage, and how long the longest took."""
    longest_collection: int


class Lag:
    def __init__(self) -> None:
        self._histogram = Histogram()
        self._buckets = [0] * (len(BUCKETS_MS) + 1)
        self._collections = 0
        self._longest_collection = 0.0
        self._collection_began = 0.0

    async def run(self) -> None:
        """Look until cancelled."""
        gc.callbacks.append(self._collected)
        try:
            while True:
                due = trio.current_time() + INTERVAL
                await trio.sleep_until(due)
                self.add(trio.current_time() - due)
        finally:
            gc.callbacks.remove(self._collected)

    def add(self, seconds: float) -> None:
        self._histogram.add(round(seconds * 1e6))
        self._buckets[bisect_left(BUCKETS_MS, seconds * 1e3)] += 1

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collection_began = perf_counter()
        else:
            self._collections += 1
            took = perf_counter() - self._collection_began
            self._longest_collection = max(self._longest_collection, took)

    def statistics(self) -> LagStatistics:
        looks, p50, p99, p999, longest = self._histogram.snapshot()
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


class StepTracer(trio.abc.Instrument):
    """Logs each step of a task that takes longer than `ms`."""

    def __init__(self, ms: int) -> None:
        self._longest = ms / 1000
        self._began, self._cpu = perf_counter(), thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began, self._cpu = perf_counter(), thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = perf_counter() - self._began
        if took > self._longest:
            cpu = thread_time() - self._cpu
            logger.warning(
                "a step of %s took %.1f ms (%.1f ms of processor time)%s",
                *(task.name, took * 1e3, cpu * 1e3, describe(task)),
            )


def describe(task: trio.lowlevel.Task) -> str:
    """Where a task waits after its step, innermost first, Trio's own calls left out; and whom it serves, if
    it is a connection."""
    frames = _frames(task.coro)
    if not frames:
        return ", and ended it"
    shown = [f"{f.f_code.co_qualname}:{f.f_lineno}" for f in frames[-_SHOWN_FRAMES:]]
    told = f", up to {' < '.join(reversed(shown))}"
    for frame in frames:
        session: Session | None = getattr(frame.f_locals.get("self"), "session", None)
        if session is not None:
            request = dispatch.describe(session.api_key, session.version)
            return f"{told}; its last request: {request} of {session.peer} ({session.client_id!r})"
    return told


def _frames(coroutine: Any) -> list[FrameType]:
    """The frames of a coroutine that is suspended, outermost first."""
    frames: list[FrameType] = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        if not frame.f_globals.get("__name__", "").startswith("trio."):
            frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return frames
