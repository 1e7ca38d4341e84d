"""What the stories of all clients share: sizes, times, and a wait for what Kafka does later."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

DEADLINE = 90.0
"""Seconds that any one step of a story may take before it has failed. This ends what hangs; speed is never
judged, since the machine may be busy."""
SESSION_MS = 6000
"""Of members that a story kills or freezes: so long the broker takes to notice."""
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
TOO_LARGE = 1_500_000
"""Bytes; above the default max.message.bytes of 1,048,588."""
LARGE = 900_000
T0 = int(time.time() * 1000) - 60_000
"""The first timestamp of a story, in ms. Of today: retention deletes what is older than a week."""


def mostly_long(cases: Iterable[Any], short: Collection[Any]) -> list[Any]:
    """Cases for `parametrize`: those that are not in `short` are left to `make test-all`."""
    return [
        case
        if case in short
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
        for case in cases
    ]


def eventually(condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
    """Asks again until it holds. Only for what no client call can wait for: Kafka applies a
    controller's decision, and its retention, in the background."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)
