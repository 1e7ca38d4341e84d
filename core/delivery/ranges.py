"""Messages to be delivered again, kept as ranges: what it costs grows with holes, not with messages.

Sorted by sequence, disjoint; neighbours of the same attempt are one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Range(NamedTuple):
    first: int
    size: int
    attempt: int
    """Which delivery the next one is: 1 for the first."""

    @property
    def end(self) -> int:
        return self.first + self.size


class Ranges:
    __slots__ = ("_ranges", "total")

    def __init__(self) -> None:
        self._ranges: list[Range] = []
        self.total = 0

    def copy(self) -> Ranges:
        copied = Ranges()
        copied._ranges, copied.total = self._ranges.copy(), self.total
        return copied

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def lowest(self) -> int | None:
        return self._ranges[0].first if self._ranges else None

    def add(self, new: Range) -> None:
        """A range that overlaps none that is there."""
        i = bisect_left(self._ranges, new.first, key=lambda r: r.first)
        self.total += new.size
        if (
            i
            and self._ranges[i - 1].end == new.first
            and self._ranges[i - 1].attempt == new.attempt
        ):
            i -= 1
            new = Range(self._ranges[i].first, self._ranges[i].size + new.size, new.attempt)
            del self._ranges[i]
        if i < len(self._ranges):
            following = self._ranges[i]
            assert new.end <= following.first
            if new.end == following.first and new.attempt == following.attempt:
                new = Range(new.first, new.size + following.size, new.attempt)
                del self._ranges[i]
        self._ranges.insert(i, new)

    def cut(self, first: int, end: int) -> int:
        """Take out all from `first` to below `end`, as far as it is there; how many that were."""
        ranges, before = self._ranges, self.total
        low = max(0, bisect_right(ranges, first, key=lambda r: r.first) - 1)
        high = bisect_left(ranges, end, key=lambda r: r.first)
        kept = []
        for whole in ranges[low:high]:
            self.total -= whole.size
            if whole.first < first:
                kept.append(Range(whole.first, min(whole.end, first) - whole.first, whole.attempt))
            if end < whole.end:
                kept.append(Range(end, whole.end - end, whole.attempt))
        self.total += sum(part.size for part in kept)
        ranges[low:high] = kept
        return before - self.total

    def parts(self, most: int, pieces: int) -> Iterator[Range]:
        """The lowest messages, at most so many, in at most so many ranges."""
        for first, size, attempt in self._ranges[:pieces]:
            if most <= 0:
                return
            yield Range(first, min(size, most), attempt)
            most -= size
