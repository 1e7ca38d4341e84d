"""`FaultyFiles`: a disk in memory on which one chosen call fails once, and which tells what was called.

A call is named by its *site* and by how often that site had called before. A site is the operation, the
function that called it; where that function is a helper of many (an atomic write, the pool of open files),
the first above it that is not, and what that one called:

    pwritev files.write_file_atomically < manifest.save

A `Trace` counts the calls of all lives of a broker, over kills and restarts. A `Strike` is the one call
that fails, and how: with an errno, or "short". Short is what the contract in core/logs/disk/files.py
allows: a write or a reservation stops half-way and raises ENOSPC; a read with `nowait` gives half. A
read that may wait is short only where the file ends; core/logs/disk/tests/test_short_results.py holds
RealFiles to that.

A sync that fails loses what it was to make safe (core/logs/tests/disk.py). A close that fails has closed.
"""

from __future__ import annotations

import errno
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kumquat.core.logs.tests.power import FakeFiles, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from kumquat.core.logs.disk.files import Buffer
    from kumquat.core.logs.tests.disk import DirNode, Mood

SHORT = "short"
ERRORS = ("EIO", "ENOSPC", "EMFILE", "ENOMEM")
STOPS_SHORT = ("pwritev", "reserve", "preadv_into nowait")
"""Operations that have a short result."""
HELPERS = (
    *("disk/files.py", "messages/segment.py", "disk/unreadable.py", "disk/segment_file.py"),
    *("disk/frames.py", "disk/active_file.py", "disk/commit.py", "disk/local_commit.py"),
    "flushing/rounds.py",
    *("files/blocks.py", "files/record_reader.py", "writing/merge_input.py", "files/file.py"),
)
"""Who calls them is part of the site."""
_ROOT = Path(__file__).parents[2]
_OURSELVES = ("contextlib.py", "faulty_files.py", "one_thread.py", "pools.py", "power.py")
MOST_CALLS = 100_000


class Spinning(BaseException):
    """Something asks the disk again and again, without end; nobody may handle that."""


class Strike(NamedTuple):
    site: str
    call: int
    """Which call of the site fails: the first is 1."""
    how: str
    """One of ERRORS, or SHORT."""
    times: int = 1
    """How many calls of the site fail, one after the other."""

    def hits(self, site: str, call: int) -> bool:
        return site == self.site and self.call <= call < self.call + self.times

    def __str__(self) -> str:
        calls = f"call {self.call}" if self.times == 1 else f"{self.times} calls from {self.call}"
        return f"{self.how} at {calls} of: {self.site}"


@dataclass
class Trace:
    """What was called, in all lives of a broker, and what is to fail."""

    strike: Strike | None = None
    calls: Counter[str] = field(default_factory=Counter)
    struck: str | None = None
    """The operation and file that the strike hit."""
    hits: int = 0

    @property
    def is_of_data(self) -> bool:
        """Whether a read fails, and the device says so: if that passes, it is no reason not to start."""
        strike = self.strike
        return strike is not None and strike.site.startswith("pread") and strike.how == "EIO"

    def note(self, operation: str, path: object) -> str | None:
        """How this call is to fail, if it is."""
        site = f"{operation} {_site()}"
        self.calls[site] += 1
        if self.calls.total() > MOST_CALLS:
            raise Spinning(site)
        strike = self.strike
        if strike is None or not strike.hits(site, self.calls[site]):
            return None
        self.struck = f"{operation} {Path(str(path)).name}"
        self.hits += 1
        return strike.how


