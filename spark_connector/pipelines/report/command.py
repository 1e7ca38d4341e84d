"""`kumquat-spark report`: what is in subjects, by hour, as a table and as an HTML page.

    facts = report(spark, Source(bootstrap, ["orders", "payments"]))
    Path("report.html").write_text(page(facts))

The messages are read once and cut down to what is counted (time, size, key, lateness), which Spark
keeps in memory, or on disk when it is too much. What comes back to the driver is sums: a row for each
subject, hour and slot of a plot, never a message.

- Size is that of key and value.
- The number of different keys and the percentiles are estimates (Spark's, within a few per cent and
  a ten-thousandth of the ranks).
- Silences are found from sums by second, so none below a second is seen, and those above are exact.
- Lateness is known of messages that the delay service delivered: their time less `qmq-due-ms`. Of a
  copy (replay, dedupe) it is the original's, whose time is in a header: when the copy was
  made says nothing about the delay service.
- Messages without a time (Kafka's -1), or with one after the year 9999 (a producer that gave
  microseconds, say), are counted and left out.
- Offsets without a message are counted when the whole of a subject is looked at: in a range of times,
  messages of other times lie in between.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError, clear_errors
from kumquat.spark.offsets import check_subjects
from kumquat.spark.pipelines.archive.command import archive_state
from kumquat.spark.pipelines.common.sources import Source, add_broker, add_range
from kumquat.spark.pipelines.common.summary import SILENT, Progress, Summary
from kumquat.spark.pipelines.copies.copier import ORIGINAL_MS, header
from kumquat.spark.pipelines.report.facts import (
    HOUR_MS,
    LAST_MS,
    Figures,
    Report,
    Silence,
    SubjectFacts,
    slot_width,
    summary,
)
from kumquat.spark.pipelines.report.page import page

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, Row, SparkSession

DUE_HEADER = "qmq-due-ms"
TOP_KEYS = 5
TOP_SILENCES = 5
LONGEST_KEY = 80
PERCENTILES = [0.5, 0.99]
WHOLE, HOUR, SLOT = 3, 1, 2
"""What grouping_id() gives: which of hour and slot a row is summed over."""


def report(spark: SparkSession, source: Source, progress: Progress = SILENT) -> Report:
    progress(f"report: reading {source}")
    written = time.time_ns() // 1_000_000
    with clear_errors(), _kept(_slim(source.read(spark))) as slim:
        ranges = _ranges(slim)
        found = {name: row for name, row in ranges.items() if row["messages"]}
        empty = [name for name in source.subjects if name not in ranges]
        timeless = {name: row["timeless"] for name, row in ranges.items() if row["timeless"]}
        if not found:
            return Report(str(source), written, [], empty, timeless)
        first = min(row["first_ms"] for row in found.values())
        last = max(row["last_ms"] for row in found.values())
        progress(f"report: summing up {sum(r['messages'] for r in found.values()):,} messages")
        timed = slim.where(_timed())
        levels = _levels(timed, slot_width(first, last))
        seconds = _seconds(timed)
        busiest, silences = _busiest(seconds), _silences(seconds)
        keys = _top_keys(timed)
    whole = source.since is None and source.until is None
    subjects = [
        SubjectFacts(
            name,
            levels[name][WHOLE][0],
            levels[name][HOUR],
            levels[name][SLOT],
            busiest[name],
            silences.get(name, []),
            keys.get(name, []),
            row["holes"] if whole else None,
        )
        for name, row in sorted(found.items())
    ]
    return Report(str(source), written, subjects, empty, timeless)


def _slim(messages: DataFrame) -> DataFrame:
    octets = sql.coalesce(sql.octet_length("key"), sql.lit(0))
    octets += sql.coalesce(sql.octet_length("value"), sql.lit(0))
    ms = sql.unix_millis("timestamp")
    first_ms = sql.coalesce(header(ORIGINAL_MS).try_cast("bigint"), ms)
    return messages.select(
        sql.col("topic").alias("subject"),
        "offset",
        "key",
        ms.alias("ms"),
        octets.alias("octets"),
        (first_ms - header(DUE_HEADER).try_cast("bigint")).alias("late"),
    )


def _timed() -> Column:
    return sql.col("ms").between(0, LAST_MS)


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        with suppress(Py4JError, OSError):  # after Ctrl-C Spark may be gone: that is no error
            frame.unpersist()


def _ranges(slim: DataFrame) -> dict[str, Row]:
    timed = _timed()
    ms = sql.when(timed, sql.col("ms"))
    sums = slim.groupBy("subject").agg(
        sql.count_if(timed).alias("messages"),
        sql.count_if(~timed).alias("timeless"),
        (sql.max("offset") - sql.min("offset") + 1 - sql.count("*")).alias("holes"),
        sql.min(ms).alias("first_ms"),
        sql.max(ms).alias("last_ms"),
    )
    return {row["subject"]: row for row in sums.collect()}


def _levels(slim: DataFrame, slot_ms: int) -> dict[str, dict[int, dict[int, Figures]]]:
    """Figures by subject, level and beginning, in one pass."""
    rows = slim.withColumns({"hour": _floor("ms", HOUR_MS), "slot": _floor("ms", slot_ms)})
    subject, hour, slot = sql.col("subject"), sql.col("hour"), sql.col("slot")
    sets = [[subject], [subject, hour], [subject, slot]]
    sums = rows.groupingSets(sets, subject, hour, slot).agg(
        sql.grouping_id().alias("level"), *_measures()
    )
    levels: dict[str, dict[int, dict[int, Figures]]] = {}
    for row in sums.collect():
        level = row["level"]
        start = row["hour"] if level == HOUR else row["slot"] if level == SLOT else 0
        of_subject = levels.setdefault(row["subject"], {WHOLE: {}, HOUR: {}, SLOT: {}})
        of_subject[level][start] = _figures(row)
    return levels


def _measures() -> list[Column]:
    return [
        sql.count("*").alias("messages"),
        sql.sum("octets").alias("octets"),
        sql.percentile_approx("octets", PERCENTILES).alias("sizes"),
        sql.max("octets").alias("largest"),
        sql.approx_count_distinct("key").alias("keys"),
        sql.count_if(sql.col("key").isNull()).alias("keyless"),
        sql.min("ms").alias("first_ms"),
        sql.max("ms").alias("last_ms"),
        sql.count("late").alias("delayed"),
        sql.count_if(sql.col("late") < 0).alias("early"),
        sql.percentile_approx("late", PERCENTILES).alias("lates"),
        sql.max("late").alias("late_max"),
    ]


def _figures(row: Row) -> Figures:
    late_p50, late_p99 = row["lates"] or (None, None)
    size_p50, size_p99 = row["sizes"]
    plain = ["messages", "octets", "largest", "keys", "keyless", "first_ms", "last_ms"]
    plain += ["delayed", "early", "late_max"]
    return Figures(
        **{name: row[name] for name in plain},
        size_p50=size_p50,
        size_p99=size_p99,
        late_p50=late_p50,
        late_p99=late_p99,
    )


def _seconds(slim: DataFrame) -> DataFrame:
    return slim.groupBy("subject", _floor("ms", 1000).alias("second")).agg(
        sql.count("*").alias("messages"),
        sql.min("ms").alias("first_ms"),
        sql.max("ms").alias("last_ms"),
    )


def _busiest(seconds: DataFrame) -> dict[str, tuple[int, int]]:
    most = seconds.groupBy("subject").agg(
        sql.max(sql.struct(sql.col("messages"), -sql.col("second"))).alias("most")
    )
    return {row["subject"]: (row["most"][0], -row["most"][1]) for row in most.collect()}


def _silences(seconds: DataFrame) -> dict[str, list[Silence]]:
    """The longest of each subject, and the longest begun in each of its hours."""
    in_time = Window.partitionBy("subject").orderBy("second")
    gaps = seconds.select(
        "subject",
        sql.lag("last_ms").over(in_time).alias("start"),
        sql.col("first_ms").alias("end"),
    ).where("end - start >= 1000")
    longest = sql.col("start") - sql.col("end"), sql.col("start")
    of_subject = Window.partitionBy("subject").orderBy(*longest)
    of_hour = Window.partitionBy("subject", _floor("start", HOUR_MS)).orderBy(*longest)
    ranked = gaps.withColumns(
        {"in_all": sql.row_number().over(of_subject), "in_hour": sql.row_number().over(of_hour)}
    )
    chosen = ranked.where((sql.col("in_all") <= TOP_SILENCES) | (sql.col("in_hour") == 1))
    silences: dict[str, list[Silence]] = {}
    for row in chosen.orderBy("subject", "in_all").collect():
        silences.setdefault(row["subject"], []).append(Silence(row["start"], row["end"]))
    return silences


def _top_keys(slim: DataFrame) -> dict[str, list[tuple[str, int]]]:
    """The most frequent keys that occur more than once."""
    counts = slim.where("key is not null").groupBy("subject", "key").count().where("count > 1")
    best = Window.partitionBy("subject").orderBy(sql.desc("count"), "key")
    ranked = counts.withColumn("place", sql.row_number().over(best))
    keys: dict[str, list[tuple[str, int]]] = {}
    for row in ranked.where(sql.col("place") <= TOP_KEYS).orderBy("subject", "place").collect():
        keys.setdefault(row["subject"], []).append((key_text(bytes(row["key"])), row["count"]))
    return keys


def key_text(key: bytes) -> str:
    """The key as text when it is text, else in hexadecimal; cut when it is long."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or not text:
        text = f"0x{key.hex()}"
    return text if len(text) <= LONGEST_KEY else text[: LONGEST_KEY - 1] + "…"


