"""fdatasync without a thread: the kernel does it and tells through an eventfd (Linux AIO).

A thread that syncs needs the interpreter's lock before and after it does; while the loop is busy, to get
that takes longer than the disk. Asked this way, a sync takes only as long as the disk and one wake-up of
the loop.

It is the same fdatasync, of the same open file: it covers all that was written before it began, and its
error is this file's (seen with a block device that had run out of room). What cannot be had everywhere is
AIO itself: a system may have used up its share (fs.aio-max-nr), a sandbox may forbid it, and some files
have none. Then `begin` says no, and a thread does it.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress

from caio.linux_aio import Context, Operation

log = logging.getLogger("kumquat.log")

_REFUSED = (OSError, SystemError, RuntimeError, ValueError)
"""What the binding raises when the kernel does not take a request."""
_UNSIGNED = (1 << 64) - 1
"""A negative errno comes as an unsigned number."""


class KernelSync:
    """One sync at a time. Use `KernelSync.open`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._results: list[int] = []
        self.error: OSError | None = None
        """Of the last sync."""

    @classmethod
    def open(cls) -> KernelSync | None:
        """None: this system has no AIO to give."""
        try:
            return cls(Context(max_requests=1))
        except _REFUSED as error:
            log.warning(
                "the kernel gives no asynchronous I/O (%s); a thread syncs, which is slower: "
                "see fs.aio-max-nr, or what this sandbox forbids",
                error,
            )
            return None

    def fileno(self) -> int:
        """Readable when a sync is over."""
        return self._context.fileno

    def begin(self, fd: int) -> bool:
        """Whether the kernel has taken it."""
        operation = Operation.fdsync(fd)
        operation.set_callback(self._results.append)
        try:
            return self._context.submit(operation) == 1
        except _REFUSED:
            return False

    def finished(self) -> bool:
        """Whether the sync is over; `error` then tells how it went."""
        with suppress(BlockingIOError):
            self._context.poll()  # takes back the event that made `fileno` readable
        return self._collect()

    def wait(self) -> None:
        """Blocks until the sync is over."""
        while not self._collect(at_least=1, seconds=-1):
            pass

    def _collect(self, at_least: int = 0, seconds: int = 0) -> bool:
        try:
            self._context.process_events(1, at_least, seconds)
        except _REFUSED as error:
            self.error = OSError(errno.EIO, f"the kernel does not tell how a sync went: {error}")
            return True
        if not self._results:
            return False
        code = -self._results.pop() & _UNSIGNED
        self.error = OSError(code, os.strerror(code)) if code else None
        return True
