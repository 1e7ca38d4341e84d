"""`kumquat-spark trace`: how long messages waited and were handled, by group and member; the life of one.

    trace(spark, Source(bootstrap, [HISTORY]), "orders")
    life(spark, Source(archive=folder, subjects=[HISTORY]), "orders", 17)

It reads the broker's history, the subject HISTORY, from the broker or from an archive of it: retention
takes the history on the broker within days, so whoever wants more archives it like any subject. An event
names runs of messages (first sequence and count). Spark unfolds them to a row for each message and joins
what each group did with it. What comes back to the driver is sums.

Percentiles are Spark's estimates (a ten-thousandth of the ranks). Where a group was set back to read again,
its last ack counts. An event that is no JSON object of ours is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError, clear_errors
from kumquat.spark.offsets import check_subjects
from kumquat.spark.pipelines.archive.command import archive_state
from kumquat.spark.pipelines.common.sources import Source, add_broker, add_range
from kumquat.spark.pipelines.common.summary import SILENT, Progress, Summary
from kumquat.spark.pipelines.trace.facts import (
    GroupFacts,
    Life,
    MemberFacts,
    Trace,
    Waits,
    life_summary,
    trace_summary,
)

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column, DataFrame, Row, SparkSession

HISTORY = "__kumquat_actions"
EVENT = (
    "at LONG, event STRING, subject STRING, ranges ARRAY<ARRAY<LONG>>, `group` STRING, "
    "member STRING, client STRING, producer STRING, address STRING, attempt INT, due LONG, "
    "late_ms LONG, reason STRING, text STRING, attempts INT, letters STRING, `to` STRING, count LONG"
)
STORED = ("produced", "delivered")
PERCENTILES = [0.5, 0.99]
MOST_EVENTS = 10_000
SLOWEST = 20


def trace(
    spark: SparkSession,
    source: Source,
    subject: str,
    *,
    group: str | None = None,
    progress: Progress = SILENT,
) -> Trace:
    progress(f"trace: reading the history from {source}")
    with clear_errors():
        events = _events(spark, source)
        missed = events.where("event = 'missed'").agg(sql.sum("count")).collect()[0][0] or 0
        rows = _unfolded(events.where(sql.col("subject") == subject))
        born = rows.where(sql.col("event").isin(*STORED)).groupBy("offset")
        births = born.agg(sql.min("at").alias("born"))
        stored = births.count()
        lives = _lives(rows, group).join(births, "offset", "left").persist()
        try:
            progress(f"trace: summing up {subject}")
            groups = [_group(row) for row in lives.groupBy("group").agg(*_sums()).collect()]
            members = [_member(row) for row in _by_member(lives).collect()]
        finally:
            lives.unpersist()
    members.sort(key=lambda one: (-one.handling.p50, one.group, one.member))
    groups.sort(key=lambda one: one.group)
    return Trace(subject, str(source), stored, missed, groups, members)


def life(spark: SparkSession, source: Source, subject: str, offset: int) -> Life:
    """All that is recorded of one message."""
    with clear_errors():
        events = _events(spark, source).where(sql.col("subject") == subject)
        its_own = sql.exists(
            "ranges", lambda run: (run[0] <= offset) & (sql.lit(offset) < run[0] + run[1])
        )
        found = events.where(its_own).orderBy("at", "place").limit(MOST_EVENTS).drop("place")
        rows = [row.asDict() for row in found.collect()]
    return Life(subject, offset, str(source), rows)


def _events(spark: SparkSession, source: Source) -> DataFrame:
    event = sql.from_json(sql.col("value").cast("string"), EVENT).alias("event")
    read = source.read(spark).select(event, sql.col("offset").alias("place"))
    return read.where("event.at is not null").select("event.*", "place")


def _unfolded(events: DataFrame) -> DataFrame:
    """A row for each message of each event."""
    runs = events.withColumn("run", sql.explode("ranges")).where("run[1] > 0")
    numbers = sql.sequence(sql.col("run")[0], sql.col("run")[0] + sql.col("run")[1] - 1)
    return runs.withColumn("offset", sql.explode(numbers)).drop("ranges", "run")


def _lives(rows: DataFrame, group: str | None) -> DataFrame:
    """What each group did with each message."""
    of_groups = rows.where("`group` is not null")
    if group is not None:
        of_groups = of_groups.where(sql.col("group") == group)
    return of_groups.groupBy("group", "offset").agg(
        sql.min(_when("pulled", "at")).alias("first_pull"),
        sql.max(_when("pulled", "at")).alias("last_pull"),
        sql.count_if(sql.col("event") == "pulled").alias("pulls"),
        sql.max(_when("pulled", "attempt")).alias("attempts"),
        sql.max(_when("acked", sql.struct("at", "member", "client"))).alias("ack"),
        sql.max(_when("died", "at")).alias("died"),
    )


def _when(event: str, what: str | Column) -> Column:
    return sql.when(sql.col("event") == event, sql.col(what) if isinstance(what, str) else what)


def _sums() -> list[Column]:
    done = sql.col("ack").isNotNull()
    open_ = (sql.col("pulls") > 0) & ~done & sql.col("died").isNull()
    return [
        sql.count_if(done).alias("acked"),
        sql.count_if(open_).alias("open"),
        sql.count_if(sql.col("pulls") > 1).alias("again"),
        sql.max("attempts").alias("attempts"),
        sql.count("died").alias("dead"),
        *_waits("first", sql.col("first_pull") - sql.col("born")),
        *_waits("handling", _handling()),
        *_waits("done", sql.col("ack.at") - sql.col("born")),
    ]


def _handling() -> Column:
    """Of a message that was delivered again after its ack (the group was reset) it is not known."""
    took = sql.col("ack.at") - sql.col("last_pull")
    return sql.when(took >= 0, took)


def _waits(name: str, ms: Column) -> list[Column]:
    return [
        sql.count(ms).alias(f"{name}_messages"),
        sql.percentile_approx(ms, PERCENTILES).alias(f"{name}_percentiles"),
        sql.max(ms).alias(f"{name}_longest"),
    ]


def _by_member(lives: DataFrame) -> DataFrame:
    member, client = sql.col("ack.member").alias("member"), sql.col("ack.client").alias("client")
    known = lives.where("ack.member is not null").where(_handling().isNotNull())
    return known.groupBy(sql.col("group"), member, client).agg(*_waits("handling", _handling()))


def _group(row: Row) -> GroupFacts:
    return GroupFacts(
        row["group"],
        row["acked"],
        row["open"],
        row["again"],
        row["attempts"],
        row["dead"],
        _read_waits(row, "first"),
        _read_waits(row, "handling"),
        _read_waits(row, "done"),
    )


def _member(row: Row) -> MemberFacts:
    waits = _read_waits(row, "handling")
    assert waits is not None
    return MemberFacts(row["group"], row["member"], row["client"] or "", waits)


def _read_waits(row: Row, name: str) -> Waits | None:
    if not row[f"{name}_messages"]:
        return None
    p50, p99 = row[f"{name}_percentiles"]
    return Waits(row[f"{name}_messages"], p50, p99, row[f"{name}_longest"])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="SUBJECT", help="whose messages")
    parser.add_argument("--offset", type=int, metavar="N", help="one message: all its events")
    parser.add_argument("--group", metavar="NAME", help="what this group did")
    add_broker(parser)
    parser.add_argument(
        "--archive", type=Path, metavar="FOLDER", help=f"an archive of {HISTORY}, not the broker"
    )
    parser.add_argument(
        "--history", default=HISTORY, metavar="SUBJECT", help=f"a copy of the history ({HISTORY})"
    )
    add_range(parser)
    parser.add_argument(
        "--slowest", type=int, default=SLOWEST, metavar="N", help=f"members to show ({SLOWEST})"
    )


def check(args: argparse.Namespace) -> None:
    if args.archive is None:
        check_subjects(args.bootstrap, [args.history])
    elif args.history not in archive_state(args.archive).next:
        raise ConnectorError(
            f"{args.archive} has no history: archive it with `kumquat-spark archive {args.history} "
            f"--to {args.archive}`"
        )
    if args.offset is not None and args.group is not None:
        raise ConnectorError("--offset shows all events of a message: leave out --group")


def run(spark: SparkSession, args: argparse.Namespace) -> Summary:
    source = Source(args.bootstrap, [args.history], args.archive, args.since, args.until)
    if args.offset is not None:
        return life_summary(life(spark, source, args.subject, args.offset))
    found = trace(spark, source, args.subject, group=args.group, progress=args.progress)
    return trace_summary(found, args.slowest)
