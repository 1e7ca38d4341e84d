"""`kumquat-spark search`: messages by key, header, text and time, in subjects or in an archive.

    search(spark, Source(archive=folder, subjects=["orders"]), key=b"order-17").show()

All that is given must hold. Of an archive, Spark opens the files of the subjects alone, and of those reads
the columns that it needs; on a live subject `kumquat search` is quicker, and uses the index of keys where
the subject has one. The newest messages are shown, oldest of them first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError, clear_errors
from kumquat.spark.offsets import check_subjects
from kumquat.spark.pipelines.archive.command import archive_state
from kumquat.spark.pipelines.common.identity import header_bytes
from kumquat.spark.pipelines.common.sources import Source, add_broker, add_range
from kumquat.spark.pipelines.common.summary import Summary, Table, count
from kumquat.spark.pipelines.common.times import told_time
from kumquat.spark.pipelines.report.command import key_text

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

MOST = 20


def search(
    spark: SparkSession,
    source: Source,
    *,
    key: bytes | None = None,
    header: tuple[str, bytes] | None = None,
    text: str | None = None,
) -> DataFrame:
    """The messages for which all of these hold, in the columns of Spark's Kafka source."""
    rows = source.read(spark)
    if key is not None:
        rows = rows.where(sql.col("key") == sql.lit(key))
    if header is not None:
        name, value = header
        rows = rows.where(header_bytes(name) == sql.lit(value))
    if text is not None:
        rows = rows.where(sql.contains("value", sql.lit(text.encode())))
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subjects", nargs="+", metavar="SUBJECT", help="where to look")
    parser.add_argument("--key", metavar="TEXT", help="messages with this key")
    parser.add_argument("--header", metavar="NAME=VALUE", help="messages with this header")
    parser.add_argument("--text", metavar="TEXT", help="messages with this text in their value")
    add_broker(parser)
    parser.add_argument(
        "--archive", type=Path, metavar="FOLDER", help="an archive instead of the broker"
    )
    add_range(parser)
    parser.add_argument(
        "--most", type=int, default=MOST, metavar="N", help=f"so many of the newest ({MOST})"
    )


def check(args: argparse.Namespace) -> None:
    if args.key is None and args.header is None and args.text is None:
        raise ConnectorError("say what to look for: --key, --header NAME=VALUE or --text")
    if args.header is not None and "=" not in args.header:
        raise ConnectorError(f"--header {args.header}: write NAME=VALUE")
    if args.most < 1:
        raise ConnectorError(f"--most is at least 1, not {args.most}")
    if args.archive is None:
        check_subjects(args.bootstrap, args.subjects)
    elif missing := [
        name for name in args.subjects if name not in archive_state(args.archive).next
    ]:
        raise ConnectorError(f"{args.archive} has no {', '.join(missing)}: correct the name")


def run(spark: SparkSession, args: argparse.Namespace) -> Summary:
    source = Source(args.bootstrap, args.subjects, args.archive, args.since, args.until)
    header = None
    if args.header is not None:
        name, _, value = args.header.partition("=")
        header = (name, value.encode())
    key = None if args.key is None else args.key.encode()
    args.progress(f"search: reading {source}")
    with clear_errors():
        found = search(spark, source, key=key, header=header, text=args.text)
        newest = found.orderBy(sql.desc("timestamp"), sql.desc("offset")).limit(args.most + 1)
        shown = newest.select(
            "topic", "offset", sql.unix_millis("timestamp").alias("ms"), "key", "value"
        ).collect()
    more = len(shown) > args.most
    rows = [
        [
            row["topic"],
            str(row["offset"]),
            told_time(row["ms"]),
            _text(row["key"]),
            _text(row["value"]),
        ]
        for row in reversed(shown[: args.most])
    ]
    values = [("source", str(source)), ("found", f"{count(len(rows), 'message')}")]
    if more:
        values.append(("more", f"there are older ones: give --most, or --until {rows[0][2]}"))
    heads = ["subject", "offset", "time", "key", "value"]
    return Summary("search", values, [Table(heads, rows)] if rows else [])


def _text(value: bytearray | None) -> str:
    return "" if value is None else key_text(bytes(value))
