"""`kumquat-spark reconcile`: what one side has and the other lacks, has twice, or has in another order.

    found = reconcile(spark, Source(bootstrap, ["orders"]), Source(bootstrap, ["orders-copy"]))
    found.counts["missing"], found.samples["missing"]

The left side is taken as correct; the right side, another subject or an archive, is checked against it.

| | |
|---|---|
| missing | on the left, not on the right |
| extra | on the right, not on the left |
| doubled right | more often on the right than on the left |
| out of order | places where the right has a message before the one that it follows on the left |
| doubled left | an id that the left has more than once, and the right less often: nothing is wrong |
| expired | in the archive, deleted by the subject's retention: nothing is wrong |
| not archived yet | in the subject, behind all that is archived: nothing is wrong |

A subject and its own archive are compared by offset, two subjects by id (identity.py), unless `by` says
otherwise. If an identity comes more than once, the first on the left is paired with the first on the
right, and so on. What the right has more often is doubled. What the left has more often is missing if it
is identified by its key, since many messages may have the same key. Two messages with one id, however,
are one message that was sent twice, and once is enough. Order is that of the whole subject, or only among
messages of one key.

Each side is one subject, as it was at one moment (reconcile/sides.py), and is read once; one shuffle
brings equal identities together. The driver gets counts and a few samples.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError, clear_errors
from kumquat.spark.offsets import check_subjects
from kumquat.spark.pipelines.archive.command import archive_state
from kumquat.spark.pipelines.common.identity import (
    ID_HEADER,
    OFFSET,
    add_identity,
    check_way,
    identity,
    identity_text,
    is_unique,
)
from kumquat.spark.pipelines.common.preceding_rows import with_previous
from kumquat.spark.pipelines.common.sources import Source, add_broker, add_range
from kumquat.spark.pipelines.common.summary import SILENT, Progress, Summary, Table, count
from kumquat.spark.pipelines.reconcile.sides import Side, fixed, unchanged

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

WRONG = ("missing", "extra", "doubled right", "out of order")
HARMLESS = ("matched", "doubled left", "expired", "not archived yet")
ORDERS = ("subject", "key")
SAMPLES = 5


@dataclass(frozen=True)
class Sample:
    identity: str
    left: int | None
    right: int | None
    """Offsets."""


@dataclass(frozen=True)
class Reconciliation:
    counts: Mapping[str, int]
    samples: Mapping[str, Sequence[Sample]]

    @property
    def ok(self) -> bool:
        return not any(self.counts[what] for what in WRONG)


def reconcile(
    spark: SparkSession,
    left: Source,
    right: Source,
    *,
    by: str | None = None,
    id_header: str = ID_HEADER,
    order: str = "subject",
    progress: Progress = SILENT,
) -> Reconciliation:
    if order not in ORDERS:
        raise ConnectorError(f"order is that of the {' or of the '.join(ORDERS)}, not {order!r}")
    progress(f"reconcile: reading {left} and {right}")
    if by is not None and by != OFFSET:
        check_way(by)
    first, second = fixed(left, right)
    known = identity(by or (OFFSET if _of_one_subject(first, second) else "id"), id_header)
    with unchanged(first, second), clear_errors():
        sides = _side(first.read(spark), known, "l").unionByName(
            _side(second.read(spark), known, "r")
        )
        paired = _paired(sides).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            judged = _judged(_ordered(paired, order), *_limits(first, second))
            progress("reconcile: comparing")
            counts = {row["what"]: row["count"] for row in judged.groupBy("what").count().collect()}
            wrong = any(counts.get(what) for what in WRONG)
            samples = _samples(judged) if wrong else {}
        finally:
            with suppress(Py4JError, OSError):  # after Ctrl-C Spark may be gone: that is no error
                paired.unpersist()
    return Reconciliation({what: counts.get(what, 0) for what in WRONG + HARMLESS}, samples)


def _side(messages: DataFrame, known: Column, side: str) -> DataFrame:
    return messages.select(
        known.alias("id"),
        sql.xxhash64("key").alias("key_hash"),
        sql.lit(side).alias("side"),
        "offset",
    )


def _paired(sides: DataFrame) -> DataFrame:
    """A row for the nth of an identity: its offset on each side, and how many of it the left has."""
    is_left = sql.col("side") == "l"
    nth = sql.row_number().over(Window.partitionBy("id", "side").orderBy("offset"))
    in_left = sql.count_if(is_left).over(Window.partitionBy("id"))
    numbered = sides.withColumns({"nth": nth, "in_left": in_left})
    return numbered.groupBy("id", "nth").agg(
        sql.max(sql.when(is_left, sql.col("offset"))).alias("l"),
        sql.max(sql.when(~is_left, sql.col("offset"))).alias("r"),
        sql.max("in_left").alias("in_left"),
        sql.max("key_hash").alias("key_hash"),
    )


def _limits(left: Side, right: Side) -> tuple[int | None, int | None]:
    """Where the subject begins and its archive ends; None for other sides."""
    if right.source.archive is None or not _of_one_subject(left, right):
        return None, None
    return left.begin, right.end


def _of_one_subject(left: Side, right: Side) -> bool:
    """A subject and its own archive."""
    one_archive = (left.source.archive is None) != (right.source.archive is None)
    return one_archive and left.subject == right.subject


def _ordered(paired: DataFrame, order: str) -> DataFrame:
    """Adds `previous`: where the right has the message that is the one before on the left."""
    both = paired.where("l is not null and r is not null")
    single = paired.where("l is null or r is null")
    if order == "subject":
        both = with_previous(both, "l", "r", "previous")
    else:
        before = sql.lag("r").over(Window.partitionBy("key_hash").orderBy("l"))
        both = both.withColumn("previous", before)
    return both.unionByName(single, allowMissingColumns=True)


def _judged(rows: DataFrame, expired: int | None, archived: int | None) -> DataFrame:
    """A row for each finding about a pair."""
    left, right = sql.col("l").isNotNull(), sql.col("r").isNotNull()
    unique, first = is_unique(sql.col("id")), sql.col("nth") == 1
    known_left = sql.col("in_left") > 0
    extra = right & ~left & ~known_left & (first | ~unique)
    missing = left & ~right & (first | ~unique)
    gone = extra & (sql.col("r") < expired) if expired is not None else sql.lit(False)
    behind = missing & (sql.col("l") >= archived) if archived is not None else sql.lit(False)
    verdicts = {
        "matched": left & right,
        "missing": missing & ~behind,
        "not archived yet": behind,
        "extra": extra & ~gone,
        "expired": gone,
        "doubled left": unique & left & ~right & ~first,
        "doubled right": right & ~left & (known_left | (unique & ~first)),
        "out of order": left & right & (sql.col("r") < sql.col("previous")),
    }
    said = sql.array_compact(
        sql.array(*[sql.when(is_so, what) for what, is_so in verdicts.items()])
    )
    return rows.select(sql.explode(said).alias("what"), "id", "l", "r")


def _samples(judged: DataFrame) -> dict[str, list[Sample]]:
    first = Window.partitionBy("what").orderBy(sql.coalesce("l", "r"))
    ranked = judged.where(sql.col("what").isin(*WRONG)).withColumn(
        "place", sql.row_number().over(first)
    )
    samples: dict[str, list[Sample]] = {}
    for row in ranked.where(sql.col("place") <= SAMPLES).orderBy("what", "place").collect():
        sample = Sample(identity_text(bytes(row["id"])), row["l"], row["r"])
        samples.setdefault(row["what"], []).append(sample)
    return samples


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("left", metavar="SUBJECT", help="what should be")
    parser.add_argument("right", nargs="?", metavar="OTHER", help="the subject to look at")
    add_broker(parser)
    parser.add_argument(
        "--archive", type=Path, metavar="FOLDER", help="look at this archive of SUBJECT (or OTHER)"
    )
    add_identity(parser)
    parser.add_argument(
        "--order", choices=ORDERS, default="subject", help="whose order must hold (subject)"
    )
    add_range(parser)


def check(args: argparse.Namespace) -> None:
    if args.right is None and args.archive is None:
        raise ConnectorError("reconcile needs a second side: name another subject, or --archive")
    if args.archive is not None:
        archive_state(args.archive)
        check_subjects(args.bootstrap, [args.left])
    else:
        check_subjects(args.bootstrap, [args.left, args.right])


def run(spark: SparkSession, args: argparse.Namespace) -> Summary:
    left = Source(args.bootstrap, [args.left], None, args.since, args.until)
    right = replace(left, subjects=[args.right or args.left], archive=args.archive)
    found = reconcile(
        spark,
        left,
        right,
        by=args.by,
        id_header=args.id_header,
        order=args.order,
        progress=args.progress,
    )
    name = str(right) if args.archive else args.right
    return summary(found, f"{args.left} and {name}")


def summary(found: Reconciliation, what: str) -> Summary:
    verdict = "all is there, once and in order" if found.ok else "they differ"
    values = [(name, count(found.counts[name])) for name in ("matched", *WRONG)]
    values += [(name, count(found.counts[name])) for name in HARMLESS[1:] if found.counts[name]]
    rows = [
        [name, sample.identity, _offset(sample.left), _offset(sample.right)]
        for name in WRONG
        for sample in found.samples.get(name, ())
    ]
    heads = ["what", "message", "left offset", "right offset"]
    tables = [Table(heads, rows, f"the first {SAMPLES} of each")] if rows else []
    return Summary(f"reconcile {what}: {verdict}", values, tables, ok=found.ok)


def _offset(offset: int | None) -> str:
    return "" if offset is None else f"{offset:,}"
