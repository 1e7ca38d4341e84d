"""Deadlines against a table that is searched through; nothing is kept of those that are dropped."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.delivery.undo import Undo
from kumquat.gateway.groups.deadlines import Deadlines, Key

KEYS: list[Key] = [("session", number) for number in range(12)]
TIMES = st.integers(0, 30).map(float)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["set", "move_on"]), st.sampled_from(KEYS), TIMES),
    st.tuples(st.just("drop"), st.sampled_from(KEYS)),
    st.tuples(st.just("pass"), TIMES),
    st.sampled_from([("keep",), ("revert",)]),
)


def passed(deadlines: Deadlines, now: float) -> set[Key]:
    """All that has passed, earliest first."""
    found: dict[Key, float] = {}
    while deadlines.next <= now:
        before = {key: deadlines.when(key) for key in KEYS}
        key = deadlines.take(now)
        if key is not None:
            when = before[key]
            assert when is not None
            assert when >= max(found.values(), default=0.0)
            found[key] = when
    return set(found)


@given(st.lists(STEPS, max_size=60))
def test_what_has_passed_is_found_and_nothing_else_whatever_was_taken_back(
    steps: list[tuple[Any, ...]],
) -> None:
    undo = Undo()
    deadlines = Deadlines(undo)
    model: dict[Key, float] = {}
    kept: dict[Key, float] = {}
    """What `revert` leads back to."""
    for name, *arguments in steps:
        match name, *arguments:
            case "set", key, when:
                deadlines.set(key, when)
                model[key] = when
            case "move_on", key, when:
                deadlines.move_on(key, when)
                if key in model and key in kept:
                    undo.clear()  # such a decision does nothing else with the key
                    kept = {**model, key: when}
                model[key] = when
            case "drop", key:
                deadlines.drop(key)
                model.pop(key, None)
            case "pass", now:
                undo.clear()
                due = {key for key, when in model.items() if when <= now}
                assert passed(deadlines, now) == due
                kept = {key: when for key, when in model.items() if key not in due}
                model = dict(kept)
            case "keep", *_:
                undo.clear()
                kept = dict(model)
            case "revert", *_:
                undo.revert()
                model = dict(kept)
        assert [deadlines.when(key) for key in KEYS] == [model.get(key) for key in KEYS]
        assert len(deadlines._heap) == len(deadlines._place) == len(deadlines) == len(model)
        assert deadlines.next <= min(model.values(), default=float("inf"))


def test_a_deadline_that_is_dropped_leaves_nothing_behind_however_far_off_it_was() -> None:
    undo = Undo()
    deadlines = Deadlines(undo)
    deadlines.set(("stays",), 1e9)
    for number in range(1000):
        deadlines.set(("pending", number), 1e6)
        deadlines.drop(("pending", number))
        undo.clear()
    assert len(deadlines._heap) == len(deadlines._place) == len(deadlines) == 1


def test_a_heartbeat_moves_nothing_in_the_heap() -> None:
    undo = Undo()
    deadlines = Deadlines(undo)
    for number in range(100):
        deadlines.set(("session", number), 10.0 + number)
    before = list(deadlines._heap)
    for number in range(100):
        deadlines.move_on(("session", number), 500.0)
    assert deadlines._heap == before
    assert passed(deadlines, 400.0) == set()
    assert deadlines.next == 500.0
