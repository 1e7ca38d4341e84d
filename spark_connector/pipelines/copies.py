"""Copying messages into a subject, batch by batch, each once, also when a batch is run again.

    with Copier(spark, bootstrap, "orders", folder, name="again") as copier:
        copier.send(rows, 0)      # rows: columns as Spark's Kafka source has them
        copier.send(more, 1)

Kafka's sink in Spark is "at least once": a batch that broke off and is run again sends again what it
had sent. The rule that mends it:

- Each copy carries its run and its origin in headers (`kumquat-run`, `kumquat-origin`: subject/offset),
  and its first time (`kumquat-original-ms`).
- The target's end is recorded on disk before a batch sends anything (copy_journal.py).
- Every run of that batch, first or repeated, leaves out what the target holds from there on.

The caller gives each batch the same rows under the same number whenever it is run; a batch that is
done is not run again. A batch is sent by one task, in the order of subject and offset, so that the
target has the order of its source.

What could send a copy twice in spite of it is a sender that the reading of the target does not see:
- A task that Spark repeats by itself (a failed one, a speculative one, a lost executor's): it would
  send from the start again. A repeated task refuses to send, the batch fails, and is run again as a whole.
- Tasks of the batch that broke off. With `local[…]` they have ended: see `locked` in durable.py.
- Producers that outlive their task: Spark keeps them, and they send what they hold until
  `delivery_seconds` are over. So a batch that broke off on a cluster, or in this same Spark, is taken
  up after that time. When its Spark is known to have ended, a moment is enough, for the requests
  that it had put on the wire.

After a repeated batch the copies are counted: `Sent.doubled` is what slipped through in spite of all.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import functions as sql

from spark_connector.errors import ConnectorError, clear_errors
from spark_connector.offsets import earliest, latest
from spark_connector.pipelines.copy_journal import Journal
from spark_connector.pipelines.durable import locked
from spark_connector.pipelines.summary import SILENT, Progress
from spark_connector.subjects import read_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

RUN = "kumquat-run"
ORIGIN = "kumquat-origin"
ORIGINAL_MS = "kumquat-original-ms"
DELIVERY_SECONDS = 60
WIRE_SECONDS = 2.0
"""For what a Spark that has ended had sent to the broker's sockets."""
ASK_SECONDS = 0.1
CATCH_UP_MS = 1000
LARGEST_BYTES = 32 << 20
"""No limit of the producer's own below this: the target's max.message.bytes decides."""
REPEATED = (
    "a task failed and Spark repeated it, which would send copies twice: see in Spark's log why it "
    "failed, and run this again to send what is left"
)
_FIRST_ATTEMPT = r"task [0-9]+\.0 in stage [0-9]+\.0 "
_ROW_IN_TASK = (1 << 33) - 1
"""The part of monotonically_increasing_id() that counts a task's own rows."""


@dataclass(frozen=True)
class Sent:
    copies: int
    """Sent by this call."""
    held: int = 0
    """Left out, since an earlier run of the batch had sent them."""
    doubled: int = 0
    """Copies that the target has more than once; always 0, or something outlived its batch."""


class Copier:
    """One run into one target. Its folder is its memory: give the same one to go on."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        target: str,
        folder: Path,
        *,
        name: str,
        delivery_seconds: int = DELIVERY_SECONDS,
        progress: Progress = SILENT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._target = target
        self._folder = folder
        self._name = name
        self._delivery_seconds = delivery_seconds
        self._progress = progress
        self._sleep = sleep
        self._due_ms = time.time() * 1000
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._open.enter_context(locked(self._spark, self._folder / "lock"))
        try:
            self._journal = Journal(self._folder, self._name, self._target)
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def run(self) -> str:
        """What the copies carry: the name, and a number that no other run has."""
        return self._journal.entry.run

    @property
    def sent(self) -> int:
        """Copies in the batches that are done."""
        return self._journal.entry.sent

    @property
    def next_batch(self) -> int:
        """The batch to send now: the one under way, or the one after the last that is done."""
        entry = self._journal.entry
        return entry.batch + (entry.state != "begun")

    def send(self, rows: DataFrame, batch: int, rate: float | None = None) -> Sent:
        """Returns when the target has the batch, at most `rate` copies a second, if given."""
        if self._journal.is_done(batch):
            return Sent(0)
        again = self._journal.is_begun(batch)
        if again:
            self._wait_for_what_outlived()
        application = self._spark.sparkContext.applicationId
        end = self._journal.begin(batch, application, self._target_end)
        held = self._held(rows.sparkSession, end)
        with _own_jobs(self._spark.sparkContext, f"kumquat-{self.run}", self._delivery_seconds):
            copies = self._send(as_copies(rows, self.run), held, rate)
        known = held.distinct().count() if held is not None else 0
        doubled = self._doubled(rows.sparkSession, end) if again else 0
        self._journal.done(known + copies)
        return Sent(copies, known, doubled)

    def _send(self, copies: DataFrame, held: DataFrame | None, rate: float | None) -> int:
        if held is not None:
            copies = copies.join(held, "origin", "left_anti")
        ordered = copies.repartition(1).sortWithinPartitions("topic", "offset")
        # Kept on disk: counted and sent from one reading of the source.
        ordered.persist(StorageLevel.DISK_ONLY)
        try:
            with clear_errors():
                count = ordered.count()
                if count:
                    first = ordered.where(_only_first_attempt())
                    self._write(first if rate is None else self._at_rate(first, rate, count))
        except ConnectorError as error:
            if REPEATED in str(error):
                raise ConnectorError(REPEATED) from error
            raise
        finally:
            ordered.unpersist()
        return count

    def _at_rate(self, copies: DataFrame, rate: float, count: int) -> DataFrame:
        """What a batch is late by, up to CATCH_UP_MS, its first rows make up for."""
        begin_ms = max(int(self._due_ms), time.time_ns() // 1_000_000 - CATCH_UP_MS)
        self._due_ms = begin_ms + count * 1000 / rate
        return copies.where(_paced(rate, begin_ms))

    def _write(self, copies: DataFrame) -> None:
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "topic": self._target,
            "kafka.delivery.timeout.ms": str(self._delivery_seconds * 1000),
            "kafka.request.timeout.ms": str(self._delivery_seconds * 1000 // 2),
            "kafka.max.request.size": str(LARGEST_BYTES),
        }
        copies.select("key", "value", "headers").write.format("kafka").options(**options).save()

    def _held(self, spark: SparkSession, end: int) -> DataFrame | None:
        """The origins of this run's copies that the target has from there on; None for none."""
        now = self._target_end()
        kept = earliest(self._bootstrap, [self._target])[self._target]
        if now < end:
            raise ConnectorError(
                f"{self._target} ends at {now}, but ended at {end} before: it was made anew; "
                "begin a new run"
            )
        if now == end:
            return None
        if kept > end:
            raise ConnectorError(
                f"retention deleted {self._target} up to {kept} while a batch that began at {end} "
                "was under way, so what was sent is not known: begin a new run"
            )
        start, stop = {self._target: end}, {self._target: now}
        found = read_subject(spark, self._bootstrap, self._target, starting=start, ending=stop)
        mine = found.where(header(RUN) == sql.lit(self.run))
        return mine.select(header(ORIGIN).alias("origin"))

    def _doubled(self, spark: SparkSession, end: int) -> int:
        held = self._held(spark, end)
        if held is None:
            return 0
        with clear_errors():
            return held.groupBy("origin").count().where("count > 1").count()

    def _target_end(self) -> int:
        return latest(self._bootstrap, [self._target])[self._target]

    def _wait_for_what_outlived(self) -> None:
        """Returns when the batch that broke off can send no more."""
        before = self._journal.entry.application
        ended = before.startswith("local-") and before != self._spark.sparkContext.applicationId
        seconds = WIRE_SECONDS if ended else float(self._delivery_seconds)
        self._progress(
            f"going on with a batch that broke off; in {seconds:.0f} s all it sent is there"
        )
        self._sleep(seconds)


