"""Stalls of the loop that nobody sees, or that are blamed on the wrong task."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from kumquat.gateway.net.loop_lag import INTERVAL, Lag
from kumquat.gateway.process.garbage import LONGEST_WAIT, SHARE, SHORTEST_WAIT, Collector
from kumquat.gateway.process.step_tracer import StepTracer
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.wire import MetadataRequest

if TYPE_CHECKING:
    from pathlib import Path


def test_lags_are_counted_by_how_long_they_are() -> None:
    lag = Lag()
    for seconds in (0.0, 0.0004, 0.001, 0.0011, 0.09, 0.3, 5.0):
        lag.add(seconds)
    told = lag.statistics()
    assert told.looks == 7
    assert told.max == 5_000_000
    assert told.buckets_ms == {
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


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


async def long_step() -> None:
    spin(0.03)
    await trio.lowlevel.checkpoint()


async def short_steps() -> None:
    for _ in range(3):
        await trio.lowlevel.checkpoint()


def test_a_long_step_is_told_with_its_task_and_where_it_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        trio.lowlevel.add_instrument(StepTracer(20))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(long_step, name="the slow one")
            nursery.start_soon(short_steps, name="the quick one")

    trio.run(main)
    told = [r.getMessage() for r in caplog.records if "the slow one" in r.getMessage()]
    assert told
    assert "a step of the slow one took" in told[0]
    assert "ms of processor time" in told[0]
    assert "long_step:" in told[0]


def test_a_long_step_of_a_connection_is_told_with_request_and_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        trio.lowlevel.add_instrument(StepTracer(0))
        await served.settled()
        async with served.client() as client:
            await client.call(MetadataRequest(topics=[]), 9)

    with caplog.at_level(logging.WARNING):
        serve(check, tmp_path)
    told = [r.getMessage() for r in caplog.records]
    assert any("its last request: Metadata v9 of 127.0.0.1" in line for line in told)


def test_the_lag_is_in_the_statistics(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        served.broker.lag.add(0.5)
        assert served.broker.statistics().loop.buckets_ms["500"] == 1

    serve(check, tmp_path)


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
