"""Segments of the message log, and the handles that are open on them.

A sealed segment is read only. Handles are few whatever the number of segments or subjects: the least
recently used one is closed when there are too many, but never while someone (a read in a thread, a sync,
the active segment) has it pinned. The handle of a file that was deleted is closed as soon as nobody has
it pinned: until then the disk keeps its room.
"""

from __future__ import annotations

import errno
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.segment_file import segment_name
from kumquat.core.logs.messages.format import (
    CHECKPOINT_SUFFIX,
    INDEX_SUFFIX,
    KEYS_SUFFIX,
    LOG_SUFFIX,
)


class Segment:
    """One file of the log: positions `base` to `end`."""

    __slots__ = (
        "base",
        "directory",
        "end",
        "entries",
        "newest_store_time",
        "preamble_complete",
        "preamble_end",
        "rows",
        "started",
        "unindexed",
    )

    def __init__(self, directory: Path, base: int) -> None:
        self.directory = directory
        self.base = base
        self.end = base
        """Behind the last frame that was written."""
        self.newest_store_time = 0
        self.entries = 0
        """How many batches it holds; counted while it is active."""
        self.started = 0
        """When it was begun."""
        self.preamble_complete = False
        self.preamble_end = base
        """Behind its preamble, if that is complete."""
        self.unindexed: dict[int, array[int]] | None = {}
        """Until the index file is written: subject id → entries. None: they are in the file."""
        self.rows: dict[int, int] = {}
        """Until then too: subject id → next sequence at the segment's end."""

    def __repr__(self) -> str:
        return f"<segment {self.base}..{self.end}>"

    @property
    def path(self) -> Path:
        return self.directory / segment_name(self.base, LOG_SUFFIX)

    @property
    def index_path(self) -> Path:
        return self.directory / segment_name(self.base, INDEX_SUFFIX)

    @property
    def keys_path(self) -> Path:
        return self.directory / segment_name(self.base, KEYS_SUFFIX)

    @property
    def checkpoint_path(self) -> Path:
        return self.directory / segment_name(self.base, CHECKPOINT_SUFFIX)

    @property
    def size(self) -> int:
        return self.end - self.base


class _Handle:
    __slots__ = ("fd", "pins")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.pins = 0


class OpenFiles:
    """Handles by path, least recently used first. Any thread may pin one."""

    def __init__(self, files: Files, limit: int = 64) -> None:
        self.files = files
        self._limit = limit
        self._handles: OrderedDict[Path, _Handle] = OrderedDict()
        self._forgotten: list[tuple[Path, _Handle]] = []
        """Those that are in use still. Whoever comes now opens the file again: it may be another one."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._handles)

    @contextmanager
    def pinned(self, path: Path) -> Iterator[int]:
        handle = self._pin(path, create=False)
        try:
            yield handle.fd
        finally:
            with self._lock:
                self._release(path, handle)

    def pin(self, path: Path, *, create: bool = False) -> int:
        return self._pin(path, create).fd

    def _pin(self, path: Path, create: bool) -> _Handle:
        with self._lock:
            handle = self._handles.get(path)
            if handle is None:
                handle = _Handle(self._open(path, create))
                self._handles[path] = handle
            self._handles.move_to_end(path)
            handle.pins += 1
            self._trim(self._limit)
            return handle

    def _open(self, path: Path, create: bool) -> int:
        """Where descriptors have run out, those that nobody uses are given up for it."""
        try:
            return self.files.open(path, exclusive=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._trim(0):
                raise
            return self.files.open(path, exclusive=create)

    def unpin(self, path: Path) -> None:
        with self._lock:
            handle = self._handles.get(path)
            if handle is None:
                handle = next(left for of, left in self._forgotten if of == path)
            self._release(path, handle)

    def _release(self, path: Path, handle: _Handle) -> None:
        handle.pins -= 1
        if (path, handle) in self._forgotten and not handle.pins:
            self._forgotten.remove((path, handle))
            self._close_handle(handle)
        self._trim(self._limit)

    def forget(self, path: Path) -> None:
        """The file is gone, or another one: close its handle, now or when the last user has let go."""
        with self._lock:
            handle = self._handles.pop(path, None)
            if handle is not None:
                if handle.pins:
                    self._forgotten.append((path, handle))
                else:
                    self._close_handle(handle)

    def close(self) -> None:
        with self._lock:
            for path in list(self._handles):
                self._close(path)
            for _, handle in self._forgotten:
                self._close_handle(handle)
            self._forgotten.clear()

    def _trim(self, limit: int) -> bool:
        """Close what nobody uses until no more than `limit` are open; whether any was."""
        before = len(self._handles)
        if before > limit:
            for path, handle in list(self._handles.items()):
                if not handle.pins:
                    self._close(path)
                if len(self._handles) <= limit:
                    break
        return len(self._handles) < before

    def _close(self, path: Path) -> None:
        self._close_handle(self._handles.pop(path))

    def _close_handle(self, handle: _Handle) -> None:
        with suppress(OSError):  # it is closed all the same
            self.files.close(handle.fd)
