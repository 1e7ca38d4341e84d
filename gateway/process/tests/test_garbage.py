"""Garbage that is collected when clients feel it, or never."""

from __future__ import annotations

import pytest

from kumquat.gateway.process.garbage import LONGEST_WAIT, SHARE, SHORTEST_WAIT, Collector


@pytest.mark.parametrize(
    ("since", "busy", "pending", "took", "due"),
    [
        (SHORTEST_WAIT, 0.01, 1, 0.0, True),
        (SHORTEST_WAIT - 1, 0.01, 1, 0.0, False),
        (SHORTEST_WAIT, 0.01, 0, 0.0, False),
        (SHORTEST_WAIT, 0.9, 1, 0.0, False),
        (LONGEST_WAIT, 0.9, 1, 0.0, True),
        (SHARE * 0.1 - 1, 0.01, 1, 0.1, False),
        (SHARE * 0.1, 0.01, 1, 0.1, True),
    ],
)
def test_all_garbage_is_collected_only_when_it_is_not_felt(
    since: float, busy: float, pending: int, took: float, due: bool
) -> None:
    collector = Collector()
    collector.collected(1000.0, took)
    assert collector.is_due(1000.0 + since, busy, pending) is due
