"""`kumquat-spark dedupe`: one subject into another, each message id once within a window.

    dedupe(spark, "127.0.0.1:9092", "orders", "orders-once", "dedupe-orders", window=timedelta(hours=1))

A message is let through when no message with its id was let through in the window before it; its
doubles in that time are left out. After the window the id may come again. What is let through is a copy
as copies.py makes them: same key, value and headers, with its origin and its first time added.

The clock of the window is the latest time that the subject has shown so far: it goes by the messages,
not by when they are read, and never runs back. So a message with an old time is neither lost nor let
through twice, a run over last week decides as it would have decided last week, and batches may
be cut anywhere. A time ahead of the wall clock counts as the wall clock's.

A run goes on in batches to where the source ends as it begins, or, with `follow`, until it is
stopped. Before a batch sends anything its range is on disk (dedupe_books.py) and what it lets
through is decided and written; a batch that broke off is decided again from the same range and the
same memory, so the same messages are let through, and copies.py sends each once.

A batch costs its own messages and the ids of one window. What retention deleted before it was read ends
the run, unless `accept_loss`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark_connector.errors import ConnectorError, clear_errors
from spark_connector.offsets import check_subjects, earliest, latest
from spark_connector.pipelines.copies import Copier
from spark_connector.pipelines.dedupe_books import NO_CLOCK, Books, Pending, Rule
from spark_connector.pipelines.identity import ID_HEADER, add_identity, check_way, identity
from spark_connector.pipelines.neighbours import with_highest
from spark_connector.pipelines.sources import add_broker
from spark_connector.pipelines.summary import SILENT, Progress, Summary, count, duration
from spark_connector.pipelines.times import parse_length
from spark_connector.subjects import read_subject

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import Column, DataFrame, SparkSession

WINDOW = timedelta(hours=1)
BATCH = 500_000
MERGE_FROM = 16
ASK_SECONDS = 1.0
_KEPT = "struct<last:bigint,kept:array<struct<time:bigint,offset:bigint>>>"


@dataclass
class Deduped:
    """What the run has done since it began, over all its starts."""

    rule: Rule
    read: int = 0
    sent: int = 0
    batches: int = 0

    def summary(self) -> Summary:
        window = duration(self.rule.window_ms / 1000)
        values = [
            ("read", count(self.read, "message")),
            ("let through", f"{count(self.sent)}, in batches: {self.batches:,}"),
            ("left out", f"{count(self.read - self.sent)}, whose id came before within {window}"),
        ]
        return Summary(f"dedupe {self.rule.source} into {self.rule.target}", values)


def dedupe(
    spark: SparkSession,
    bootstrap: str,
    source: str,
    target: str,
    folder: Path | str,
    *,
    window: timedelta = WINDOW,
    by: str = "id",
    id_header: str = ID_HEADER,
    follow: bool = False,
    accept_loss: bool = False,
    batch: int = BATCH,
    progress: Progress = SILENT,
) -> Deduped:
    rule = Rule(source, target, window // timedelta(milliseconds=1), by, id_header)
    _check(bootstrap, rule)
    if batch < 1:
        raise ConnectorError(f"a batch has at least 1 message, not {batch}")
    with Copier(spark, bootstrap, target, Path(folder), name="dedupe") as copier:
        books = Books(Path(folder), rule, earliest(bootstrap, [source])[source])
        run = _Run(spark, bootstrap, copier, books, accept_loss)
        while True:
            end = run.source_end()
            while books.page.pending is not None or books.page.next < end:
                run.step(min(end, books.page.next + batch))
                told = f"{books.page.next:,} of {end:,} offsets, {books.page.sent:,} let through"
                progress(f"dedupe: {told}")
            if not follow:
                break
            time.sleep(ASK_SECONDS)
        return Deduped(rule, books.page.read, books.page.sent, books.page.batch)


@dataclass
class _Run:
    spark: SparkSession
    bootstrap: str
    copier: Copier
    books: Books
    accept_loss: bool

    def source_end(self) -> int:
        source = self.books.rule.source
        end = latest(self.bootstrap, [source])[source]
        if end < self.books.page.next:
            raise ConnectorError(
                f"{source} ends at {end:,}, but was read up to {self.books.page.next:,}: it was "
                "deleted and made anew; give another folder, and a new run begins"
            )
        return end

    def step(self, end: int) -> None:
        """One batch, from its plan to its commit."""
        self._see_that_all_is_there()
        pending = self.books.plan(end, time.time_ns() // 1_000_000)
        rows = self._rows(pending)
        number = self.books.page.batch
        folder = self.books.folder_of(f"{number:08}")
        with clear_errors():
            self._decide(rows, pending).write.mode("overwrite").parquet(str(folder))
            decided = self.spark.read.parquet(str(folder))
            read, sent, top = decided.agg(
                sql.sum("messages"), sql.sum(sql.size("kept")), sql.max("top")
            ).collect()[0]
        if sent:
            let_through = decided.select(sql.explode("kept.offset").alias("offset"))
            self.copier.send(rows.join(let_through, "offset", "left_semi"), number)
        self.books.commit(read or 0, sent or 0, folder, NO_CLOCK if top is None else top)
        if len(self.books.page.seen) >= MERGE_FROM:
            self._merge()

    def _see_that_all_is_there(self) -> None:
        source, page = self.books.rule.source, self.books.page
        kept = earliest(self.bootstrap, [source])[source]
        if kept <= page.next:
            return
        if not self.accept_loss:
            raise ConnectorError(
                f"retention deleted offsets {page.next:,} to {kept - 1:,} of {source} before they "
                "were read: go on without them with --accept-loss, and run more often"
            )
        self.books.skip_to(kept)

    def _rows(self, pending: Pending) -> DataFrame:
        source = self.books.rule.source
        starting, ending = {source: pending.start}, {source: pending.end}
        return read_subject(self.spark, self.bootstrap, source, starting=starting, ending=ending)

    def _decide(self, rows: DataFrame, pending: Pending) -> DataFrame:
        """A row for each id: how many messages, which of them are let through, the clock at its last."""
        rule, clock = self.books.rule, self.books.page.clock_ms
        known = sql.sha2(identity(rule.by, rule.id_header), 256)
        shown = sql.least(sql.unix_millis("timestamp"), sql.lit(pending.now_ms))
        messages = rows.select(
            sql.substring(sql.unhex(known), 1, 16).alias("id"),
            "offset",
            sql.greatest(shown, sql.lit(clock)).alias("shown"),
        )
        timed = with_highest(messages, "offset", "shown", "time")
        grouped = timed.groupBy("id").agg(
            sql.sort_array(sql.collect_list(sql.struct("time", "offset"))).alias("all")
        )
        joined = grouped.join(self._seen(clock - rule.window_ms), "id", "left")
        return joined.select(
            "id",
            sql.size("all").alias("messages"),
            _let_through(rule.window_ms).alias("kept"),
            sql.element_at("all", -1)["time"].alias("top"),
        )

    def _seen(self, since: int) -> DataFrame:
        """When each id was last let through, where that is inside the window."""
        folders = [str(self.books.folder / each.folder) for each in self.books.page.seen]
        if not folders:
            return self.spark.createDataFrame([], "id binary, last bigint")
        every = self.spark.read.schema(
            "id binary, messages int, kept array<struct<time:bigint,offset:bigint>>, top bigint"
        ).parquet(*folders)
        times = every.select("id", sql.explode("kept.time").alias("time"))
        return times.where(sql.col("time") > since).groupBy("id").agg(sql.max("time").alias("last"))

    def _merge(self) -> None:
        page = self.books.page
        folder = self.books.folder_of(f"{page.batch - 1:08}-merged")
        last = sql.array(sql.struct(sql.col("last").alias("time"), sql.lit(-1).cast("bigint")))
        merged = self._seen(page.clock_ms - self.books.rule.window_ms).select(
            "id",
            sql.lit(0).alias("messages"),
            last.cast("array<struct<time:bigint,offset:bigint>>").alias("kept"),
            sql.col("last").alias("top"),
        )
        with clear_errors():
            merged.write.mode("overwrite").parquet(str(folder))
        self.books.replace_seen(folder)


def _let_through(window_ms: int) -> Column:
    """Of an id's messages in order: the first, and each that is a window after the one before it."""
    never = sql.lit(NO_CLOCK).cast("bigint")
    none = sql.array().cast("array<struct<time:bigint,offset:bigint>>")
    start = sql.struct(sql.coalesce("last", never).alias("last"), none.alias("kept"))

    def add(so_far: Column, each: Column) -> Column:
        more = sql.struct(each["time"], sql.concat(so_far["kept"], sql.array(each))).cast(_KEPT)
        is_due = each["time"] - so_far["last"] >= window_ms
        return sql.when(is_due, more).otherwise(so_far)

    return sql.aggregate("all", start.cast(_KEPT), add, lambda so_far: so_far["kept"])


