"""Collects a section of a schedule file while the file is written: in memory, beyond a limit on disk.

So a merge needs little memory whatever its size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kumquat.core.logs.disk.files import Buffer, Files

_READ = 1 << 20


class Spool:
    """Bytes that are added first and read once, from the beginning, when all are there."""

    def __init__(self, files: Files, path: Path, held: int) -> None:
        self._files = files
        self._path = path
        self._limit = held
        self._parts: list[Buffer] = []
        self._in_memory = 0
        self._on_disk = 0
        self._fd: int | None = None

    @property
    def size(self) -> int:
        return self._on_disk + self._in_memory

    def add(self, data: Buffer) -> None:
        self._parts.append(data)
        self._in_memory += len(data)
        if self._in_memory > self._limit:
            if self._fd is None:
                self._fd = self._files.open(self._path, create=True)
            self._files.pwritev(self._fd, [b"".join(self._parts)], self._on_disk)
            self._on_disk += self._in_memory
            self._parts, self._in_memory = [], 0

    def chunks(self) -> Iterator[Buffer]:
        for at in range(0, self._on_disk, _READ):
            assert self._fd is not None
            yield self._files.pread(self._fd, min(_READ, self._on_disk - at), at)
        yield b"".join(self._parts)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                self._files.close(fd)
            with suppress(OSError):
                self._files.unlink(self._path)
