"""The file that a log appends to: all of a write or nothing of it.

Room on disk is reserved ahead of the data, so that a full disk shows before bytes are written and never
in a sync. A write that fails, or stops half-way, may leave bytes behind the last good one. The file
remembers that and is cut back before the next write, so that such bytes are never taken for a frame.
write_trouble.py says what is logged of failures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kumquat.core.logs.disk.files import Buffer, Files
from kumquat.core.logs.disk.write_trouble import WriteTrouble


class Reserving(NamedTuple):
    """How much room to reserve at a time."""

    step: int
    limit: int | None = None
    """A file is not expected to grow beyond this size: no room is reserved past it ahead of need."""


class ActiveFile:
    """The segment at `base`, open as `fd`, with `size` bytes in it. `release` gives the handle back."""

    __slots__ = (
        "_failing",
        "_files",
        "_path",
        "_release",
        "_reserved",
        "_reserving",
        "_trouble",
        "base",
        "fd",
        "size",
    )

    def __init__(
        self,
        files: Files,
        path: Path,
        fd: int,
        base: int,
        size: int,
        *,
        release: Callable[[], None],
        reserving: Reserving,
        trouble: WriteTrouble,
    ) -> None:
        self.base = base
        self.fd = fd
        self.size = size
        """Behind the last byte that was written as a whole."""
        self._files = files
        self._path = path
        self._release = release
        self._reserving = reserving
        self._reserved = size
        """How far into the file there is room on disk."""
        self._failing = False
        """The last write failed, and may have left bytes behind `size`."""
        self._trouble = trouble

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write the buffers behind all that is there, and give the new size. OSError: nothing was
        written."""
        size = self.size
        end = size + sum(map(len, buffers))
        try:
            self._make_room(end)
            self._files.pwritev(self.fd, buffers, size)
        except OSError as error:
            self._failing = True
            self._trouble.failed(self._path, error)
            raise
        self._failing = False
        if self._trouble.reason is not None:
            self._trouble.worked(self._path)
        self.size = end
        return end

    def place(self, buffers: Sequence[Buffer]) -> int:
        """Give the buffers their place behind all that is there, as `append` does, and room on disk, and
        give the new size. Somebody else writes them there. OSError: nothing has happened."""
        end = self.size + sum(map(len, buffers))
        try:
            self._make_room(end)
        except OSError as error:
            self._failing = True
            self._trouble.failed(self._path, error)
            raise
        self._failing = False
        self.size = end
        return end

    def write_placed(self, buffers: Sequence[Buffer], at: int) -> None:
        """Blocks: write buffers that were placed at this offset. OSError: they are to be written again."""
        self._files.pwritev(self.fd, buffers, at)

    def _make_room(self, end: int) -> None:
        if self._failing:
            self._files.truncate(self.fd, self.size)
            self._reserved = self.size
        if end > self._reserved:
            self._reserve(end)

    def _reserve(self, need: int) -> None:
        """Make room on disk up to `need`, and for some time to come, if the disk has that much."""
        step, limit = self._reserving
        ahead = self._reserved + step
        if limit is not None:
            ahead = min(ahead, limit)
        try:
            self._reserve_up_to(max(need, ahead))
        except OSError:
            if ahead <= need:
                raise
            self._reserve_up_to(need)

    def _reserve_up_to(self, end: int) -> None:
        self._files.reserve(self.fd, self._reserved, end - self._reserved)
        self._reserved = end

    def give_back_room(self) -> None:
        """Give back what was reserved and not used. It may fail without harm."""
        with suppress(OSError):
            self._files.truncate(self.fd, self.size)

    def release(self) -> None:
        """Give the handle back: nobody writes to this file any more."""
        with suppress(OSError):
            self._release()
