"""Buffers for reading from disk, used again as soon as nobody has a view of them any more.

A new buffer of a megabyte costs several times as much as reading into it: the kernel has to find and
clear its pages. A response holds views of the buffer that it was read into, and is dropped when the
socket has taken it. The interpreter knows whether a buffer has views: a bytearray with a view may not
change its size, and raises BufferError. This holds for views of views and in any thread, until the last
one is released. It is a rule of the language, which a count of references is not. So a buffer is free
when its last byte can be removed and put back, which moves nothing. Any thread may take a buffer.

The buffers that were taken longest ago come first, because they are most likely to be free. Only a few are
tried: a try at one in use costs a few microseconds.
"""

from __future__ import annotations

import threading
from itertools import islice

SMALLEST = 64 << 10
"""What is smaller is not worth keeping."""
LIMIT = 32 << 20
LOOKS = 4


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
            fitting = (i for i, each in enumerate(self._pool) if size <= len(each) <= 4 * size)
            for i in islice(fitting, LOOKS):
                if is_free(self._pool[i]):
                    buffer = self._pool.pop(i)
                    self._pool.append(buffer)
                    return memoryview(buffer)[:size]
            made = bytearray(-(-size // SMALLEST) * SMALLEST)
            if len(made) <= self._limit:
                self._make_room(len(made))
                self._pool.append(made)
                self._held += len(made)
            return memoryview(made)[:size]

    def _make_room(self, size: int) -> None:
        """Forget the first buffers, used or not: one in use lives on with its views."""
        while self._pool and self._held + size > self._limit:
            self._held -= len(self._pool.pop(0))


def is_free(buffer: bytearray) -> bool:
    """Whether there is no view of it."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
