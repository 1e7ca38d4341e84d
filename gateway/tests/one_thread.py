"""A broker in one thread, which does the same in every run: for tests that count its calls.

What the broker does in threads is done in the loop instead, and so are its syncs (`InlineFlusher`). Trio
runs its tasks in an order that is always the same. Time is a mock clock that leaps to the next deadline
when nobody has anything to do; the wall clock goes with it and can be set apart from it
(core/wheel/tests/delays.py). There are no sockets.

A `Gate` in the way of the syncs of all logs holds them for as long as the test likes.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from kumquat.core.logs.flushing.flusher import Done, Flusher, J, outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

T = TypeVar("T")


class Gate:
    """Open until `hold`. One for all logs."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self._opened.set()

    @property
    def held(self) -> bool:
        return not self._opened.is_set()

    def hold(self) -> None:
        if not self.held:
            self._opened = trio.Event()

    def release(self) -> None:
        self._opened.set()

    async def wait(self) -> None:
        await self._opened.wait()


gate = Gate()


class InlineFlusher(Flusher[J]):
    """Runs a round when somebody waits for it. Its threads and descriptors are never made."""

    def __init__(self) -> None:
        self._rounds: deque[J] = deque()
        self._news = trio.Event()

    def start_nowait(self, job: J) -> None:
        self._rounds.append(job)
        self._news.set()

    async def wait_done(self) -> Done[J]:
        while True:
            await gate.wait()
            if self._rounds:
                return self._run_next()
            self._news = trio.Event()
            await self._news.wait()

    def close(self) -> list[Done[J]]:
        return [self._run_next() for _ in range(len(self._rounds))]

    def _run_next(self) -> Done[J]:
        job = self._rounds.popleft()
        return job, outcome(job.run), 0.0


async def _run_inline(work: Callable[..., T], *args: object, **_: Any) -> T:
    await trio.lowlevel.checkpoint()
    return work(*args)


def use_one_thread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kumquat.core.logs.flushing.rounds.Flusher", InlineFlusher)
    patch.setattr(trio.to_thread, "run_sync", _run_inline)
    patch.setattr(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    # A turn of a request ends by the real clock, so a busy machine would see other tasks in between.
    patch.setattr("kumquat.gateway.net.turns.TURN_SECONDS", inf)
    patch.setattr("kumquat.core.logs.messages.keys.service.STEP_SECONDS", inf)


def run(story: Callable[[], Awaitable[None]], most_seconds: float = 3_600) -> None:
    """Fails when it takes longer, by the mock clock."""

    async def limited() -> None:
        with trio.fail_after(most_seconds):
            await story()

    gate.release()
    trio_run._r.seed(0)
    trio.run(limited, clock=MockClock(autojump_threshold=0))
