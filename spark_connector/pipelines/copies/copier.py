"""Copying messages into a subject, batch by batch, each once, also when a batch is run again.

    run = Run("replay", "again", "orders", "orders-again", memory="plan.json")
    with Copier(spark, bootstrap, folder, run, watched=["orders", "orders-again"]) as copier:
        copier.send(rows, 0, (0, 1000))      # rows: columns as Spark's Kafka source has them
        copier.send(more, 1, (1000, 2000))

Spark's sink for Kafka is "at least once": a batch that is interrupted and run again sends again what it
had sent. This is how each message is sent once all the same:

- Each copy carries its run and its origin in headers (`kumquat-run`, `kumquat-origin`: subject/offset),
  and its first time (`kumquat-original-ms`).
- The target's end is recorded on disk before a batch sends anything (copies/journal.py).
- Every run of that batch, first or repeated, leaves out what the target holds from there on.

The caller gives a batch the same rows, of the same offsets, under the same number, each time it is run; a
batch that is done is not run again. A batch is sent by one task, in the order of subject and offset, so
that the target has the order of its source. Source and target must stay the same subjects: before
anything is sent, and before a batch is done, it is checked that they were not deleted and made again.

A copy could still be sent twice by a sender whose messages come after the target was read:
- A task that Spark repeats by itself (a failed one, a speculative one, a lost executor's): it would
  send from the start again. A repeated task refuses to send, the batch fails, and is run again as a whole.
- Tasks of the interrupted batch. Those of a JVM that has ended have ended. Those in this JVM, also
  of a SparkContext that was stopped, see at their next row that another start has taken over, and
  refuse: which start may send is a property of the JVM.
- Producers that outlive their task: Spark keeps them, and they send what they hold until their delivery
  time-out. So an interrupted batch is resumed after that time. If the process that sent it is known to
  have ended (senders.py), it is resumed after a moment, for what was on the wire.

After a repeated batch the copies are counted: `Sent.doubled` says how many were sent twice all the same.

A copy is sent at once, even if its message asked for a delay: the target would hold back a copy with a
delay header, where nobody could see that it was sent, and would act on one that cancels. A message that
was delayed has lost these headers when it was delivered; one that still has them comes from a subject
with `delay.enabled=false`. They are kept under other names: `qmq-delay-ms` is `kumquat-original-delay-ms`
in the copy.
"""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError, clear_errors
from kumquat.spark.offsets import earliest, identities, latest
from kumquat.spark.pipelines.common.durable import locked
from kumquat.spark.pipelines.common.run_memory import NEW_RUN, Range
from kumquat.spark.pipelines.common.summary import SILENT, Progress
from kumquat.spark.pipelines.copies.journal import Journal, Run
from kumquat.spark.pipelines.copies.senders import has_ended, sender_of
from kumquat.spark.pipelines.copies.tasks import (
    REPEATED,
    TAKEN_OVER,
    only_first_attempt,
    only_this_start,
    own_jobs,
    paced,
)
from kumquat.spark.subjects import read_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

RUN = "kumquat-run"
ORIGIN = "kumquat-origin"
ORIGINAL = "kumquat-original-"
ORIGINAL_MS = f"{ORIGINAL}ms"
ASKING = ("qmq-delay-ms", "qmq-deliver-at", "qmq-delay-id", "qmq-delay-cancel")
"""Headers that the broker acts on."""
DELIVERY_SECONDS = 60
BLOCK_SECONDS = 30
"""How long a producer may block its task before it accepts a copy."""
WIRE_SECONDS = 2
"""For what was on its way to the broker when its sender ended."""
CATCH_UP_MS = 1000
LARGEST_BYTES = 32 << 20
"""No limit of the producer's own below this: the target's max.message.bytes decides."""


@dataclass(frozen=True)
class Sent:
    copies: int
    """Sent by this call."""
    held: int = 0
    """Left out, since an earlier run of the batch had sent them."""
    doubled: int = 0
    """Copies that the target has more than once; always 0, or something outlived its batch."""


