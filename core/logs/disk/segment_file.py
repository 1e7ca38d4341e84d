"""A segment's file as recovery sees it: bytes by position, and which of them the disk cannot read.

Both logs read their segments through this (disk/frames.py). A window of the file is in memory. With
`around`, a part that the disk cannot read, even when asked again (unreadable.py), reads as zeros and is
remembered: no frame in it can be valid, it does not count as blank, and it is never written back. Without
`around` it is an OSError.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Self

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.unreadable import Holes, read_around, read_patiently, refusal

MISSING = (
    "the end of the log is missing: it was synced up to position {end}, and the file holds nothing from "
    "here on. A copy of the folder that was made while its broker ran looks like this: stop a broker "
    "before you copy its folder. If this is no copy, the disk has lost what it had synced"
)
"""What a start of either log reports where a file ends too early."""


def segment_name(base: int, suffix: str) -> str:
    """A segment's file is named after the position of its first byte."""
    return f"{base:020d}{suffix}"


class SegmentFile:
    WINDOW = 4 << 20

    def __init__(
        self, files: Files, path: Path, base: int, *, around: bool, readonly: bool = False
    ) -> None:
        self._files = files
        self._path = path
        self._base = base
        self._fd = files.open(path, readonly=readonly)
        self.end = base
        """Where the file ends; reserved room may lie before it."""
        try:
            self.end += files.size(self._fd)
        except OSError:
            files.close(self._fd)
            raise
        self._around = around
        self._window = b""
        self._start = base
        self._holes: set[tuple[int, int]] = set()
        """Positions that cannot be read, as begin and end."""
        self._missed: set[tuple[int, int]] = set()
        """The same, with those that could be read later."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._files.close(self._fd)

    def unreadable(self, position: int, end: int) -> str | None:
        """Why a range cannot be read, as far as that was met; None when it can."""
        if any(begin < end and position < behind for begin, behind in self._holes):
            return f"the disk cannot read it ({os.strerror(errno.EIO)})"
        return None

    def check_readable(self) -> None:
        """OSError when nothing at all of the beginning can be read: the disk needs repair, and this is not
        damage to go on with."""
        data, holes = self._read(self._base, self.WINDOW)
        if data and sum(end - begin for begin, end in holes) == len(data):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._path))

    def check_readable_from(self, position: int) -> None:
        """StartError when something from there on cannot be read, or could not be read before: nothing is
        cut off that was not read."""
        at = position
        while at < self.end:
            data, _ = self._read(at, self.WINDOW)
            if not data:
                break
            at += len(data)
        refused = self.refused(position)
        if refused is not None:
            raise refused

    def refused(self, position: int) -> StartError | None:
        """Why nothing may be cut off from there on, as far as that was met."""
        missed = [begin for begin, end in self._missed if end > position]
        if not missed:
            return None
        what = "no sync is known to have covered it, and still it may have been acked"
        return refusal(self._path, max(position, min(missed)), self._base, what)

    def is_blank_from(self, position: int) -> bool:
        """Whether nothing but zeros follows: room that was reserved and never written."""
        while position < self.end:
            data, holes = self._read(position, self.WINDOW)
            if holes or not data or data.count(0) != len(data):
                return False
            position += len(data)
        return True

    def copy(self, position: int, to: int) -> None:
        """Copy all from `position` on into another file, without the blank end."""
        start = position
        while position < self.end:
            data, _ = self._read(position, self.WINDOW)
            if not data:
                return
            self._files.pwritev(to, [data.rstrip(b"\0")], position - start)
            position += len(data)

    def truncate(self, position: int) -> None:
        self._files.truncate(self._fd, position - self._base)
        self.end = position

    def write_again(self, position: int, end: int) -> None:
        """Write what is there from `position` to `end` once more, so that a sync takes it along: after a
        failed sync the kernel takes pages for clean that never reached the disk."""
        position = max(position, self._base)
        while position < end:
            data, holes = self._read(position, min(self.WINDOW, end - position))
            if not data:
                return
            at = position
            for begin, behind in [*holes, (position + len(data), 0)]:
                if at < begin:
                    part = data[at - position : begin - position]
                    self._files.pwritev(self._fd, [part], at - self._base)
                at = behind
            position += len(data)

    def sync(self) -> None:
        self._files.fdatasync(self._fd)

    def _load(self, position: int, size: int) -> bool:
        """Have a range in the window; whether that is another one now."""
        if self._start <= position and position + size <= self._start + len(self._window):
            return False
        self._window, _ = self._read(position, max(size, self.WINDOW))
        self._start = position
        return True

    def _read(self, position: int, size: int) -> tuple[bytes, Holes]:
        """Bytes within the file, and the positions of those that are missing."""
        size = max(0, min(size, self.end - position))
        if not self._around:
            return read_patiently(self._files, self._fd, size, position - self._base), []
        data, holes = read_around(self._files, self._fd, size, position - self._base)
        found = [(self._base + begin, self._base + end) for begin, end in holes]
        end = position + size
        self._holes = {(b, e) for b, e in self._holes if b < position or e > end} | set(found)
        self._missed.update(found)
        return data, found