def as_copies(rows: DataFrame, run: str) -> DataFrame:
    """The rows with the headers of a copy, and their origin as a column."""
    origin = sql.concat_ws("/", "topic", sql.col("offset").cast("string"))
    first_ms = sql.unix_millis("timestamp").cast("string")
    added = {
        RUN: sql.lit(run),
        ORIGIN: origin,
        ORIGINAL_MS: sql.coalesce(header(ORIGINAL_MS), first_ms),
    }
    pairs = [
        sql.struct(sql.lit(name).alias("key"), value.cast("binary").alias("value"))
        for name, value in added.items()
    ]
    none = sql.array().cast("array<struct<key:string,value:binary>>")
    others = sql.filter(sql.coalesce("headers", none), lambda each: ~each["key"].isin(*added))
    headers = sql.concat(others, sql.array(*pairs))
    return rows.select(
        "topic", "offset", "key", "value", origin.alias("origin"), headers.alias("headers")
    )


def header(name: str) -> Column:
    """The text of the last header of that name, or null."""
    same = sql.filter("headers", lambda each: each["key"] == name)
    return sql.try_element_at(same, sql.lit(-1))["value"].cast("string")


def _row_in_task() -> Column:
    return sql.monotonically_increasing_id().bitwiseAND(sql.lit(_ROW_IN_TASK))


def _only_first_attempt() -> Column:
    """Fails a task that Spark runs again. Which attempt it is stands in the name of its thread:
    the one place that an expression can reach without a jar or Python workers."""
    thread = sql.java_method(sql.lit("java.lang.Thread"), sql.lit("currentThread"))
    refusal = sql.raise_error(sql.lit(REPEATED))
    bad = (_row_in_task() == 0) & ~thread.rlike(_FIRST_ATTEMPT)
    return sql.when(bad, refusal.cast("boolean")).otherwise(sql.lit(True))


def _paced(rate: float, begin_ms: int) -> Column:
    """Holds each row until its time has come."""
    now = sql.java_method(sql.lit("java.lang.System"), sql.lit("currentTimeMillis")).cast("bigint")
    due = sql.lit(begin_ms) + (_row_in_task() * sql.lit(1000.0 / rate)).cast("bigint")
    wait = sql.greatest(sql.lit(0).cast("bigint"), due - now)
    return sql.java_method(sql.lit("java.lang.Thread"), sql.lit("sleep"), wait).isNotNull()


@contextmanager
def _own_jobs(context: SparkContext, tag: str, seconds: float) -> Iterator[None]:
    """Whoever leaves the block early, by an error or Ctrl-C, first sees its tasks ended."""
    context.addJobTag(tag)
    try:
        yield
    except BaseException:
        with suppress(Py4JError, OSError):  # Spark may have ended, and its tasks with it
            context.cancelJobsWithTag(tag)
            deadline = time.monotonic() + seconds
            while _running_tasks(context, tag) and time.monotonic() < deadline:
                time.sleep(ASK_SECONDS)
        raise
    finally:
        with suppress(Py4JError, OSError):
            context.removeJobTag(tag)


def _running_tasks(context: SparkContext, tag: str) -> int:
    java: Any = context._jsc
    tracker = java.sc().statusTracker()
    jobs = [context.statusTracker().getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    infos = [context.statusTracker().getStageInfo(stage) for stage in stages]
    return sum(info.numActiveTasks for info in infos if info is not None)
