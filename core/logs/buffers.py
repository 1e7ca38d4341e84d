"""Buffers for reading from disk, used again as soon as nobody looks at them any more.

A new buffer of a megabyte costs several times what reading into it does: the kernel has to find and clear
its pages. An answer holds views of the buffer that it was read into, and nobody says when it has left; but
a view holds a reference, so a buffer that only the pool refers to is free. Any thread may take one.
"""

from __future__ import annotations

import threading
from sys import getrefcount

SMALLEST = 64 << 10
"""What is smaller is not worth keeping."""
LIMIT = 32 << 20
_IDLE = 3  # references to a free buffer: the pool's, the loop's variable, getrefcount's argument


class Buffers:
    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._held = 0
        self._pool: list[bytearray] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> memoryview:
        """`size` bytes, of any content, free again when all views of them are gone."""
        if size < SMALLEST:
            return memoryview(bytearray(size))
        with self._lock:
            for buffer in self._pool:
                if size <= len(buffer) <= 4 * size and getrefcount(buffer) == _IDLE:
                    return memoryview(buffer)[:size]
            made = bytearray(-(-size // SMALLEST) * SMALLEST)
            if len(made) <= self._limit:
                self._make_room(len(made))
                self._pool.append(made)
                self._held += len(made)
            return memoryview(made)[:size]

    def _make_room(self, size: int) -> None:
        """Forget the oldest buffers, used or not: one in use lives on with its views."""
        while self._pool and self._held + size > self._limit:
            self._held -= len(self._pool.pop(0))
