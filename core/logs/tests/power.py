"""`FakeFiles`: the file seam over a disk in memory that loses power, runs full and fails to sync.

Every call that changes something is a numbered step (`steps`, and `journal` in words). A test runs
its scenario once to count them, then again with `cut_power(step, when)` for each: from there every
call raises `PowerCut`, which is no `Exception`, so nothing handles it by accident. Then
- `after_power_cut(rng)` is a new disk with what was synced and any subset of what was not (see
  `disk.py`); call it with many seeds on one cut;
- `after_kill()` is a new disk with all that was written: the page cache outlives the process.
Both leave the disk at hand as it was: so a test may also run its scenario once, and in
`before_step` look at what a cut right there would leave.

Faults: `fail(Fault(...))` makes chosen calls raise, a `pwritev` after a prefix; `capacity` bounds
the pages of all files, and then writes stop short and `reserve` gives a part, as on a full disk. A
failed `fdatasync` loses its dirty pages without a word, as Linux does. `during_sync` is called
inside each `fdatasync`, between the moment that fixes what the sync covers and its end, without
the lock: a test writes there, or holds the sync with `HeldSync`. `cold` makes reads with `nowait`
raise as they do for a page that is not in memory. `bad_sectors` cannot be read until they are taken away.

Left out: renames from one directory to another, links, permissions, time stamps.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, NoReturn

from kumquat.core.logs.disk.files import Buffer
from kumquat.core.logs.tests.disk import PAGE, DirNode, Fate, FileNode, Mood, Node

When = Literal["before", "middle", "after"]


class PowerCut(BaseException):
    """The power is gone: nothing the process does from here on matters."""


@dataclass
class Fault:
    """Calls of `operation` on files with `name` in their name fail with `error`.

    The first `skip` of them go well, then `times` fail (None: all). `written`: what a failing
    `pwritev` has put into the file by then.
    """

    operation: str
    error: int
    name: str = ""
    skip: int = 0
    times: int | None = 1
    written: int = 0

    def strikes(self, operation: str, name: str) -> bool:
        if operation != self.operation or self.name not in name or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class HeldSync:
    """A hook for `during_sync`: every sync waits for `release()`; `started` is set when one
    does."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self._released = threading.Event()

    def __call__(self, path: Path) -> None:
        self.started.set()
        self._released.wait(timeout=120)

    def release(self) -> None:
        self._released.set()


@dataclass
class Handle:
    node: FileNode
    path: Path
    readonly: bool


def refuse(error: int, what: object) -> NoReturn:
    raise OSError(error, os.strerror(error), str(what))


