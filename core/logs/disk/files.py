"""The file seam: every touch of the disk by the logs goes through `Files`.

`RealFiles` is the operating system, as thin as can be: the hot path is one `pwritev`. The fake in
`tests/power.py` is the other implementation; it forgets what was never synced, tears what was
being written, runs out of room and fails to sync. What the logs may rely on is therefore written
here, once:

- All calls are synchronous. `fdatasync`, `fsync_dir` and a cold `pread` take as long as the disk
  does: call them off the event loop. Handles are small ints; any
  thread may use one, and a sync may run in one thread while another writes. What is written while
  a sync runs is not covered by it.
- `pwritev` writes everything or raises `OSError`. After an error nobody knows how much of it
  reached the file (on a full disk usually a prefix): truncate back, or do not trust the file past
  `offset`.
- `reserve` gives the file its blocks, and its size, ahead of the data: the new part reads as zeros
  and a later write into it cannot fail for want of room. A full disk shows here; then the file may
  have got a part of it: truncate it back.
- Written data is durable after `fdatasync` of its file; the file's size too. A created, renamed or
  unlinked name is durable after `fsync_dir` of its directory, whether or not the file itself was
  synced, and the other way round. A rename is atomic: a power cut leaves the old name or the new
  one, and whichever file is under a name is whole as far as it had been synced.
- A failed `fdatasync` must not be repeated: the kernel has dropped the error and may have dropped
  the data, so the second call would succeed and mean nothing.
- Errors are the operating system's: `OSError` with its errno, nothing of ours.

Left out: the lock on the data folder (it is about processes, not about data) and memory maps (a
map over a file that is cut kills the process).
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Protocol

Buffer = bytes | bytearray | memoryview

IOV_MAX: int = os.sysconf("SC_IOV_MAX")


class Files(Protocol):
    """What the logs may ask of a file system."""

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> int:
        """A handle. `create`: make it if it is missing; `exclusive`: make it, and fail if it is
        there."""

    def close(self, fd: int) -> None: ...

    def size(self, fd: int) -> int: ...

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        """Writes all buffers, one behind the other, from `offset`; gives their total length."""

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """`size` bytes, fewer only where the file ends."""

    def preadv_into(
        self, fd: int, buffer: bytearray | memoryview, offset: int, *, nowait: bool
    ) -> int:
        """Fills the buffer and gives how much: less than its length only where the file ends.

        `nowait`: only what is in memory, so it may stop short anywhere; `BlockingIOError` when
        that is nothing.
        """

    def expect(self, fd: int, offset: int, size: int) -> None:
        """This will be read soon: the system may begin to, and nobody waits for it."""

    def fdatasync(self, fd: int) -> None: ...

    def open_dir(self, path: Path) -> int:
        """A handle on a directory, for `fsync_dir`: who syncs often holds one, and then needs no new
        descriptor for it."""

    def fsync_dir(self, directory: Path | int) -> None:
        """Of a directory by its name, or by a handle."""

    def reserve(self, fd: int, offset: int, size: int) -> None: ...

    def truncate(self, fd: int, size: int) -> None: ...

    def rename(self, src: Path, dst: Path) -> None:
        """Gives `src` the name `dst`, in the place of what was there."""

    def unlink(self, path: Path) -> None: ...

    def listdir(self, path: Path) -> list[str]: ...

    def exists(self, path: Path) -> bool: ...

    def mkdir(self, path: Path) -> None:
        """Makes one directory; no error if it is there."""

    def clock(self) -> float:
        """Seconds. How long a call takes is measured with it."""


class RealFiles:
    """The operating system's files."""

    clock = staticmethod(perf_counter)

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> int:
        flags = os.O_RDONLY if readonly else os.O_RDWR
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        return os.open(path, flags, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        total = sum(map(len, buffers))
        if len(buffers) > IOV_MAX:
            for first in range(0, len(buffers), IOV_MAX):
                offset += self.pwritev(fd, buffers[first : first + IOV_MAX], offset)
        elif os.pwritev(fd, buffers, offset) != total:
            self._write_singly(fd, buffers, offset)
        return total

    def _write_singly(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Once more after a short write, so that its cause shows as the error of the write that
        follows."""
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                written = os.pwrite(fd, view, offset)
                offset += written
                view = view[written:]

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        data = os.pread(fd, size, offset)
        if len(data) == size or not data:
            return data
        return data + self.pread(fd, size - len(data), offset + len(data))

    def preadv_into(
        self, fd: int, buffer: bytearray | memoryview, offset: int, *, nowait: bool
    ) -> int:
        if nowait:
            return self._read_cached(fd, buffer, offset)
        view = memoryview(buffer)
        done = 0
        while done < len(view):
            count = os.preadv(fd, [view[done:]], offset + done)
            if not count:
                break
            done += count
        return done

    def _read_cached(self, fd: int, buffer: bytearray | memoryview, offset: int) -> int:
        try:
            return os.preadv(fd, [buffer], offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
            raise

    def expect(self, fd: int, offset: int, size: int) -> None:
        with suppress(OSError):
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_WILLNEED)

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def open_dir(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def fsync_dir(self, directory: Path | int) -> None:
        if isinstance(directory, int):
            os.fsync(directory)
            return
        fd = self.open_dir(directory)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def reserve(self, fd: int, offset: int, size: int) -> None:
        os.posix_fallocate(fd, offset, size)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, src: Path, dst: Path) -> None:
        src.replace(dst)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def listdir(self, path: Path) -> list[str]:
        return [entry.name for entry in path.iterdir()]

    def exists(self, path: Path) -> bool:
        return path.exists()

    def mkdir(self, path: Path) -> None:
        path.mkdir(exist_ok=True)


def write_file_atomically(files: Files, path: Path, data: Buffer) -> None:
    """After it returns, and after any power cut, `path` holds all of `data`; if it raises or is
    cut off, it holds `data` or what it held before. The file `path.tmp` may be left behind by a
    cut: ignore it, and the next call overwrites it."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        fd = files.open(temporary, create=True)
        try:
            files.truncate(fd, 0)
            files.pwritev(fd, [data], 0)
            files.fdatasync(fd)
        finally:
            files.close(fd)
        files.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)
        raise
    files.fsync_dir(path.parent)
