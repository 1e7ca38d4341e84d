"""Which messages a replay takes, and the plan, which stays the same when the run is resumed.

`Selection` is what a person asks for. `Plan` is what was found when the run began: the offsets from
the first match to the last, how many match, and how many offsets make a batch. Batch n is always the
same offsets, so it can be run again. The plan is in the run's folder as `plan.json`:

    {"version": 2, "run": "again.5f0c9e1b",
     "selection": {"subject": "orders", "archive": "archive", "since_ms": 1794800000000,
                   "until_ms": null, "keys": ["k1"], "headers": ["type=refund"]},
     "archived_id": "b1c9…", "size": 50000,
     "found": {"messages": 40, "start": 1200, "end": 9000, …}}

`run` is the journal's mark (copies/journal.py; the ids of the broker's subjects are there too);
`archived_id` is the id of the subject whose messages the archive holds. Times are fixed when the run
begins: "since 2h" means two hours before then, also when it is resumed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError, clear_errors
from kumquat.spark.offsets import at_time, earliest, latest
from kumquat.spark.pipelines.archive.command import archive_state, read_archive
from kumquat.spark.pipelines.common.durable import write_json
from kumquat.spark.pipelines.common.run_memory import NEW_RUN, check_mark, read_memory
from kumquat.spark.subjects import read_subject

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from kumquat.spark.pipelines.common.run_memory import Range

VERSION = 2
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
            return self._archived()[0]
        if self.since_ms is None:
            starts = earliest(bootstrap, [self.subject])
        else:
            starts = at_time(bootstrap, [self.subject], max(self.since_ms, 0))
        return starts[self.subject], latest(bootstrap, [self.subject])[self.subject]

    def archived_id(self) -> str:
        """Of the subject that was archived; empty: the broker's own is read."""
        return self._archived()[1] if self.archive is not None else ""

    def _archived(self) -> tuple[Range, str]:
        assert self.archive is not None
        state = archive_state(self.archive)
        if self.subject not in state.next:
            has = ", ".join(sorted(state.next)) or "nothing"
            raise ConnectorError(f"{self.archive} has no {self.subject}: it holds {has}")
        known = state.ids.get(self.subject, "")
        return (state.begin[self.subject], state.next[self.subject]), known

    def same_messages(self, other: Selection) -> bool:
        """Except for times: those of the plan hold."""
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
    """What was found for a selection."""

    messages: int
    octets: int = 0
    first_ms: int = 0
    last_ms: int = 0
    start: int = 0
    """The offsets from the first match to the last."""
    end: int = 0


@dataclass(frozen=True)
class Plan:
    run: str
    selection: Selection
    archived_id: str
    size: int
    found: Found

    @property
    def batches(self) -> int:
        return -(-(self.found.end - self.found.start) // self.size)

    def batch(self, number: int) -> Range:
        start = self.found.start + number * self.size
        return start, min(start + self.size, self.found.end)

    def check_kept(self, bootstrap: str, number: int) -> None:
        """Checks that the source still has what the batch will read."""
        chosen, (start, end) = self.selection, self.batch(number)
        if chosen.archive is None:
            kept = earliest(bootstrap, [chosen.subject])[chosen.subject]
            if kept > start:
                raise ConnectorError(
                    f"retention deleted {chosen.subject} up to {kept:,} before this run came there "
                    f"(it is at {start:,}): begin another run, or replay an archive"
                )
        elif chosen.archived_id() != self.archived_id:
            raise ConnectorError(
                f"{chosen.archive} holds another {chosen.subject} than this run began with, which was "
                f"deleted and made again; {NEW_RUN}"
            )
        else:
            begin, stop = chosen.bounds(bootstrap)
            if begin > start or stop < end:
                raise ConnectorError(
                    f"{chosen.archive} has {chosen.subject} from {begin:,} to {stop - 1:,}, but this "
                    f"run is at {start:,} to {end - 1:,}: restore the archive, or {NEW_RUN}"
                )

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, {"version": VERSION, **asdict(self)})


def load_plan(folder: Path, run: str) -> Plan | None:
    """The plan of the run that has this mark."""
    path = folder / FILE
    if not path.exists():
        return None
    plan = read_memory(path, VERSION, _parsed)
    check_mark(path, plan.run, run)
    return plan


def _parsed(content: dict[str, Any]) -> Plan:
    chosen = dict(content["selection"])
    chosen |= {"keys": tuple(chosen["keys"]), "headers": tuple(chosen["headers"])}
    found = Found(**content["found"])
    archived = str(content["archived_id"])
    return Plan(content["run"], Selection(**chosen), archived, int(content["size"]), found)


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
