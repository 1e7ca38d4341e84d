"""Where a pipeline reads from: subjects of a broker, or an archive. Rows look the same.

    messages = Source(bootstrap="127.0.0.1:9092", subjects=["orders"]).read(spark)

The columns are Spark's own for Kafka: `key`, `value`, `topic`, `offset`, `timestamp`, `headers`. A
subject is read up to where it ends now; that place is fixed here, so that a job that reads twice
reads the same. `since` is inclusive, `until` is not; both go by the message's own time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import at_time, earliest, latest
from kumquat.spark.pipelines.common.times import parse_time, to_ms
from kumquat.spark.subjects import read_subject

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BOOTSTRAP = "127.0.0.1:9092"
COLUMNS = ("key", "value", "topic", "offset", "timestamp", "headers")


@dataclass(frozen=True)
class Source:
    """Subjects on a broker; or, when `archive` is given, those subjects of it (none: all)."""

    bootstrap: str = BOOTSTRAP
    subjects: Sequence[str] = ()
    archive: Path | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __str__(self) -> str:
        return f"archive {self.archive}" if self.archive else f"broker {self.bootstrap}"

    def read(self, spark: SparkSession) -> DataFrame:
        rows = self._archived(spark) if self.archive else self._subjects(spark)
        if self.since is not None:
            rows = rows.where(sql.col("timestamp") >= sql.lit(self.since))
        if self.until is not None:
            rows = rows.where(sql.col("timestamp") < sql.lit(self.until))
        return rows.select(*COLUMNS)

    def _archived(self, spark: SparkSession) -> DataFrame:
        from kumquat.spark.pipelines.archive.command import read_archive

        assert self.archive is not None
        return read_archive(spark, self.archive, self.subjects or None)

    def _subjects(self, spark: SparkSession) -> DataFrame:
        if not self.subjects:
            raise ConnectorError("name a subject, or give an archive")
        if self.since is None:
            starts = earliest(self.bootstrap, self.subjects)
        else:
            starts = at_time(self.bootstrap, self.subjects, max(to_ms(self.since), 0))
        ends = latest(self.bootstrap, self.subjects)
        return read_subject(
            spark, self.bootstrap, list(self.subjects), starting=starts, ending=ends
        )


def add_broker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap", default=BOOTSTRAP, metavar="HOST:PORT", help=f"the broker ({BOOTSTRAP})"
    )


def add_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", type=parse_time, metavar="TIME", help="from this time on: 2026-11-16T05:30, 2h"
    )
    parser.add_argument("--until", type=parse_time, metavar="TIME", help="up to before this time")
