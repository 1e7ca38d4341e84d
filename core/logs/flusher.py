"""Syncing beside the loop: what a log hands over, one job at a time, and is told of when it is done.

One job is under way at a time; whoever comes meanwhile is served by the next. That is group commit.
A job that waits for nothing but the fdatasync of one file, as nearly all do, is done by the kernel alone
(kernel_sync.py). The others, and all where the kernel does not help, are run by a thread: one for a log's
whole life, so that a sync costs no thread start. Both wake the loop through one epoll of their eventfds.

A job that fails with anything but an OSError is a mistake of ours, or memory has run out: it counts as
failed all the same. If the thread ended, nobody would ever be told, and all would wait for ever.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import trio

from core.logs.files import Files

log = logging.getLogger("kumquat.log")


class Job(Protocol):
    def run(self) -> None:
        """Blocks. OSError: it has failed."""

    def only_sync(self) -> int | None:
        """The file whose fdatasync is all that `run` would wait for; None: there is more to it."""

    def synced(self) -> None:
        """The rest of `run`, when that file is synced. Does not block."""


J = TypeVar("J", bound=Job)
Done = tuple[J, OSError | None]


class Flusher(Generic[J]):
    def __init__(self, files: Files) -> None:
        self._jobs: queue.SimpleQueue[J | None] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._done: queue.SimpleQueue[Done[J]] = queue.SimpleQueue()
        self._kernel = files.kernel_sync()
        self._in_kernel: J | None = None
        self._epoll = select.epoll()
        self._epoll.register(self._event, select.EPOLLIN)
        if self._kernel is not None:
            self._epoll.register(self._kernel.fileno(), select.EPOLLIN)
        self._thread = threading.Thread(target=self._work, name="kumquat-flusher", daemon=True)
        self._thread.start()

    def start_nowait(self, job: J) -> None:
        """Begin a round; `wait_done` tells when it is over."""
        if self._kernel is not None:
            fd = job.only_sync()
            if fd is not None and self._kernel.begin(fd):
                self._in_kernel = job
                return
        self._jobs.put(job)

    async def wait_done(self) -> Done[J]:
        """The next round to be over, and its outcome."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            done = self._from_kernel() or self._from_thread()
            if done is not None:
                return done

    def close(self) -> list[Done[J]]:
        """Blocks until the round under way is over; gives the rounds that nobody has waited for."""
        self._jobs.put(None)
        self._thread.join()
        last = [self._done.get() for _ in range(self._done.qsize())]
        if self._in_kernel is not None and self._kernel is not None:
            self._kernel.wait()
            last.append((self._in_kernel, self._kernel.error or _outcome(self._in_kernel.synced)))
        self._epoll.close()
        os.close(self._event)
        return last

    def _from_kernel(self) -> Done[J] | None:
        job, kernel = self._in_kernel, self._kernel
        if job is None or kernel is None or not kernel.finished():
            return None
        self._in_kernel = None
        return job, kernel.error or _outcome(job.synced)

    def _from_thread(self) -> Done[J] | None:
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return None
        return self._done.get_nowait()

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
