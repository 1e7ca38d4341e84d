"""How often which value was seen: a histogram whose p99.9 is accurate.

It counts whole numbers: how late messages were delivered, in ms; how late the event loop was and how long
syncs took, in µs; how many messages were handed out at once.

Log-linear buckets: one per number up to 1,023, then 128 to each power of two, so a bucket is never
wider than 0.8 % of what it counts. A percentile is the upper end of its bucket, and never above the highest
value seen: it may be too high by 0.8 %, never too low. Its size does not grow.

Prometheus wants fewer buckets, with bounds of its own: `below` adds up the fine ones. So a value is counted
once, whoever reads it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_EXACT_BITS = 10
_EXACT = 1 << _EXACT_BITS
_STEP_BITS = 7
_STEPS = 1 << _STEP_BITS
_HIGHEST = (1 << 62) - 1
_BUCKETS = _EXACT + (62 - _EXACT_BITS) * _STEPS


class Lateness(NamedTuple):
    """A snapshot, in the unit of what was counted; all 0 when nothing was."""

    delivered: int
    p50: int
    p99: int
    p999: int
    max: int


class Histogram:
    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        """The sum of all values."""
        self.max = 0
        self._buckets = array("Q", bytes(8 * _BUCKETS))

    def add(self, value: int, n: int = 1) -> None:
        """Count a value, `n` times. A negative one counts as 0."""
        if not 0 <= value <= _HIGHEST:
            value = 0 if value < 0 else _HIGHEST
        self._buckets[value if value < _EXACT else _bucket(value)] += n
        self.count += n
        self.total += value * n
        if value > self.max:
            self.max = value

    def percentile(self, p: float) -> int:
        """The value that `p` percent do not exceed; 0 when nothing was counted."""
        return self._at(p)[0]

    def _at(self, *percents: float) -> list[int]:
        if not self.count:
            return [0] * len(percents)
        sums = list(accumulate(self._buckets))
        buckets = (bisect_left(sums, max(1, self.count * p / 100)) for p in percents)
        return [min(_upper(bucket), self.max) for bucket in buckets]

    def below(self, bounds: Sequence[int]) -> list[int]:
        """How many values do not exceed each of the bounds, which go up. Beyond 1,023 a value that is up to
        0.8 % above a bound may be counted there."""
        counts, seen, begin = list[int](), 0, 0
        for bound in bounds:
            end = _bucket(bound) + 1
            seen += sum(self._buckets[begin:end])
            counts.append(seen)
            begin = end
        return counts

    def percentiles(self) -> dict[str, int]:
        p50, p99 = self._at(50, 99)
        return {"p50": p50, "p99": p99, "max": self.max}

    def snapshot(self) -> Lateness:
        p50, p99, p999 = self._at(50, 99, 99.9)
        return Lateness(self.count, p50, p99, p999, self.max)


def _bucket(value: int) -> int:
    if value < _EXACT:
        return value
    power = value.bit_length() - 1 - _EXACT_BITS
    step = (value >> (power + _EXACT_BITS - _STEP_BITS)) - _STEPS
    return _EXACT + power * _STEPS + step


def _upper(bucket: int) -> int:
    """The highest value that the bucket counts."""
    if bucket < _EXACT:
        return bucket
    power, step = divmod(bucket - _EXACT, _STEPS)
    return ((_STEPS + step + 1) << (power + _EXACT_BITS - _STEP_BITS)) - 1
