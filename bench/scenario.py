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

from bench.kafka import Kafka
from bench.kumquat import Kumquat

if TYPE_CHECKING:
    from bench.process import BrokerProcess

Numbers = dict[str, float]
"""What is measured, with its unit: {"acks=1, MB/s": 512.0}."""
Columns = dict[str, Numbers]
"""By the column's key: kumquat, kafka, kafka-synced."""


@dataclass(frozen=True)
class Scale:
    """How much work; `FULL` is what RESULTS.md is made with, `QUICK` only shows that all runs."""

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


FULL = Scale(
    "full", 10, 10, 1500, 10_000, 100_000, 10_000_000_000, 1 << 30, 20_000, 200_000, 10_000
)
QUICK = Scale("quick", 2, 2, 100, 500, 5_000, 300_000_000, 64 << 20, 4_000, 40_000, 500)


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    make: Callable[[dict[str, str]], BrokerProcess]

    def broker(self, settings: dict[str, str] | None = None) -> BrokerProcess:
        return self.make(settings or {})


COLUMNS = [
    Column("kumquat", "Kumquat", lambda settings: Kumquat(settings=settings)),
    Column("kafka", "Kafka", lambda settings: Kafka(settings=settings)),
    Column("kafka-synced", "Kafka, synced", lambda settings: Kafka(flush=True, settings=settings)),
]


@dataclass(frozen=True)
class Floor:
    what: str
    limit: float
    at_least: bool
    value: Callable[[Columns], float]

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


def own(metric: str, *, at_most: float) -> Floor:
    """A number of Kumquat's alone."""
    return Floor(metric, at_most, False, lambda columns: columns["kumquat"][metric])


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
