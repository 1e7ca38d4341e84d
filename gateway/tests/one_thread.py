"""A broker in one thread, which does the same in every run: for tests that count its calls.

What the broker does in threads is done in the loop instead, and so are its syncs (`InlineFlusher`). Trio
runs its tasks in an order that is always the same. Time is a mock clock that leaps to the next deadline
when nobody has anything to do; the wall clock goes with it and can be set apart from it
(core/wheel/tests/delays.py). There are no sockets.

A `Gate` in the way of the syncs of all logs holds them for as long as the test likes.
"""

from __future__ import annotations

import errno
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from kumquat.core.logs.flushing.flusher import Job

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


class InlineFlusher:
    """Stands for kumquat.core.logs.flushing.flusher.Flusher."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._news = trio.Event()

    def start_nowait(self, job: Job) -> None:
        self._jobs.append(job)
        self._news.set()

    async def wait_done(self) -> tuple[Job, OSError | None]:
        while True:
            await gate.wait()
            if self._jobs:
                return self._run_next()
            self._news = trio.Event()
            await self._news.wait()

    def close(self) -> list[tuple[Job, OSError | None]]:
        return [self._run_next() for _ in range(len(self._jobs))]

    def _run_next(self) -> tuple[Job, OSError | None]:
        job = self._jobs.popleft()
        try:
            job.run()
        except OSError as error:
            return job, error
        except Exception as error:
            return job, OSError(errno.EIO, f"{type(error).__name__}: {error}")
        return job, None


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