class FaultyFiles(FakeFiles):
    def __init__(
        self, directory: Path, root: DirNode | None = None, trace: Trace | None = None
    ) -> None:
        super().__init__(directory, root)
        self.trace: Trace | None = trace or Trace()
        """None: the process is dead, and what it still does on this disk counts for nothing."""

    def after_kill(self) -> FaultyFiles:
        return self._next_life(super().after_kill())

    def after_power_cut(self, rng: Random, mood: Mood | None = None) -> FaultyFiles:
        return self._next_life(super().after_power_cut(rng, mood))

    def names(self) -> list[str]:
        """Of all files."""
        return [path.name for path, _ in self._walk(self._root, Path("/"))]

    def open_names(self) -> list[str]:
        paths = [*(handle.path for handle in self._handles.values()), *self._folders.values()]
        return [path.name for path in paths]

    def _next_life(self, disk: FakeFiles) -> FaultyFiles:
        following = FaultyFiles(disk.directory, disk._root, self.trace)
        following.cold = self.cold
        self.trace = None
        return following

    def _note(self, operation: str, what: Path | int) -> str | None:
        if self.trace is None:
            return None
        handle = None if isinstance(what, Path) else self._handles.get(what)
        return self.trace.note(operation, what if handle is None else handle.path)

    def _check(self, operation: str, what: Path | int) -> None:
        """Fail before anything has happened, if it is to."""
        how = self._note(operation, what)
        if how is not None:
            _fail(how, what)

    # --- the file seam ---------------------------------------------------------------------------

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> int:
        self._check("open", path)
        return super().open(path, create=create, exclusive=exclusive, readonly=readonly)

    def close(self, fd: int) -> None:
        how = self._note("close", fd)
        super().close(fd)
        if how is not None:
            _fail(how, fd)

    def size(self, fd: int) -> int:
        self._check("size", fd)
        return super().size(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        how = self._note("pwritev", fd)
        if how == SHORT:
            half = sum(map(len, buffers)) // 2
            self.fail(Fault("pwritev", errno.ENOSPC, written=half))
        elif how is not None:
            self.fail(Fault("pwritev", getattr(errno, how)))
        return super().pwritev(fd, buffers, offset)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        self._check("pread", fd)
        return super().pread(fd, size, offset)

    def preadv_into(
        self, fd: int, buffer: bytearray | memoryview, offset: int, *, nowait: bool
    ) -> int:
        if nowait and self.cold:
            return super().preadv_into(fd, buffer, offset, nowait=True)
        how = self._note("preadv_into nowait" if nowait else "preadv_into", fd)
        if how is not None and how != SHORT:
            _fail(how, fd)
        data = super().pread(fd, len(buffer) // 2 if how else len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def fdatasync(self, fd: int) -> None:
        how = self._note("fdatasync", fd)
        if how is not None:
            self.fail(Fault("fdatasync", getattr(errno, how)))
        super().fdatasync(fd)

    def open_dir(self, path: Path) -> int:
        self._check("open_dir", path)
        return super().open_dir(path)

    def fsync_dir(self, directory: Path | int) -> None:
        self._check("fsync_dir", directory)
        super().fsync_dir(directory)

    def reserve(self, fd: int, offset: int, size: int) -> None:
        how = self._note("reserve", fd)
        if how == SHORT:
            super().reserve(fd, offset, size // 2)
        if how is not None:
            _fail(how, fd)
        super().reserve(fd, offset, size)

    def truncate(self, fd: int, size: int) -> None:
        self._check("truncate", fd)
        super().truncate(fd, size)

    def rename(self, src: Path, dst: Path) -> None:
        self._check("rename", dst)
        super().rename(src, dst)

    def unlink(self, path: Path) -> None:
        self._check("unlink", path)
        super().unlink(path)

    def listdir(self, path: Path) -> list[str]:
        self._check("listdir", path)
        return super().listdir(path)

    def exists(self, path: Path) -> bool:
        self._check("exists", path)
        return super().exists(path)

    def mkdir(self, path: Path) -> None:
        self._check("mkdir", path)
        super().mkdir(path)


def _fail(how: str, what: object) -> NoReturn:
    error = errno.ENOSPC if how == SHORT else getattr(errno, how)
    raise OSError(error, os.strerror(error), str(what))


def _site() -> str:
    """Who calls, of our own code."""
    frame: FrameType | None = sys._getframe(2)
    names: list[str] = []
    while frame is not None:
        name, is_last = _named(frame.f_code)
        if name:
            names.append(name)
        if is_last:
            break
        frame = frame.f_back
    return " < ".join(names[-2:])


@cache
def _named(code: CodeType) -> tuple[str, bool]:
    """What a function is called in a site, if it is in one; and whether the site ends with it."""
    path = Path(code.co_filename)
    if path.name in _OURSELVES:
        return "", False
    if not path.is_relative_to(_ROOT):
        return "", True
    name = f"{path.parent.name}.{path.stem}.{code.co_qualname}".replace("<locals>.", "")
    return name, not code.co_filename.endswith(HELPERS)