class FakeFiles:
    """A disk in memory behind the file seam. `directory` and what is above it exist and are
    synced."""

    call_seconds = 0.0
    """How long a call takes, for whoever looks at the clock before and after it."""

    def __init__(self, directory: Path = Path("/data"), root: DirNode | None = None) -> None:
        self.directory = directory
        self.capacity: int | None = None
        self.cold = False
        self.bad_sectors: list[tuple[str, int, int]] = []
        """What cannot be read: the file's name, and from where to where."""
        self.expected: list[tuple[int, int]] = []
        self.during_sync: Callable[[Path], None] | None = None
        self.before_step: Callable[[], None] | None = None
        self.steps = 0
        self.journal: list[str] = []
        self._root = root or self._made(directory)
        self._handles: dict[int, Handle] = {}
        self._folders: dict[int, Path] = {}
        self._next_fd = 1000
        self._faults: list[Fault] = []
        self._cut: tuple[int, When] | None = None
        self._dead = False
        self._lock = threading.RLock()
        self._seconds = 0.0

    # What a test does to the disk

    def cut_power(self, step: int, when: When = "before") -> None:
        self._cut = (step, when)

    def after_power_cut(self, rng: Random, mood: Mood | None = None) -> "FakeFiles":
        with self._lock:
            return self._like_this(self._root.after_cut(Fate(rng, mood)))

    def after_kill(self) -> "FakeFiles":
        with self._lock:
            return self._like_this(self._root.clone())

    def _like_this(self, root: DirNode) -> "FakeFiles":
        files = FakeFiles(self.directory, root)
        files.call_seconds = self.call_seconds
        return files

    def fail(self, fault: Fault) -> None:
        self._faults.append(fault)

    def heal(self) -> None:
        """No more faults, and room for all."""
        self._faults.clear()
        self.bad_sectors.clear()
        self.capacity = None

    def content(self, path: Path) -> bytes:
        node = self._file(path)
        return node.read(0, node.size)

    def damage(self, path: Path, content: bytes) -> None:
        """Gives the file other bytes, safe on the disk, as rot or a hand would."""
        self._file(path).overwrite(content)

    def used(self) -> int:
        return PAGE * sum(len(node.blocks) for node in self._live_files())

    def open_handles(self) -> int:
        return len(self._handles) + len(self._folders)

    def unsynced(self) -> list[str]:
        """The files and directories with something that a power cut may take."""
        found = [str(path) for path, node in self._walk(self._root, Path("/")) if node.unsynced()]
        return sorted(found)

    # The file seam

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> int:
        with self._lock:
            self._check_power()
            self._strike("open", path)
            parent = self._dir(path.parent)
            node = parent.names.get(path.name)
            if node is None and (create or exclusive):
                with self._step("create", path):
                    node = FileNode()
                    parent.change(None, path.name, node)
            elif node is not None and exclusive:
                refuse(errno.EEXIST, path)
            if node is None:
                refuse(errno.ENOENT, path)
            if isinstance(node, DirNode):
                refuse(errno.EISDIR, path)
            self._next_fd += 1
            self._handles[self._next_fd] = Handle(node, path, readonly)
            return self._next_fd

    def close(self, fd: int) -> None:
        with self._lock:
            if self._folders.pop(fd, None) is None:
                self._handle(fd)
                del self._handles[fd]

    def size(self, fd: int) -> int:
        with self._lock:
            return self._handle(fd).node.size

    def clock(self) -> float:
        self._seconds += self.call_seconds
        return self._seconds

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(buffers)
        with self._lock:
            handle = self._handle(fd, to_write=True)
            with self._step("pwritev", handle.path, f"@{offset} +{len(data)}", soft=True) as fault:
                allowed = self._fitting(handle.node, offset, len(data))
                if fault:
                    allowed = min(allowed, fault.written)
                cut_short = self._cut == (self.steps, "middle")
                handle.node.write(offset, data[: allowed // 2 if cut_short else allowed])
                if fault:
                    refuse(fault.error, handle.path)
                if allowed < len(data):
                    refuse(errno.ENOSPC, handle.path)
        return len(data)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        with self._lock:
            handle = self._handle(fd)
            self._strike("pread", handle.path)
            end = min(offset + size, handle.node.size)
            for name, begin, behind in self.bad_sectors:
                if name == handle.path.name and begin < end and offset < behind:
                    refuse(errno.EIO, handle.path)
            return handle.node.read(offset, size)

    def preadv_into(
        self, fd: int, buffer: bytearray | memoryview, offset: int, *, nowait: bool
    ) -> int:
        if nowait and self.cold:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = self.pread(fd, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def expect(self, fd: int, offset: int, size: int) -> None:
        self.expected.append((offset, size))

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            handle = self._handle(fd)
            fault = self._begin("fdatasync", handle.path, soft=True)
            step = self.steps
            mark = handle.node.sync_begins()
        if self.during_sync:
            self.during_sync(handle.path)
        with self._lock:
            self._check_power()
            if self._cut == (step, "middle"):
                self._die()
            if fault:
                handle.node.sync_fails(mark)
                refuse(fault.error, handle.path)
            handle.node.sync_ends(mark)
            self._end(step)

    def open_dir(self, path: Path) -> int:
        with self._lock:
            self._check_power()
            self._strike("open", path)
            self._dir(path)
            self._next_fd += 1
            self._folders[self._next_fd] = path
            return self._next_fd

    def fsync_dir(self, directory: Path | int) -> None:
        if isinstance(directory, int):
            path = self._folders[directory]
        else:
            path = directory
            self._strike("open", path)
        with self._lock, self._step("fsync_dir", path):
            if self._cut != (self.steps, "middle"):
                self._dir(path).sync()

    def reserve(self, fd: int, offset: int, size: int) -> None:
        with self._lock:
            handle = self._handle(fd, to_write=True)
            with self._step("reserve", handle.path, f"@{offset} +{size}"):
                allowed = self._fitting(handle.node, offset, size)
                handle.node.reserve(offset, allowed)
                if allowed < size:
                    refuse(errno.ENOSPC, handle.path)

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            handle = self._handle(fd, to_write=True)
            with self._step("truncate", handle.path, f"to {size}"):
                handle.node.truncate(size)

    def rename(self, src: Path, dst: Path) -> None:
        assert src.parent == dst.parent, "the fake knows no rename between directories"
        with self._lock, self._step("rename", src, f"to {dst.name}"):
            self._dir(src.parent).change(src.name, dst.name, self._file(src))

    def unlink(self, path: Path) -> None:
        with self._lock, self._step("unlink", path):
            self._dir(path.parent).change(path.name, None, self._file(path))

    def listdir(self, path: Path) -> list[str]:
        with self._lock:
            self._check_power()
            return list(reversed(self._dir(path).names))

    def exists(self, path: Path) -> bool:
        with self._lock:
            self._check_power()
            return path.name in self._dir(path.parent).names

    def mkdir(self, path: Path) -> None:
        with self._lock:
            self._check_power()
            parent = self._dir(path.parent) if path.name else self._root
            if path.name and path.name not in parent.names:
                with self._step("mkdir", path):
                    parent.change(None, path.name, DirNode())
            self._dir(path)

    # Steps, faults, room

    @contextmanager
    def _step(
        self, operation: str, path: Path, detail: str = "", *, soft: bool = False
    ) -> Iterator[Fault | None]:
        fault = self._begin(operation, path, detail, soft=soft)
        yield fault
        self._end(self.steps)

    def _begin(
        self, operation: str, path: Path, detail: str = "", *, soft: bool = False
    ) -> Fault | None:
        """Numbers the step. A fault that strikes is raised, or if `soft` left to the caller."""
        self._check_power()
        if self.before_step:
            self.before_step()
        self.steps += 1
        self.journal.append(f"{self.steps} {operation} {path.name} {detail}".rstrip())
        if self._cut and (self.steps > self._cut[0] or self._cut == (self.steps, "before")):
            self._die()
        return self._strike(operation, path, soft=soft)

    def _strike(self, operation: str, path: Path, *, soft: bool = False) -> Fault | None:
        fault = next((one for one in self._faults if one.strikes(operation, path.name)), None)
        if fault and not soft:
            refuse(fault.error, path)
        return fault

    def _end(self, step: int) -> None:
        if self._cut and self._cut[0] == step:
            self._die()

    def _die(self) -> NoReturn:
        self._dead = True
        raise PowerCut(self.journal[-1])

    def _check_power(self) -> None:
        if self._dead:
            raise PowerCut

    def _fitting(self, node: FileNode, offset: int, size: int) -> int:
        """How many of `size` bytes at `offset` find room."""
        if self.capacity is None or not size:
            return size
        room = (self.capacity - self.used()) // PAGE
        for number in range(offset // PAGE, (offset + size - 1) // PAGE + 1):
            if number not in node.blocks:
                room -= 1
                if room < 0:
                    return max(0, number * PAGE - offset)
        return size

    # The tree

    def _handle(self, fd: int, *, to_write: bool = False) -> Handle:
        self._check_power()
        handle = self._handles.get(fd)
        if handle is None or (to_write and handle.readonly):
            refuse(errno.EBADF, fd)
        return handle

    def _node(self, path: Path) -> Node:
        node: Node = self._root
        for name in path.parts[1:]:
            if not isinstance(node, DirNode):
                refuse(errno.ENOTDIR, path)
            if name not in node.names:
                refuse(errno.ENOENT, path)
            node = node.names[name]
        return node

    def _dir(self, path: Path) -> DirNode:
        node = self._node(path)
        return node if isinstance(node, DirNode) else refuse(errno.ENOTDIR, path)

    def _file(self, path: Path) -> FileNode:
        node = self._node(path)
        return node if isinstance(node, FileNode) else refuse(errno.EISDIR, path)

    def _live_files(self) -> list[FileNode]:
        live = [node for _, node in self._walk(self._root, Path("/")) if isinstance(node, FileNode)]
        return live + [one.node for one in self._handles.values() if one.node not in live]

    def _walk(self, directory: DirNode, path: Path) -> Iterator[tuple[Path, Node]]:
        yield path, directory
        for name, node in directory.names.items():
            if isinstance(node, DirNode):
                yield from self._walk(node, path / name)
            else:
                yield path / name, node

    @staticmethod
    def _made(directory: Path) -> DirNode:
        root = here = DirNode()
        for name in directory.parts[1:]:
            child = DirNode()
            here.change(None, name, child)
            here.sync()
            here = child
        return root
