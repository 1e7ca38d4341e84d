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

    def remove(self, first: int, size: int) -> None:
        """Take out sequences that all lie in one range."""
        i = bisect_right(self._ranges, first, key=lambda r: r.first) - 1
        whole = self._ranges[i]
        assert whole.first <= first
        assert first + size <= whole.end
        parts = []
        if first > whole.first:
            parts.append(Range(whole.first, first - whole.first, whole.attempt))
        if first + size < whole.end:
            parts.append(Range(first + size, whole.end - first - size, whole.attempt))
        self._ranges[i : i + 1] = parts
        self.total -= size

    def remove_below(self, sequence: int) -> int:
        """Take out all below a sequence; how many that were."""
        before = self.total
        while self._ranges and self._ranges[0].first < sequence:
            lowest = self._ranges[0]
            self.remove(lowest.first, min(lowest.size, sequence - lowest.first))
        return before - self.total

    def first_of(self, most: int) -> Range | None:
        """The lowest range, cut to at most that many."""
        if not self._ranges:
            return None
        first, size, attempt = self._ranges[0]
        return Range(first, min(size, most), attempt)
