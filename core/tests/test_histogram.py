"""The histogram against a sorted list: no percentile may be too low, none may be off by more than 1 %."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.histogram import Histogram

VALUES = st.one_of(st.integers(-5, 2_000), st.integers(0, 1 << 40))


@given(st.lists(st.tuples(VALUES, st.integers(1, 50)), min_size=1, max_size=60))
def test_percentiles_never_flatter_and_are_off_by_one_percent_at_most(
    counted: list[tuple[int, int]],
) -> None:
    histogram = Histogram()
    plain: list[int] = []
    for value, n in counted:
        histogram.add(value, n)
        plain += [max(value, 0)] * n
    plain.sort()
    for p in (1, 50, 99, 99.9, 100):
        true = plain[max(0, ceil(len(plain) * p / 100) - 1)]
        found = histogram.percentile(p)
        assert true <= found <= true * 1.01
        assert found == true or true >= 1_000
    assert (histogram.count, histogram.max) == (len(plain), plain[-1])
    assert histogram.total == sum(plain)


@given(st.lists(VALUES, max_size=60), st.lists(VALUES.filter(lambda v: v >= 0), max_size=8))
def test_no_value_is_missing_below_a_bound_or_counted_far_below_itself(
    values: list[int], bounds: list[int]
) -> None:
    histogram, bounds = Histogram(), sorted(set(bounds))
    for value in values:
        histogram.add(value)
    for bound, found in zip(bounds, histogram.below(bounds), strict=True):
        low = sum(value <= bound for value in values)
        high = sum(value <= bound * 1.008 for value in values)
        assert low <= found <= high


def test_nothing_counted_is_no_error() -> None:
    assert Histogram().snapshot() == (0, 0, 0, 0, 0)


def test_a_value_beyond_all_bounds_is_counted() -> None:
    histogram = Histogram()
    histogram.add(1 << 70)
    assert histogram.snapshot().p50 == (1 << 62) - 1
