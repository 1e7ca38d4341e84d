"""Which step of which task held up the event loop, for `loop.trace.ms`.

A tracer costs a little on every step of every task, so there is none unless the option is set. Then each
step that takes longer is a line in the log, with its task and where the task waits now. For a connection
the line also has its client and the last request. How late the loop is in all is net/loop_lag.py's.
"""

from __future__ import annotations

import logging
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Final

import trio

from kumquat.gateway.net.dispatch import dispatch

if TYPE_CHECKING:
    from types import FrameType

    from kumquat.gateway.net.dispatch import Session

_SHOWN_FRAMES: Final = 3

logger = logging.getLogger(__name__)


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
    """Where a task waits after its step, innermost call first, without Trio's own calls. For a connection
    also the client and its last request."""
    frames = _frames(task.coro)
    if not frames:
        return ", and ended it"
    shown = [f"{f.f_code.co_qualname}:{f.f_lineno}" for f in frames[-_SHOWN_FRAMES:]]
    place = f", up to {' < '.join(reversed(shown))}"
    for frame in frames:
        session: Session | None = getattr(frame.f_locals.get("self"), "session", None)
        if session is not None:
            request = dispatch.describe(session.api_key, session.version)
            return f"{place}; its last request: {request} of {session.peer} ({session.client_id!r})"
    return place


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
