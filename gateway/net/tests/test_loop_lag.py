"""Stalls of the event loop that nobody sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from kumquat.gateway.net.loop_lag import INTERVAL, LONGEST_INTERVAL, QUIET, Lag, next_interval
from kumquat.gateway.tests.harness import Served, serve

if TYPE_CHECKING:
    from pathlib import Path


def test_lags_are_counted_by_how_long_they_are() -> None:
    lag = Lag()
    for seconds in (0.0, 0.0004, 0.001, 0.0011, 0.09, 0.3, 5.0):
        lag.add(seconds)
    counted = lag.statistics()
    assert counted.looks == 7
    assert counted.max == 5_000_000
    assert counted.buckets_ms == {
        **dict.fromkeys(("5", "10", "20", "50", "200", "1000"), 0),
        "1": 3,
        "2": 1,
        "100": 1,
        "500": 1,
        "more": 1,
    }


def test_a_stall_is_seen_by_whoever_looks() -> None:
    async def main() -> None:
        lag = Lag()
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lag.run)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(INTERVAL + 0.25)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert lag.statistics().max == 250_000

    trio.run(main, clock=MockClock())


def test_the_lag_is_in_the_statistics(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        served.broker.lag.add(0.5)
        assert served.broker.statistics().loop.buckets_ms["500"] == 1

    serve(check, tmp_path)


def test_a_broker_that_does_nothing_is_looked_at_seldom_and_a_busy_one_often() -> None:
    interval, looks = INTERVAL, 0
    slept = 0.0
    while slept < 10.0:
        slept += interval
        interval = next_interval(interval, used=0.0001)
        looks += 1
    assert looks < 40
    assert interval == LONGEST_INTERVAL
    assert next_interval(LONGEST_INTERVAL, used=QUIET * LONGEST_INTERVAL) == INTERVAL
    assert next_interval(INTERVAL, used=INTERVAL) == INTERVAL