def _check(bootstrap: str, rule: Rule) -> None:
    if rule.source == rule.target:
        raise ConnectorError("source and target are the same subject: name another target")
    if rule.window_ms <= 0:
        raise ConnectorError("the window is longer than nothing: --window 1h, for instance")
    check_way(rule.by)
    check_subjects(bootstrap, [rule.source, rule.target])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="the subject to read")
    parser.add_argument("target", metavar="TARGET", help="the subject to write, each id once")
    add_broker(parser)
    parser.add_argument(
        "--state", required=True, type=Path, metavar="FOLDER", help="what the run remembers"
    )
    parser.add_argument(
        "--window", type=parse_length, default=WINDOW, metavar="LENGTH", help="30m, 12h, 7d (1h)"
    )
    add_identity(parser)
    parser.add_argument(
        "--batch", type=int, default=BATCH, metavar="N", help="messages in a batch (%(default)s)"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument(
        "--accept-loss", action="store_true", help="go on when retention was faster than this"
    )


def check(args: argparse.Namespace) -> None:
    window = args.window // timedelta(milliseconds=1)
    _check(args.bootstrap, Rule(args.source, args.target, window, args.by, args.id_header))


def run(spark: SparkSession, args: argparse.Namespace) -> Summary:
    return dedupe(
        spark,
        args.bootstrap,
        args.source,
        args.target,
        args.state,
        window=args.window,
        by=args.by,
        id_header=args.id_header,
        follow=args.follow,
        accept_loss=args.accept_loss,
        batch=args.batch,
        progress=args.progress,
    ).summary()
