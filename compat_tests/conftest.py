"""Which broker the stories run against.

    pytest compat_tests                      Kumquat, started for the run
    pytest compat_tests --broker kafka       Apache Kafka 4.3.1, through the benchmark's launcher
    pytest compat_tests --broker HOST:PORT   any broker that is already there

Every story must hold on Apache Kafka: this shows that the story is right. Where Kumquat must answer
differently, the test says why with `@pytest.mark.differs("why")`. Such a test either asks for the
fixture `is_kafka` and knows both answers, or is skipped on Kafka.

One broker serves all stories of a run, so each takes its own topics from the fixture `names`.
"""

from __future__ import annotations

import itertools
import re
import secrets
from contextlib import ExitStack
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.groups.stories import configure
from compat_tests.members.fixture import hosts, members
from compat_tests.wire.connection import Wire, create_topic
from kumquat.spark.testing import spark, spark_sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["hosts", "members", "spark", "spark_sockets"]

RETENTION_CHECK_MS = 300
GROUPS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
}
"""So that no story waits without need, nor loses a member because the machine is slow."""
NEVER_MS = 24 * 3600 * 1000
KAFKA = {
    **GROUPS,
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "100",
    "log.retention.check.interval.ms": str(RETENTION_CHECK_MS),
    "log.initial.task.delay.ms": "0",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        default="kumquat",
        metavar="kumquat|kafka|HOST:PORT",
        help="the broker that the compatibility stories run against",
    )
    parser.addoption(
        "--churn-seconds", default=18, type=float, help="how long test_groups_churn.py goes on"
    )
    parser.addoption("--churn-seed", default=4, type=int, help="another course of events")
    parser.addoption(
        "--screenshots", action="store_true", help="keep pictures of the console in docs/console"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "differs(reason): Kumquat's right answer is not Kafka's; without the fixture `is_kafka` "
        "the test is skipped on Kafka",
    )


@pytest.fixture(scope="session")
def bootstrap(pytestconfig: pytest.Config) -> Iterator[str]:
    chosen = pytestconfig.getoption("--broker")
    with ExitStack() as stack:
        if chosen == "kumquat":
            from kumquat.testing import broker

            options: dict[str, Any] = {
                "log_retention_check_interval_ms": RETENTION_CHECK_MS,
                **{name.replace(".", "_"): value for name, value in GROUPS.items()},
            }
            yield stack.enter_context(broker(**options)).bootstrap
        elif chosen == "kafka":
            from bench.brokers.kafka import Kafka

            yield stack.enter_context(Kafka(settings=KAFKA)).bootstrap
        else:
            yield chosen


@pytest.fixture(scope="session")
def is_kafka(bootstrap: str) -> bool:
    """Asked of the broker itself, since HOST:PORT does not say: Kafka makes as many
    partitions as asked, Kumquat always makes one."""
    with Wire(bootstrap) as wire:
        name = f"probe-{secrets.token_hex(4)}"
        return bool(create_topic(wire, name, partitions=2).num_partitions == 2)


@pytest.fixture(autouse=True)
def _skip_what_differs(request: pytest.FixtureRequest) -> None:
    mark = request.node.get_closest_marker("differs")
    adapts = "is_kafka" in signature(request.function).parameters  # itself, not by another fixture
    if mark and not adapts and request.getfixturevalue("is_kafka"):
        pytest.skip(f"differs from Kafka: {mark.args[0]}")


_run = secrets.token_hex(3)
_count = itertools.count(1)


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Returns topic names that no other test, and no earlier run, has used."""
    test = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")[:60]
    return lambda: f"{test}-{_run}-{next(_count)}"


@pytest.fixture
def name(names: Callable[[], str]) -> str:
    """A name for a topic that does not exist yet."""
    return names()


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as connection:
        yield connection


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A topic that exists, with one partition."""
    return make_topic()


@pytest.fixture
def make_topic(wire: Wire, names: Callable[[], str]) -> Callable[..., str]:
    """`make_topic(**{"retention.ms": "1000"})` makes a topic with these configs; gives its name."""

    def make(**configs: str) -> str:
        name = names()
        create_topic(wire, name, configs=configs)
        return name

    return make


@pytest.fixture
def group(names: Callable[[], str]) -> str:
    """A name for a group that does not exist yet."""
    return names()


@pytest.fixture
def exclusive(bootstrap: str, is_kafka: bool, group: str) -> str:
    """A group that reads as groups do in Kafka, also when it has several members."""
    if not is_kafka:
        configure(bootstrap, group, **{"consume.mode": "exclusive"})
    return group


@pytest.fixture
def shared_groups(bootstrap: str, names: Callable[[], str]) -> Callable[[], str]:
    """Gives names of groups whose members share from the first one on. Work is not taken back from
    members that seem slow: on a busy machine any of them may."""

    def make() -> str:
        group = names()
        configs = {"consume.mode": "shared", "lease.steal.after.ms": str(NEVER_MS)}
        configure(bootstrap, group, **configs)
        return group

    return make


@pytest.fixture
def shared(shared_groups: Callable[[], str]) -> str:
    return shared_groups()
