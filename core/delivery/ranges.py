"""Messages to be delivered again, kept as ranges: what it costs grows with holes, not with messages.

Sorted by sequence, disjoint; neighbours that were delivered together before are one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

FEW = 8
"""So many are added one by one; for more, all is put together anew."""


class Range(NamedTuple):
    first: int
    size: int
    attempt: int
    """Which delivery the next one is: 1 for the first."""
    since: int = 0
    """When the first delivery was, ms since the epoch; 0: there was none, or it is not known."""

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

    def next_from(self, sequence: int) -> Range | None:
        """The first range that has messages at `sequence` or above."""
        i = bisect_right(self._ranges, sequence, key=lambda r: r.end)
        return self._ranges[i] if i < len(self._ranges) else None

    def holds(self, sequence: int) -> bool:
        return self.find(sequence) is not None

    def find(self, sequence: int) -> Range | None:
        """The range that a sequence is in."""
        i = bisect_right(self._ranges, sequence, key=lambda r: r.first)
        return self._ranges[i - 1] if i > 0 and sequence < self._ranges[i - 1].end else None

    def add(self, new: Range) -> None:
        """A range that overlaps none that is there."""
        i = bisect_left(self._ranges, new.first, key=lambda r: r.first)
        self.total += new.size
        if i:
            before = self._ranges[i - 1]
            if before.end == new.first and before[2:] == new[2:]:
                i -= 1
                new = before._replace(size=before.size + new.size)
                del self._ranges[i]
        if i < len(self._ranges):
            following = self._ranges[i]
            assert new.end <= following.first
            if new.end == following.first and new[2:] == following[2:]:
                new = new._replace(size=new.size + following.size)
                del self._ranges[i]
        self._ranges.insert(i, new)

    def add_all(self, new: list[Range]) -> None:
        """Many, in any order: a member may go with thousands."""
        if len(new) <= FEW:
            for each in new:
                self.add(each)
            return
        self.total += sum(each.size for each in new)
        joined: list[Range] = []
        for each in sorted([*self._ranges, *new]):
            before = joined[-1] if joined else None
            if before is not None:
                assert before.end <= each.first
                if before.end == each.first and before[2:] == each[2:]:
                    joined[-1] = before._replace(size=before.size + each.size)
                    continue
            joined.append(each)
        self._ranges = joined

    def cut(self, first: int, end: int) -> list[Range]:
        """Take out all from `first` to below `end`, as far as it is there; gives what that was."""
        ranges = self._ranges
        low = max(0, bisect_right(ranges, first, key=lambda r: r.first) - 1)
        high = bisect_left(ranges, end, key=lambda r: r.first)
        kept: list[Range] = []
        taken: list[Range] = []
        for whole in ranges[low:high]:
            begin, stop = max(first, whole.first), min(end, whole.end)
            if begin >= stop:
                kept.append(whole)
                continue
            if whole.first < begin:
                kept.append(whole._replace(size=begin - whole.first))
            if stop < whole.end:
                kept.append(whole._replace(first=stop, size=whole.end - stop))
            taken.append(whole._replace(first=begin, size=stop - begin))
            self.total -= stop - begin
        ranges[low:high] = kept
        return taken

    def parts(self, most: int, pieces: int) -> Iterator[Range]:
        """The lowest messages, at most so many, in at most so many ranges."""
        for part in self._ranges[:pieces]:
            if most <= 0:
                return
            yield part if part.size <= most else part._replace(size=most)
            most -= part.size
