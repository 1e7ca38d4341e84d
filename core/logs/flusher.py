"""The thread that syncs: one for a log's whole life, so that a sync costs no thread start.

The loop hands it a job, the thread runs it and wakes the loop through an eventfd. One job is under way
at a time; whoever comes meanwhile is served by the next. That is group commit.

A job that fails with anything but an OSError is a mistake of ours, or memory has run out: it counts as
failed all the same. If the thread ended, nobody would ever be told, and all would wait for ever.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import threading
from typing import Generic, Protocol, TypeVar

import trio

log = logging.getLogger("kumquat.log")


class Job(Protocol):
    def run(self) -> None:
        """Blocks. OSError: it has failed."""


J = TypeVar("J", bound=Job)


class Flusher(Generic[J]):
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[J | None] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done: queue.SimpleQueue[tuple[J, OSError | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="kumquat-flusher", daemon=True)
        self._thread.start()

    def start_nowait(self, job: J) -> None:
        """Begin a round; `wait_done` tells when it is over."""
        self._jobs.put(job)

    async def wait_done(self) -> tuple[J, OSError | None]:
        """The next round to be over, and its outcome."""
        while True:
            try:
                os.eventfd_read(self._event)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._event)
            else:
                return self._done.get_nowait()

    def close(self) -> list[tuple[J, OSError | None]]:
        """Blocks until the round under way is over; gives the rounds that nobody has waited for."""
        self._jobs.put(None)
        self._thread.join()
        os.close(self._event)
        return [self._done.get() for _ in range(self._done.qsize())]

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome: OSError | None = None
            try:
                job.run()
            except OSError as error:
                outcome = error
            except Exception as error:
                log.exception("a sync failed in a way that was not foreseen")
                outcome = OSError(errno.EIO, f"{type(error).__name__}: {error}")
            self._done.put((job, outcome))
            os.eventfd_write(self._event, 1)
