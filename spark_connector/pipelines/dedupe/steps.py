"""One batch of a dedupe after the other: planned, decided, sent, committed.

What is on disk after each step is in dedupe/state.py, which messages are let through in
dedupe/decision.py, how they are sent once in copies/copier.py. Here is the order of these, and what
retention may do in between:

| deleted | without `accept_loss` | with it |
|---|---|---|
| what no batch has decided | an error | the range is passed over and kept as lost |
| what is decided, and may not be sent | an error | what is left is sent; the rest is counted as unsent |
| the copies of an interrupted batch | an error | it is passed over, and counted as unsent |

A batch that the journal calls done needs none of these any more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError, clear_errors
from kumquat.spark.offsets import earliest, latest
from kumquat.spark.pipelines.common.summary import count
from kumquat.spark.pipelines.copies.copier import NotKnown
from kumquat.spark.pipelines.dedupe.decision import LAST, ROWS, as_rows, decide, last_seen
from kumquat.spark.pipelines.dedupe.state import NO_CLOCK
from kumquat.spark.subjects import read_subject

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kumquat.spark.pipelines.copies.copier import Copier
    from kumquat.spark.pipelines.dedupe.state import Pending, StateFile

MERGE_FROM = 16


@dataclass
class Steps:
    spark: SparkSession
    bootstrap: str
    copier: Copier
    state_file: StateFile
    accept_loss: bool
    batch: int

    def source_end(self) -> int:
        source = self.state_file.rule.source
        end = latest(self.bootstrap, [source])[source]
        if end < self.state_file.state.next:
            self.copier.check_subjects()
            raise ConnectorError(
                f"{source} ends at {end:,}, but was read up to {self.state_file.state.next:,}: the broker "
                "has lost messages; give another folder, and a new run begins"
            )
        return end

    def step(self, source_end: int) -> None:
        """One batch, from its plan to its commit."""
        kept = self._kept()
        try:
            self._step(source_end)
        except ConnectorError:
            if self._kept() == kept:
                raise
            # Retention may have deleted messages of this batch: check again, and report it.
            self._step(source_end)

    def _step(self, source_end: int) -> None:
        self.copier.check_subjects()
        pending = self._pending(source_end)
        if pending is None:
            return
        if pending.decided is None:
            pending = self._decided(pending)
        self.state_file.commit(self._sent(pending))
        if len(self.state_file.state.seen) >= MERGE_FROM:
            self._merge()

    def _pending(self, source_end: int) -> Pending | None:
        """The next batch; None: retention has deleted everything."""
        pending = self.state_file.state.pending
        if pending is not None and pending.decided is not None:
            return pending
        kept = self._kept()
        if kept > self.state_file.state.next:
            self._accept(self.state_file.state.next, kept, "before they were read")
            self.state_file.skip_to(kept)
        start = self.state_file.state.next
        if self.state_file.state.pending is None and start >= source_end:
            return None
        return self.state_file.plan(
            min(source_end, start + self.batch), time.time_ns() // 1_000_000
        )

    def _sent(self, pending: Pending) -> int:
        """How many copies of this batch the target has."""
        number, range_ = self.state_file.state.batch, pending.range
        assert pending.decided is not None
        if not pending.decided.sent:
            self.copier.pass_over(number, range_)
            return 0
        is_done = self.copier.is_done(number, range_)
        rows = None if is_done else self._let_through(pending)
        try:
            sent = self.copier.send(rows, number, range_)
        except NotKnown as error:
            if not self.accept_loss:
                raise ConnectorError(
                    f"{error}, or go on without the rest of it with --accept-loss"
                ) from None
            sent = self.copier.pass_over(number, range_)
        return sent.copies + sent.held

    def _let_through(self, pending: Pending) -> DataFrame | None:
        """What is let through and can still be read."""
        kept = self._kept()
        if kept > pending.start:
            gone = min(kept, pending.end)
            self._accept(
                pending.start, gone, "before it was known that an interrupted batch had sent them"
            )
        if kept >= pending.end:
            return None
        assert pending.decided is not None
        decided = self._read([pending.decided.folder])
        offsets = decided.select(sql.explode("kept.offset").alias("offset"))
        rows = self._rows(max(kept, pending.start), pending.end)
        return rows.join(offsets, "offset", "left_semi")

    def _kept(self) -> int:
        source = self.state_file.rule.source
        return earliest(self.bootstrap, [source])[source]

    def _accept(self, start: int, end: int, when: str) -> None:
        if not self.accept_loss:
            raise ConnectorError(
                f"retention deleted offsets {start:,} to {end - 1:,} of {self.state_file.rule.source} "
                f"{when}: go on without them with --accept-loss, and run more often"
            )

    def _rows(self, start: int, end: int) -> DataFrame:
        source = self.state_file.rule.source
        starting, ending = {source: start}, {source: end}
        return read_subject(self.spark, self.bootstrap, source, starting=starting, ending=ending)

    def _decided(self, pending: Pending) -> Pending:
        """Decides what the batch lets through, and writes it down."""
        folder = self.state_file.folder_of(f"{self.state_file.state.batch:08}")
        ids = self._write(self._decide(pending), folder)
        with clear_errors():
            found, read, nameless, sent, top = (
                self._read([str(folder)])
                .agg(
                    sql.count("*"),
                    sql.sum("messages"),
                    sql.sum("nameless"),
                    sql.sum(sql.size("kept")),
                    sql.max("top"),
                )
                .collect()[0]
            )
        if found != ids:
            raise ConnectorError(
                f"Spark wrote {count(ids, 'id')}, but {found:,} are in {folder}: the folder must be "
                "one that all of Spark's machines share"
            )
        self.copier.check_subjects()
        top_ms = NO_CLOCK if top is None else top
        return self.state_file.decide(
            folder, read=read or 0, nameless=nameless or 0, sent=sent or 0, top_ms=top_ms
        )

    def _write(self, rows: DataFrame, folder: Path) -> int:
        """Returns how many rows there were, counted by the tasks that wrote them."""
        seen = Observation()
        with clear_errors():
            observed = rows.observe(seen, sql.count(sql.lit(1)).alias("rows"))
            observed.write.mode("overwrite").parquet(folder.as_uri())
        return int(seen.get["rows"])

    def _read(self, folders: list[str]) -> DataFrame:
        paths = [(self.state_file.folder / each).as_uri() for each in folders]
        return self.spark.read.schema(ROWS).parquet(*paths)

    def _decide(self, pending: Pending) -> DataFrame:
        rule, clock = self.state_file.rule, self.state_file.state.clock_ms
        return decide(self._rows(*pending.range), self._seen(), rule, clock, pending.now_ms)

    def _seen(self) -> DataFrame:
        """When each id was last let through, where that is inside the window."""
        state = self.state_file.state
        if not state.seen:
            return self.spark.createDataFrame([], LAST)
        rows = self._read([each.folder for each in state.seen])
        return last_seen(rows, state.clock_ms - self.state_file.rule.window_ms)

    def _merge(self) -> None:
        folder = self.state_file.folder_of(f"{self.state_file.state.batch - 1:08}-merged")
        self._write(as_rows(self._seen()), folder)
        self.state_file.replace_seen(folder)
