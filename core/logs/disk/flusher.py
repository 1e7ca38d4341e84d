"""Syncing beside the loop: what a log hands over, one job at a time, and is told of when it is done.

One job is under way at a time; whoever comes meanwhile is served by the next. That is group commit. A job
is run by a thread: one for a log's whole life, so that a sync costs no thread start. It wakes the loop
through an eventfd. (The kernel's own asynchronous sync, Linux AIO, was tried: level when the machine is
quiet, slower when its cores are busy, since its work waits for a worker of its CPU, and not to be had
everywhere.)

A job that fails with anything but an OSError is a mistake of ours, or memory has run out: it counts as
failed all the same. If the thread ended, nobody would ever be told, and all would wait for ever.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import trio

log = logging.getLogger("kumquat.log")


class Job(Protocol):
    def run(self) -> None:
        """Blocks. OSError: it has failed."""


J = TypeVar("J", bound=Job)
Done = tuple[J, OSError | None]


class Flusher(Generic[J]):
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[J | None] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done: queue.SimpleQueue[Done[J]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="kumquat-flusher", daemon=True)
        self._thread.start()

    def start_nowait(self, job: J) -> None:
        """Begin a round; `wait_done` tells when it is over."""
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
            self._done.put((job, _outcome(job.run)))
            os.eventfd_write(self._event, 1)


def _outcome(work: Callable[[], None]) -> OSError | None:
    """Why it failed, if it did."""
    try:
        work()
    except OSError as error:
        return error
    except Exception as error:
        log.exception("a sync failed in a way that was not foreseen")
        return OSError(errno.EIO, f"{type(error).__name__}: {error}")
    return None
