"""Garbage that is collected when clients feel it, or never."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from kumquat.gateway.process import garbage
from kumquat.gateway.process.garbage import (
    GROWN_BYTES,
    LONGEST_WAIT,
    MIDDLE,
    MOST_PORTIONS,
    SHARE,
    SHORTEST_WAIT,
    YOUNG,
    Collector,
)


@pytest.mark.parametrize(
    ("since", "busy", "grown", "took", "due"),
    [
        (SHORTEST_WAIT, 0.01, GROWN_BYTES, 0.0, True),
        (SHORTEST_WAIT - 1, 0.01, GROWN_BYTES, 0.0, False),
        (LONGEST_WAIT, 0.01, GROWN_BYTES - 1, 0.0, False),
        (SHORTEST_WAIT, 0.9, GROWN_BYTES, 0.0, False),
        (LONGEST_WAIT, 0.9, GROWN_BYTES, 0.0, True),
        (SHARE * 0.1 - 1, 0.01, GROWN_BYTES, 0.1, False),
        (SHARE * 0.1, 0.01, GROWN_BYTES, 0.1, True),
    ],
)
def test_all_objects_are_traversed_only_when_memory_grew_and_it_is_not_felt(
    since: float, busy: float, grown: int, took: float, due: bool
) -> None:
    collector = Collector()
    collector.collected(1000.0, took, 7)
    assert collector.is_due(1000.0 + since, busy, 7 + grown) is due


class Node:
    """In a cycle with itself."""

    def __init__(self) -> None:
        self.me = self
        self.more: list[list[int]] = [[] for _ in range(10)]


@pytest.fixture
def settled() -> Iterator[None]:
    thresholds = gc.get_threshold()
    garbage.settle()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_survives_is_traversed_in_small_portions_and_then_no_more(settled: None) -> None:
    """However much comes between two looks."""
    traversed: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            traversed.append(
                sum(len(gc.get_objects(young)) for young in range(info["generation"] + 1))
            )

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Collector().run)
            await trio.testing.wait_all_tasks_blocked()
            gc.callbacks.append(count)
            nodes = [Node() for _ in range(20_000)]
            await trio.sleep(1.5)
            nodes += [Node() for _ in range(2_000)]
            await trio.sleep(1.5)
            gc.callbacks.remove(count)
            assert len(nodes) == 22_000
            nursery.cancel_scope.cancel()

    trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sum(traversed) > 200_000
    assert max(traversed) <= (MOST_PORTIONS + 2) * (MIDDLE + 2) * YOUNG


def test_a_cycle_that_was_frozen_alive_is_freed_when_memory_has_grown(
    settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = [0]
    monkeypatch.setattr(garbage, "resident_bytes", lambda: resident[0])

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Collector().run)
            await trio.testing.wait_all_tasks_blocked()
            nodes = [Node() for _ in range(20_000)]
            seen = weakref.ref(nodes[0])
            await trio.sleep(1.5)
            nodes.clear()
            await trio.sleep(100)
            assert seen() is not None
            resident[0] = GROWN_BYTES
            await trio.sleep(SHORTEST_WAIT + 2)
            assert seen() is None
            nursery.cancel_scope.cancel()

    trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0))
