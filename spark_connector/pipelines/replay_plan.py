"""Which messages a replay takes, and the plan that stays the same however often it is resumed.

`Selection` is what a person asks for. `Plan` is what it came to when the run began: the offsets from
the first match to the last, how many match, and how many offsets make a batch. Batch n is always the
same offsets, so it can be run again. The plan lies in the run's folder as `plan.json`:

    {"version": 1, "target": "orders", "selection": {"subject": "orders", "archive": null,
     "since_ms": 1794800000000, "until_ms": null, "keys": ["k1"], "headers": ["type=refund"]},
     "start": 1200, "end": 9000, "size": 50000, "found": {"messages": 40, …}}

Times are fixed when the run begins: "since 2h" means two hours before then, also when it is resumed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark_connector.errors import ConnectorError, clear_errors
from spark_connector.offsets import at_time, earliest, latest
from spark_connector.pipelines.archive import archive_state, read_archive
from spark_connector.pipelines.durable import read_json, write_json
from spark_connector.subjects import read_subject

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_connector.pipelines.archive_format import Range

VERSION = 1
FILE = "plan.json"


@dataclass(frozen=True)
class Selection:
    """Messages of one subject, out of the broker or of an archive; all conditions must hold."""

    subject: str
    archive: str | None = None
    since_ms: int | None = None
    """The first time that is taken, by the message's own time."""
    until_ms: int | None = None
    """The first time that is not."""
    keys: tuple[str, ...] = ()
    """One of these."""
    headers: tuple[str, ...] = ()
    """Each of these: NAME for any value, NAME=VALUE for that one."""

    def __post_init__(self) -> None:
        for text in self.headers:
            if not text.partition("=")[0]:
                raise ConnectorError(f"{text!r} is no header: write NAME or NAME=VALUE")

    def read(self, spark: SparkSession, bootstrap: str, range_: Range) -> DataFrame:
        """What it takes among these offsets."""
        start, end = range_
        if self.archive is not None:
            rows = read_archive(spark, self.archive, ranges={self.subject: range_})
        else:
            starting, ending = {self.subject: start}, {self.subject: end}
            rows = read_subject(spark, bootstrap, self.subject, starting=starting, ending=ending)
        for condition in self._conditions():
            rows = rows.where(condition)
        return rows

    def bounds(self, bootstrap: str) -> Range:
        """Offsets outside of which nothing is taken."""
        if self.archive is not None:
            state = archive_state(self.archive)
            if self.subject not in state.next:
                has = ", ".join(sorted(state.next)) or "nothing"
                raise ConnectorError(f"{self.archive} has no {self.subject}: it holds {has}")
            return state.begin[self.subject], state.next[self.subject]
        if self.since_ms is None:
            starts = earliest(bootstrap, [self.subject])
        else:
            starts = at_time(bootstrap, [self.subject], max(self.since_ms, 0))
        return starts[self.subject], latest(bootstrap, [self.subject])[self.subject]

    def same_messages(self, other: Selection) -> bool:
        """But for times: those of the plan hold."""
        return replace(self, since_ms=other.since_ms, until_ms=other.until_ms) == other

    def _conditions(self) -> list[Column]:
        ms = sql.unix_millis("timestamp")
        conditions = []
        if self.since_ms is not None:
            conditions.append(ms >= self.since_ms)
        if self.until_ms is not None:
            conditions.append(ms < self.until_ms)
        if self.keys:
            conditions.append(sql.col("key").isin(*(_binary(key) for key in self.keys)))
        return conditions + [_has_header(text) for text in self.headers]


@dataclass(frozen=True)
class Found:
    """What a selection comes to."""

    messages: int
    octets: int = 0
    first_ms: int = 0
    last_ms: int = 0
    start: int = 0
    """The offsets from the first match to the last."""
    end: int = 0


@dataclass(frozen=True)
class Plan:
    target: str
    selection: Selection
    size: int
    found: Found

    @property
    def batches(self) -> int:
        return -(-(self.found.end - self.found.start) // self.size)

    def batch(self, number: int) -> Range:
        start = self.found.start + number * self.size
        return start, min(start + self.size, self.found.end)

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, {"version": VERSION, **asdict(self)})


def load_plan(folder: Path) -> Plan | None:
    path = folder / FILE
    if not path.exists():
        return None
    content = read_json(path, VERSION)
    try:
        chosen = content["selection"]
        chosen |= {"keys": tuple(chosen["keys"]), "headers": tuple(chosen["headers"])}
        found = Found(**content["found"])
        return Plan(content["target"], Selection(**chosen), int(content["size"]), found)
    except (KeyError, TypeError, ValueError) as error:
        raise ConnectorError(f"{path} is damaged: restore it from a backup ({error!r})") from None


def find(spark: SparkSession, bootstrap: str, selection: Selection) -> Found:
    """Reads all that may match, and counts; sends nothing."""
    bounds = selection.bounds(bootstrap)
    if bounds[0] >= bounds[1]:
        return Found(0)
    octets = sql.coalesce(sql.octet_length("key"), sql.lit(0))
    octets += sql.coalesce(sql.octet_length("value"), sql.lit(0))
    ms = sql.unix_millis("timestamp")
    with clear_errors():
        row = (
            selection.read(spark, bootstrap, bounds)
            .agg(
                sql.count("*").alias("messages"),
                sql.sum(octets).alias("octets"),
                sql.min(ms).alias("first_ms"),
                sql.max(ms).alias("last_ms"),
                sql.min("offset").alias("start"),
                (sql.max("offset") + 1).alias("end"),
            )
            .collect()[0]
        )
    return Found(**row.asDict()) if row["messages"] else Found(0)


def _binary(text: str) -> Column:
    return sql.lit(text).cast("binary")


def _has_header(text: str) -> Column:
    name, equals, value = text.partition("=")
    if not equals:
        return sql.exists("headers", lambda each: each["key"] == name)
    wanted = _binary(value)
    return sql.exists("headers", lambda each: (each["key"] == name) & (each["value"] == wanted))
