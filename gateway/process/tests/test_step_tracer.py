"""Long steps of the event loop that are blamed on the wrong task."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import trio
import trio.lowlevel

from kumquat.gateway.process.step_tracer import StepTracer
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.wire import MetadataRequest

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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


def test_a_long_step_is_logged_with_its_task_and_where_it_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        trio.lowlevel.add_instrument(StepTracer(20))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(long_step, name="the slow one")
            nursery.start_soon(short_steps, name="the quick one")

    trio.run(main)
    lines = [r.getMessage() for r in caplog.records if "the slow one" in r.getMessage()]
    assert lines
    assert "a step of the slow one took" in lines[0]
    assert "ms of processor time" in lines[0]
    assert "long_step:" in lines[0]


def test_a_long_step_of_a_connection_is_logged_with_request_and_client(
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
    lines = [r.getMessage() for r in caplog.records]
    assert any("its last request: Metadata v9 of 127.0.0.1" in line for line in lines)
