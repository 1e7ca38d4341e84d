"""What a broker costs of which nobody asks anything: which packages it has loaded, how often it wakes."""

from __future__ import annotations

import urllib.request
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.gateway.testing.broker import TestBroker
from kumquat.gateway.tests.harness import Served, serve

if TYPE_CHECKING:
    from pathlib import Path

UNASKED = (
    "h11",
    "h2",
    "hypercorn",
    "jinja2",
    "kafka",
    "kumquat.gateway.admin.app",
    "kumquat.gateway.cli.kafka",
    "kumquat.gateway.console",
    "kumquat.gateway.metrics.families",
    "kumquat.gateway.search",
    "prometheus_client",
    "re2",
    "rich",
    "starlette",
    "wsproto",
)
"""What a start need not load."""


class Telling(TestBroker):
    """A broker that tells which modules it loads."""

    def _command(self) -> list[str]:
        python, *rest = super()._command()
        return [python, "-X", "importtime", *rest]

    @property
    def loaded(self) -> set[str]:
        lines = [each for each in self.log_text().splitlines() if each.startswith("import time:")]
        modules = {each.rpartition("|")[2].strip() for each in lines}
        return {
            name for name in UNASKED if any(f"{each}.".startswith(f"{name}.") for each in modules)
        }


def test_a_start_loads_nothing_that_nobody_has_asked_for(tmp_path: Path) -> None:
    broker = Telling(tmp_path, tmp_path / "data", {}, 0)
    broker.start()
    try:
        assert broker.loaded == set()
        for page in ("/metrics", "/", "/health/ready"):
            with urllib.request.urlopen(broker.admin + page) as answer:
                assert answer.status == 200
        assert {"jinja2", "starlette", "hypercorn", "prometheus_client"} < broker.loaded
    finally:
        code = broker.stop()
    assert code == 0


@pytest.mark.parametrize("asked", [False, True])
def test_a_broker_stops_whether_or_not_its_admin_endpoint_was_asked(
    tmp_path: Path, asked: bool
) -> None:
    broker = TestBroker(tmp_path, tmp_path / "data", {}, 0)
    broker.start()
    if asked:
        with urllib.request.urlopen(broker.admin + "/health/live") as answer:
            assert answer.status == 200
    assert broker.stop() == 0


class Steps(trio.abc.Instrument):
    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.startswith("kumquat.") and ".tests." not in task.name:
            self.counted[task.name] += 1


def test_no_task_of_an_idle_broker_wakes_often(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.settled()
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        for _ in range(40):
            served.clock.jump(0.25)
            await served.settled()
        trio.lowlevel.remove_instrument(steps)
        often = {name: count for name, count in steps.counted.items() if count > 25}
        assert not often, "in ten seconds"
        assert steps.counted.total() < 90

    serve(check, tmp_path)