def _floor(column: str, width: int) -> Column:
    return sql.col(column) - sql.pmod(sql.col(column), sql.lit(width))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help="what to report on")
    add_broker(parser)
    parser.add_argument(
        "--archive", type=Path, metavar="FOLDER", help="an archive instead of the broker"
    )
    add_range(parser)
    parser.add_argument(
        "--page", type=Path, default=Path("report.html"), metavar="FILE", help="(report.html)"
    )


def check(args: argparse.Namespace) -> None:
    if args.archive is not None:
        archive_state(args.archive)
    elif not args.subjects:
        raise ConnectorError("name the subjects to report on, or give --archive FOLDER")
    else:
        check_subjects(args.bootstrap, args.subjects)
    if not args.page.absolute().parent.is_dir():
        raise ConnectorError(f"no folder for the page {args.page}: make it, or give another --page")


def run(spark: SparkSession, args: argparse.Namespace) -> Summary:
    source = Source(args.bootstrap, args.subjects, args.archive, args.since, args.until)
    found = report(spark, source, args.progress)
    write_page(args.page, found)
    return summary(found, str(args.page.resolve()))


def write_page(path: Path, facts: Report) -> None:
    """Writes it in one step: a reader never sees half a page."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(page(facts), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise ConnectorError(
            f"cannot write the page {path}: {error.strerror}; give another --page"
        ) from None