class NotKnown(ConnectorError):
    """Retention has deleted from the target what an interrupted batch may have sent."""


class Copier:
    """One run into one target. Its state is in its folder: give the same one to continue."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        folder: Path,
        run: Run,
        *,
        watched: Sequence[str],
        delivery_seconds: int = DELIVERY_SECONDS,
        progress: Progress = SILENT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`watched` are the subjects that must not be deleted and made again: the target, and
        the source if it is on the broker."""
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder
        self._run = run
        self._target = run.target
        self._watched = watched
        self._delivery_seconds = delivery_seconds
        self._progress = progress
        self._sleep = sleep
        self._due_ms = time.time() * 1000
        self._open = ExitStack()

    def __enter__(self) -> Self:
        ids = identities(self._bootstrap, self._watched)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConnectorError(
                f"{self._folder} cannot be a run's folder: {error.strerror}"
            ) from None
        self._open.enter_context(locked(self._spark, self._folder / "lock"))
        try:
            self._journal = Journal(self._folder, self._run, ids)
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
    def doubled(self) -> int:
        """Copies that were found more than once in them."""
        return self._journal.entry.doubled

    @property
    def next_batch(self) -> int:
        """The next batch: the one under way, or the one after the last that is done."""
        entry = self._journal.entry
        return entry.batch + (entry.state != "begun")

    def check_next(self, batch: int, range_: Range | None) -> None:
        """Checks that the caller's state is as new as the journal; `range_` if the batch may have begun."""
        self._journal.check_next(batch, range_)

    def check_subjects(self) -> None:
        """Checks that source and target are the ones with which the run began."""
        self._journal.check_ids(identities(self._bootstrap, self._watched))

    def is_done(self, batch: int, range_: Range) -> bool:
        return self._journal.is_done(batch, range_)

    def send(
        self, rows: DataFrame | None, batch: int, range_: Range, rate: float | None = None
    ) -> Sent:
        """Returns when the target has the batch, at most `rate` copies a second, if given. No
        rows: nothing of it can be read any more, and what was sent is counted."""
        if self.is_done(batch, range_):
            return Sent(0, self._journal.entry.copies)
        start = self._take_over()
        again = self._journal.is_begun(batch, range_)
        if again:
            self._wait_for_what_outlived()
        self.check_subjects()
        end = self._journal.begin(batch, range_, sender_of(self._spark), self._target_end)
        held, copies = self._held(end, range_), 0
        with clear_errors():
            known = held.distinct().count() if held is not None else 0
        if rows is not None:
            with own_jobs(self._spark.sparkContext, f"kumquat-{self.run}", self._delivery_seconds):
                copies = self._send(as_copies(rows, self.run), held, start, rate)
        doubled = self._doubled(end, range_) if again else 0
        self.check_subjects()
        self._journal.done(known + copies, doubled)
        return Sent(copies, known, doubled)

    def pass_over(self, batch: int, range_: Range) -> Sent:
        """The batch is done: it has nothing to send, or what was sent of it cannot be known."""
        if not self.is_done(batch, range_):
            self._journal.begin(batch, range_, sender_of(self._spark), self._target_end)
            self._journal.done(0)
        return Sent(0, self._journal.entry.copies)

    def _send(
        self, copies: DataFrame, held: DataFrame | None, start: Column, rate: float | None
    ) -> int:
        if held is not None:
            copies = copies.join(held, "origin", "left_anti")
        ordered = copies.repartition(1).sortWithinPartitions("topic", "offset")
        # Kept on disk: counted and sent from one reading of the source.
        ordered.persist(StorageLevel.DISK_ONLY)
        try:
            with clear_errors():
                count = ordered.count()
                self.check_subjects()
                if count:
                    first = ordered.where(only_first_attempt())
                    timed = first if rate is None else self._at_rate(first, rate, count)
                    self._write(timed.where(start))
        except ConnectorError as error:
            for refusal in (REPEATED, TAKEN_OVER):
                if refusal in str(error):
                    raise ConnectorError(refusal) from error
            raise
        finally:
            with suppress(Py4JError, OSError):  # after Ctrl-C Spark may be gone: that is no error
                ordered.unpersist()
        return count

    def _at_rate(self, copies: DataFrame, rate: float, count: int) -> DataFrame:
        """If a batch is late, its first rows catch up, by CATCH_UP_MS at most."""
        begin_ms = max(int(self._due_ms), time.time_ns() // 1_000_000 - CATCH_UP_MS)
        self._due_ms = begin_ms + count * 1000 / rate
        return copies.where(paced(rate, begin_ms))

    def _write(self, copies: DataFrame) -> None:
        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "topic": self._target,
            "kafka.delivery.timeout.ms": str(self._delivery_seconds * 1000),
            "kafka.request.timeout.ms": str(self._delivery_seconds * 1000 // 2),
            "kafka.max.block.ms": str(BLOCK_SECONDS * 1000),
            "kafka.max.request.size": str(LARGEST_BYTES),
        }
        copies.select("key", "value", "headers").write.format("kafka").options(**options).save()

    def _held(self, end: int, range_: Range) -> DataFrame | None:
        """The origins of this batch's copies that the target has from there on; None for none."""
        now = self._target_end()
        kept = earliest(self._bootstrap, [self._target])[self._target]
        if now < end:
            raise ConnectorError(
                f"{self._target} ends at {now:,}, but ended at {end:,} before: the broker has lost "
                f"messages; {NEW_RUN}"
            )
        if now == end:
            return None
        if kept > end:
            raise NotKnown(
                f"retention deleted {self._target} up to {kept:,} while a batch that began at {end:,} "
                f"was under way, so what was sent is not known: {NEW_RUN}"
            )
        start, stop = {self._target: end}, {self._target: now}
        found = read_subject(
            self._spark, self._bootstrap, self._target, starting=start, ending=stop
        )
        mine = found.where(header(RUN) == sql.lit(self.run)).select(header(ORIGIN).alias("origin"))
        offset = sql.substring_index("origin", "/", -1).cast("bigint")
        return mine.where((offset >= range_[0]) & (offset < range_[1]))

    def _doubled(self, end: int, range_: Range) -> int:
        try:
            held = self._held(end, range_)
        except NotKnown:  # retention was faster: all is sent, and cannot be counted
            return 0
        if held is None:
            return 0
        with clear_errors():
            return held.groupBy("origin").count().where("count > 1").count()

    def _target_end(self) -> int:
        return latest(self._bootstrap, [self._target])[self._target]

    def _take_over(self) -> Column:
        """From now on only tasks with the given condition send for this run in this JVM."""
        name, start = f"kumquat.{self.run}", secrets.token_hex(8)
        jvm: Any = self._spark.sparkContext._jvm
        jvm.java.lang.System.setProperty(name, start)
        return only_this_start(name, start)

    def _wait_for_what_outlived(self) -> None:
        """Returns when the interrupted batch can send no more."""
        sender, left = self._journal.entry.sender, BLOCK_SECONDS + self._delivery_seconds
        text = f"{self._run.kind}: an interrupted batch continues when all that it sent has arrived"
        self._progress(text)
        while left > 0 and not has_ended(sender):
            self._progress(f"{text}: at most {left + WIRE_SECONDS} s")
            self._sleep(1)
            left -= 1
        self._sleep(WIRE_SECONDS)


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
    headers = sql.concat(sql.transform(others, _asking_no_more), sql.array(*pairs))
    return rows.select(
        "topic", "offset", "key", "value", origin.alias("origin"), headers.alias("headers")
    )


def header(name: str) -> Column:
    """The text of the last header of that name, or null."""
    same = sql.filter("headers", lambda each: each["key"] == name)
    return sql.try_element_at(same, sql.lit(-1))["value"].cast("string")


def _asking_no_more(each: Column) -> Column:
    renamed = sql.regexp_replace(each["key"], "^qmq-", ORIGINAL)
    name = sql.when(each["key"].isin(*ASKING), renamed).otherwise(each["key"])
    return sql.struct(name.alias("key"), each["value"].alias("value"))
