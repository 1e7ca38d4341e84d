"""How late messages were delivered: a histogram whose p99.9 is accurate.

Log-linear buckets: one per millisecond up to 1,023, then 128 to each power of two, so a bucket is never
wider than 0.8 % of what it counts. A percentile is the upper end of its bucket, and never above the highest
value seen: it may be too high by 0.8 %, never too low. Its size does not grow.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

_EXACT_BITS = 10
_EXACT = 1 << _EXACT_BITS
_STEP_BITS = 7
_STEPS = 1 << _STEP_BITS
_HIGHEST = (1 << 62) - 1
_BUCKETS = _EXACT + (62 - _EXACT_BITS) * _STEPS


class Lateness(NamedTuple):
    """A snapshot, in milliseconds; all 0 when nothing was counted."""

    delivered: int
    p50: int
    p99: int
    p999: int
    max: int


class Histogram:
    def __init__(self) -> None:
        self.count = 0
        self.max = 0
        self._buckets = array("Q", bytes(8 * _BUCKETS))

    def add(self, ms: int, n: int = 1) -> None:
        """Count `ms`, `n` times. A negative value counts as 0."""
        ms = min(max(ms, 0), _HIGHEST)
        self._buckets[_bucket(ms)] += n
        self.count += n
        self.max = max(self.max, ms)

    def percentile(self, p: float) -> int:
        """The value that `p` percent do not exceed; 0 when nothing was counted."""
        wanted, seen = self.count * p / 100, 0
        for bucket, n in enumerate(self._buckets):
            seen += n
            if n and seen >= wanted:
                return min(_upper(bucket), self.max)
        return 0

    def snapshot(self) -> Lateness:
        p50, p99, p999 = (self.percentile(p) for p in (50, 99, 99.9))
        return Lateness(self.count, p50, p99, p999, self.max)


def _bucket(ms: int) -> int:
    if ms < _EXACT:
        return ms
    power = ms.bit_length() - 1 - _EXACT_BITS
    step = (ms >> (power + _EXACT_BITS - _STEP_BITS)) - _STEPS
    return _EXACT + power * _STEPS + step


def _upper(bucket: int) -> int:
    """The highest value that the bucket counts."""
    if bucket < _EXACT:
        return bucket
    power, step = divmod(bucket - _EXACT, _STEPS)
    return ((_STEPS + step + 1) << (power + _EXACT_BITS - _STEP_BITS)) - 1
