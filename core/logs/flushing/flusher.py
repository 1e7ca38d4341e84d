"""Running rounds of group commit in a thread, so that the event loop never waits for the disk.

A log hands over one job at a time; what is written meanwhile is the next job's. One thread serves a log
for its whole life, so that a sync does not cost the start of a thread. It wakes the loop through an
eventfd. (The kernel's own asynchronous sync, Linux AIO, was tried. It is as fast when the machine is
quiet. It is slower when the cores are busy, because its work waits for a worker on its CPU, and it does
not exist everywhere.)

A job that fails with anything but an OSError shows a mistake of ours, or memory has run out. It counts as
failed all the same: if the thread ended instead, nobody would ever be called, and all would wait for ever.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Generic, Protocol, TypeVar

import trio

log = logging.getLogger("kumquat.log")


class Job(Protocol):
    def run(self) -> None:
        """Blocks. OSError: it has failed."""


J = TypeVar("J", bound=Job)
Done = tuple[J, OSError | None, float]
"""A job, why it failed (if it did), and how many seconds it took."""


class Flusher(Generic[J]):
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[J | None] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done: queue.SimpleQueue[Done[J]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="kumquat-flusher", daemon=True)
        self._thread.start()

    def start_nowait(self, job: J) -> None:
        """Begin a round; `wait_done` returns it when it is over."""
        self._jobs.put(job)

    async def wait_done(self) -> Done[J]:
        """The next round to be over, and its outcome."""
        while True:
            await trio.lowlevel.wait_readable(self._event)
            with suppress(BlockingIOError):
                os.eventfd_read(self._event)
                return self._done.get_nowait()

    def close(self) -> list[Done[J]]:
        """Blocks until the round under way is over; gives the rounds that nobody has waited for."""
        self._jobs.put(None)
        self._thread.join()
        last = [self._done.get() for _ in range(self._done.qsize())]
        os.close(self._event)
        return last

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            began = perf_counter()
            error = outcome(job.run)
            self._done.put((job, error, perf_counter() - began))
            os.eventfd_write(self._event, 1)


def outcome(work: Callable[[], None]) -> OSError | None:
    """Why it failed, if it did."""
    try:
        work()
    except OSError as error:
        return error
    except Exception as error:
        log.exception("a sync failed in a way that was not foreseen")
        return OSError(errno.EIO, f"{type(error).__name__}: {error}")
    return None
