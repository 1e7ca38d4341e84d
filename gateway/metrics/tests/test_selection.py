"""Series without end: too many of them, or other ones in each scrape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kumquat.gateway.metrics.selection import CALM_SECONDS, HALF_LIFE_SECONDS, Busiest, Selection

LOOK = 15.0


def test_few_are_left_out() -> None:
    selection: Selection[str] = Selection(3)
    assert selection.choose({"a": 0, "b": 5, "c": 0}, 0) == ["a", "b", "c"]


@given(
    st.integers(0, 6),
    st.lists(st.dictionaries(st.integers(0, 12), st.floats(0, 1e9)), min_size=1, max_size=10),
)
def test_more_are_shown_than_allowed_or_some_that_do_not_exist(
    limit: int, looks: list[dict[int, float]]
) -> None:
    selection: Selection[int] = Selection(limit)
    for number, weights in enumerate(looks):
        shown = selection.choose(weights, number * LOOK)
        assert len(shown) == len(set(shown)) <= limit
        assert set(shown) <= weights.keys()
        assert len(shown) == min(limit, len(weights)), "a place stays free"


def test_the_busiest_is_left_out() -> None:
    selection: Selection[str] = Selection(2)
    assert set(selection.choose({"a": 1, "b": 9, "c": 5, "d": 0}, 0)) == {"b", "c"}


def test_two_that_are_about_as_busy_take_turns() -> None:
    selection: Selection[str] = Selection(1)
    shown = selection.choose({"a": 100, "b": 90}, 0)
    for look in range(1, 50):
        weights = {"a": 100, "b": 190} if look % 2 else {"a": 110, "b": 80}
        assert selection.choose(weights, look * LOOK) == shown == ["a"]


def test_one_that_became_far_busier_never_gets_a_place() -> None:
    selection: Selection[str] = Selection(1)
    selection.choose({"a": 100, "b": 0}, 0)
    assert selection.choose({"a": 100, "b": 201}, LOOK) == ["b"]


def test_a_pause_costs_a_place_or_a_peak_keeps_it_for_ever() -> None:
    selection: Selection[str] = Selection(1)
    selection.choose({"a": 100, "b": 0}, 0)
    assert selection.choose({"a": 0, "b": 30}, LOOK) == ["a"]
    assert selection.choose({"a": 0, "b": 30}, 5 * HALF_LIFE_SECONDS) == ["b"]


def test_a_deleted_one_keeps_its_place() -> None:
    selection: Selection[str] = Selection(1)
    selection.choose({"a": 100, "b": 0}, 0)
    assert selection.choose({"b": 0, "c": 0}, LOOK) == ["b"]


def test_somebody_with_curl_changes_what_prometheus_sees() -> None:
    selection: Selection[str] = Selection(1)
    selection.choose({"a": 100, "b": 0}, 0)
    assert selection.choose({"a": 0, "b": 1_000_000}, CALM_SECONDS / 2) == ["a"]


def test_what_was_large_long_ago_hides_what_is_busy_now() -> None:
    busiest: Busiest[str] = Busiest(1)
    assert busiest.choose_by_growth({"old": 10**9, "new": 0}, 0) == ["old"], "nothing else is known"
    assert busiest.choose_by_growth({"old": 10**9, "new": 0}, LOOK) == ["old"]
    assert busiest.choose_by_growth({"old": 10**9, "new": 10}, 2 * LOOK) == ["new"]


def test_looks_in_between_hide_how_fast_something_grows() -> None:
    busiest: Busiest[str] = Busiest(1)
    busiest.choose_by_growth({"a": 0, "b": 0}, 0)
    for quick in range(1, 5):
        busiest.choose_by_growth({"a": 0, "b": quick * 10}, quick)
    assert busiest.choose_by_growth({"a": 0, "b": 40}, CALM_SECONDS) == ["b"]
