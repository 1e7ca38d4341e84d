"""The two sides of a reconciliation, fixed before anything is read.

A subject grows, loses messages to retention, and may be deleted and made again; an archive grows too. So
each side is the offsets that it had at one moment. The archive's moment comes first: then everything that
it has is in its subject, or was deleted there. After reading, and after a failure, the broker is asked
whether the subjects are still the same ones, since a message without id and key is identified by its
offset.

`since` and `until` go by the time of the original: a copy has it in a header (copies/copier.py), while
its own time is that of the run that made it. Where to begin is asked of the broker by the copy's own
time, which is no earlier, unless the original had a time ahead of its clock.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import at_time, earliest, identities, latest
from kumquat.spark.pipelines.archive.command import archive_state, read_archive
from kumquat.spark.pipelines.common.identity import header_bytes
from kumquat.spark.pipelines.common.times import to_ms
from kumquat.spark.pipelines.copies.copier import ORIGINAL_MS
from kumquat.spark.subjects import read_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from kumquat.spark.pipelines.common.sources import Source


@dataclass(frozen=True)
class Side:
    source: Source
    subject: str
    id: str
    begin: int
    """What comes before is deleted, or was never archived."""
    start: int
    """What comes before is older than `since`."""
    end: int

    def read(self, spark: SparkSession) -> DataFrame:
        rows = self._archived(spark) if self.source.archive else self._subject(spark)
        original = sql.timestamp_millis(header_bytes(ORIGINAL_MS).cast("string").try_cast("bigint"))
        time = sql.coalesce(original, "timestamp")
        if self.source.since is not None:
            rows = rows.where(time >= sql.lit(self.source.since))
        if self.source.until is not None:
            rows = rows.where(time < sql.lit(self.source.until))
        return rows

    def _archived(self, spark: SparkSession) -> DataFrame:
        assert self.source.archive is not None
        ranges = {self.subject: (self.start, self.end)}
        return read_archive(spark, self.source.archive, ranges=ranges)

    def _subject(self, spark: SparkSession) -> DataFrame:
        return read_subject(
            spark,
            self.source.bootstrap,
            self.subject,
            starting={self.subject: self.start},
            ending={self.subject: self.end},
        )


def fixed(left: Source, right: Source) -> tuple[Side, Side]:
    """As they are now."""
    if left.archive is not None:
        first = _fixed(left)
        second = _fixed(right)
    else:
        second = _fixed(right)
        first = _fixed(left)
    with_its_archive = (left.archive is None) != (right.archive is None)
    if with_its_archive and first.subject == second.subject and first.id != second.id:
        raise ConnectorError(
            f"{first.subject} is not the subject that {left.archive or right.archive} has under that "
            "name: it was deleted and made again, and its offsets mean other messages"
        )
    return first, second


@contextmanager
def unchanged(*sides: Side) -> Iterator[None]:
    """Around the reading. If a subject has changed, the error says that this is the cause."""
    subjects = [side for side in sides if side.source.archive is None]
    try:
        yield
    except ConnectorError:
        for side in subjects:
            _check_same(side)
            _check_kept(side)
        raise
    for side in subjects:
        _check_same(side)


def _fixed(source: Source) -> Side:
    if len(source.subjects) != 1:
        raise ConnectorError(
            f"each side is one subject, not {', '.join(source.subjects) or 'none'}"
        )
    (subject,) = source.subjects
    if source.archive is not None:
        state = archive_state(source.archive)
        if subject not in state.next:
            has = ", ".join(sorted(state.next)) or "nothing"
            raise ConnectorError(f"{source.archive} has no {subject}: it holds {has}")
        begin = state.begin[subject]
        return Side(source, subject, state.ids[subject], begin, begin, state.next[subject])
    known = identities(source.bootstrap, [subject])[subject]
    begin = start = earliest(source.bootstrap, [subject])[subject]
    if source.since is not None:
        start = at_time(source.bootstrap, [subject], max(to_ms(source.since), 0))[subject]
    end = latest(source.bootstrap, [subject])[subject]
    return Side(source, subject, known, begin, max(start, begin), end)


def _check_same(side: Side) -> None:
    if identities(side.source.bootstrap, [side.subject])[side.subject] != side.id:
        raise ConnectorError(
            f"{side.subject} was deleted and made again while it was read: run this again"
        )


def _check_kept(side: Side) -> None:
    kept = earliest(side.source.bootstrap, [side.subject])[side.subject]
    if kept > side.start:
        raise ConnectorError(
            f"retention deleted {side.subject} up to {kept - 1:,} while it was read: run this again"
        )
