"""The histogram against a sorted list: no percentile may be too low, none may be off by more than 1 %."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.wheel.schedule.lateness import Histogram

VALUES = st.one_of(st.integers(-5, 2_000), st.integers(0, 1 << 40))


@given(st.lists(st.tuples(VALUES, st.integers(1, 50)), min_size=1, max_size=60))
def test_percentiles_never_flatter_and_are_off_by_one_percent_at_most(
    counted: list[tuple[int, int]],
) -> None:
    histogram = Histogram()
    plain: list[int] = []
    for ms, n in counted:
        histogram.add(ms, n)
        plain += [max(ms, 0)] * n
    plain.sort()
    for p in (1, 50, 99, 99.9, 100):
        true = plain[max(0, ceil(len(plain) * p / 100) - 1)]
        found = histogram.percentile(p)
        assert true <= found <= true * 1.01
        assert found == true or true >= 1_000
    assert (histogram.count, histogram.max) == (len(plain), plain[-1])


def test_nothing_counted_is_no_error() -> None:
    assert Histogram().snapshot() == (0, 0, 0, 0, 0)


def test_a_value_beyond_all_bounds_is_counted() -> None:
    histogram = Histogram()
    histogram.add(1 << 70)
    assert histogram.snapshot().p50 == (1 << 62) - 1
