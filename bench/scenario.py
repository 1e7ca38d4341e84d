"""What a benchmark is made of: scenarios, columns (the brokers) and floors.

A scenario is a function that gets a column to start brokers with and gives named numbers; it runs
once per column, one after the other, and each run begins with a fresh broker on an empty folder.
A floor is a limit that this broker was built to meet: on a ratio of two columns, or on a number of
Kumquat's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.brokers.jars import SetupError
from bench.brokers.kafka import Kafka
from bench.brokers.kumquat import Kumquat

if TYPE_CHECKING:
    from bench.brokers.process import BrokerProcess

Numbers = dict[str, float]
"""What is measured, with its unit: {"acks=1, MB/s": 512.0}."""
Columns = dict[str, Numbers]
"""By the column's key: kumquat, kafka, kafka-synced, rocketmq."""


@dataclass(frozen=True)
class Scale:
    """How much work; `FULL` is what RESULTS.md is made with, `QUICK` only shows that everything runs."""

    name: str
    seconds: float
    warm_up: float
    megabytes: int
    """Of produced values, for each measurement of throughput; half as much warms up."""
    many_subjects: int
    most_subjects: int
    log_bytes: int
    segment_bytes: int
    handled_messages: int
    """By members with a handler of 5 ms."""
    small_messages: int
    """By members with a handler that does nothing."""
    groups: int
    delayed: int
    """Delayed messages that a scenario waits for."""
    delayed_seconds: int
    scheduled: int
    pending: int
    drained_messages: int
    """By share consumers with a handler that does nothing."""
    shared_messages: int
    """By share consumers with a handler of 5 ms."""
    bounces: int
    """Messages that are released once each."""
    waiting: int
    """Messages that wait for retry."""


FULL = Scale(
    "full",
    seconds=10,
    warm_up=10,
    megabytes=1500,
    many_subjects=10_000,
    most_subjects=100_000,
    log_bytes=10_000_000_000,
    segment_bytes=1 << 30,
    handled_messages=20_000,
    small_messages=200_000,
    groups=10_000,
    delayed=100_000,
    delayed_seconds=60,
    scheduled=1_000_000,
    pending=10_000_000,
    drained_messages=300_000,
    shared_messages=5_000,
    bounces=300,
    waiting=1_000_000,
)
QUICK = Scale(
    "quick",
    seconds=2,
    warm_up=2,
    megabytes=100,
    many_subjects=500,
    most_subjects=5_000,
    log_bytes=300_000_000,
    segment_bytes=64 << 20,
    handled_messages=4_000,
    small_messages=40_000,
    groups=500,
    delayed=10_000,
    delayed_seconds=6,
    scheduled=100_000,
    pending=200_000,
    drained_messages=30_000,
    shared_messages=1_000,
    bounces=30,
    waiting=20_000,
)


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    make: Callable[[dict[str, str]], BrokerProcess]

    def broker(self, settings: dict[str, str] | None = None) -> BrokerProcess:
        return self.make(settings or {})


def _not_run(settings: dict[str, str]) -> BrokerProcess:
    raise SetupError("RocketMQ is not run here: a scenario quotes what it was seen to do")


COLUMNS = [
    Column("kumquat", "Kumquat", lambda settings: Kumquat(settings=settings)),
    Column("kafka", "Kafka", lambda settings: Kafka(settings=settings)),
    Column("kafka-synced", "Kafka, synced", lambda settings: Kafka(flush=True, settings=settings)),
    Column("rocketmq", "RocketMQ, quoted", _not_run),
]


@dataclass(frozen=True)
class Floor:
    what: str
    limit: float
    at_least: bool
    value: Callable[[Columns], float]
    must: bool = False
    """The whole run fails where it is not met."""

    def met(self, columns: Columns) -> bool:
        found = self.value(columns)
        return found >= self.limit if self.at_least else found <= self.limit


def ratio(
    metric: str, to: str, *, at_least: float | None = None, at_most: float | None = None
) -> Floor:
    """Kumquat's number as a multiple of another column's."""
    title = next(column.title for column in COLUMNS if column.key == to)
    limit = at_least if at_least is not None else at_most
    assert limit is not None
    return Floor(
        f"{metric} ÷ {title}",
        limit,
        at_least is not None,
        lambda columns: columns["kumquat"][metric] / columns[to][metric],
    )


def own(metric: str, *, at_most: float, must: bool = False) -> Floor:
    """A number of Kumquat's alone."""
    return Floor(metric, at_most, False, lambda columns: columns["kumquat"][metric], must)


def share(metric: str, of: str, *, at_least: float | None = None, at_most: float = 0) -> Floor:
    """One number of Kumquat's as a multiple of another of its own."""
    limit = at_most if at_least is None else at_least
    return Floor(
        f"{metric} ÷ {of}",
        limit,
        at_least is not None,
        lambda columns: columns["kumquat"][metric] / columns["kumquat"][of],
    )


@dataclass(frozen=True)
class Run:
    """What a scenario's function gets."""

    column: Column
    scale: Scale
    say: Callable[[str], None]


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    measure: Callable[[Run], Numbers]
    floors: list[Floor] = field(default_factory=list)
    columns: tuple[str, ...] = ("kumquat", "kafka", "kafka-synced")
