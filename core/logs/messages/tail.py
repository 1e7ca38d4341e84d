"""What was just appended, kept in memory: readers who keep up never touch the disk.

Batches by the position of their frame; the oldest are dropped first. A batch arrives as a view of the
buffer that it was received in, and keeping the view keeps the whole buffer. So a small batch in a large
buffer is copied, and a large one is not. The limit counts the memory that is held, not the bytes of the
batches.
"""

from __future__ import annotations

from collections import deque

Batch = bytes | memoryview


class Tail:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: dict[int, Batch] = {}
        self._held: deque[tuple[int, int]] = deque()
        self.bytes_held = 0
        self.get = self._batches.get
        """The batch whose frame lies at a position, or None."""

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, position: int, batch: Batch, held: int) -> None:
        self._batches[position] = batch
        self._held.append((position, held))
        self.bytes_held += held
        while self.bytes_held > self._limit and len(self._held) > 1:
            dropped, size = self._held.popleft()
            del self._batches[dropped]
            self.bytes_held -= size


def keep(batch: memoryview) -> tuple[Batch, int]:
    """The batch in the form to keep, and how much memory that holds."""
    buffer = len(batch.obj)  # type: ignore[arg-type]
    if 4 * len(batch) < buffer:
        return bytes(batch), len(batch)
    return batch, buffer
