"""`kumquat-spark archive`: subjects to Parquet, each message once, from where the last run ended.

    archive(spark, "127.0.0.1:9092", ["orders", "payments"], "archive")
    read_archive(spark, "archive").groupBy("topic", "day").count()

A run goes from where the archive ends to where the subjects end as it begins, in batches. The offsets
that a batch covers are committed in the same file as the list of its data (archive_format.py): a
run that is stopped or killed anywhere has done whole batches, and the next one goes on from there.

- Read an archive with `read_archive`. It takes committed files only; `spark.read.parquet` would also
  see what a run that was killed has left.
- One run at a time: a second one on the folder waits half a minute, then says so.
- What retention deleted before it was archived ends the run, with the range, unless `accept_loss`.
  Then the range is kept in the commit and told in every summary. Holes in the offsets are no loss.
- A batch is meant to be BATCH_BYTES on disk, so that memory does not depend on how much there
  is: the first one is small, and each tells how many messages the next may have.
- The folder is one that this machine, and all of Spark's, see as files: the commit is a rename.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from spark_connector.errors import ConnectorError
from spark_connector.offsets import check_subjects, earliest, identities, latest
from spark_connector.pipelines.archive_compaction import compact
from spark_connector.pipelines.archive_format import (
    COMMITS,
    LOCK,
    STAGING,
    Commit,
    Range,
    State,
    exists,
    load,
    remove_leftovers,
    write_commit,
)
from spark_connector.pipelines.archive_writer import (
    SCHEMA,
    archive_session,
    as_archived,
    write_files,
)
from spark_connector.pipelines.durable import locked
from spark_connector.pipelines.sources import add_broker
from spark_connector.pipelines.summary import SILENT, Progress, Summary, count, size
from spark_connector.subjects import read_subject

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from spark_connector.offsets import Offsets

FILE_BYTES = 128 << 20
BATCH_BYTES = 256 << 20
FIRST_BATCH = 50_000
LARGEST_BATCH = 5_000_000
OFFSETS_PER_TASK = 50_000
COMPACT_EVERY = 16


@dataclass
class Archived:
    """What a run has done so far."""

    subjects: Sequence[str]
    folder: Path
    batches: int = 0
    messages: int = 0
    octets: int = 0
    replaced: int = 0
    leftovers: int = 0
    lost: dict[str, list[Range]] = field(default_factory=dict)
    files: int = 0

    def summary(self) -> Summary:
        done = f"{count(self.messages, 'message')}, {size(self.octets)}"
        values = [
            ("folder", str(self.folder)),
            ("subjects", ", ".join(self.subjects)),
            ("archived", f"{done}, in {self.batches:,} commits"),
            ("files", f"{self.files:,} in all, {self.replaced:,} small ones put together"),
        ]
        if self.leftovers:
            values.append(("removed", f"{count(self.leftovers, 'file')} of a run that broke off"))
        for subject, ranges in self.lost.items():
            values += [("LOST", f"{subject}: {_told(each)}") for each in ranges]
        return Summary(f"archive: {count(self.messages, 'message')}", values)


def archive(
    spark: SparkSession,
    bootstrap: str,
    subjects: str | Sequence[str],
    folder: Path | str,
    *,
    accept_loss: bool = False,
    file_bytes: int = FILE_BYTES,
    progress: Progress = SILENT,
) -> Archived:
    """Archives what the subjects have now and the archive has not."""
    names = [subjects] if isinstance(subjects, str) else list(dict.fromkeys(subjects))
    place = _checked(bootstrap, names, folder)
    ends = latest(bootstrap, names)
    (place / COMMITS).mkdir(parents=True, exist_ok=True)
    with locked(spark, place / LOCK):
        run = _Run(archive_session(spark), bootstrap, place, accept_loss, Archived(names, place))
        run.clean()
        run.catch_up(ends, file_bytes, progress)
    progress.end()
    return run.finished(names)


def read_archive(
    spark: SparkSession,
    folder: Path | str,
    subjects: Iterable[str] | None = None,
    *,
    ranges: dict[str, Range] | None = None,
) -> DataFrame:
    """What the archive holds, in the columns of Spark's Kafka source, and `day` (UTC, as text).

    With `ranges`, only those offsets: files that hold none of them are not opened.
    """
    place = _local(folder)
    state = archive_state(place)
    known = set(state.next)
    wanted = known if subjects is None and ranges is None else {*(subjects or ()), *(ranges or ())}
    if missing := sorted(wanted - known):
        has = ", ".join(sorted(known)) or "nothing"
        raise ConnectorError(f"{place} has no {', '.join(missing)}: it holds {has}")
    paths = [
        str(place / file.path)
        for file in state.files.values()
        if file.subject in wanted
        and (ranges is None or _meets(ranges.get(file.subject), (file.first, file.last + 1)))
    ]
    return _as_messages(_files(spark, place, paths), ranges)


def archive_state(folder: Path | str) -> State:
    """What is committed: where each subject begins and ends, its files, what was lost."""
    place = _local(folder)
    if not exists(place):
        raise ConnectorError(f"no archive in {place}: correct the name, or make one with `archive`")
    return load(place)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker(parser)
    parser.add_argument("subjects", nargs="+", metavar="SUBJECT", help="what to archive")
    parser.add_argument("--to", required=True, type=Path, metavar="FOLDER", help="the archive")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="go on when retention has deleted messages that were not archived yet",
    )
    parser.add_argument(
        "--file-mb",
        type=int,
        default=FILE_BYTES >> 20,
        metavar="N",
        help="small files are put together into files of about this size (%(default)s)",
    )


def check(args: argparse.Namespace) -> None:
    """What can be seen to be wrong before Spark starts."""
    if args.file_mb < 1:
        raise ConnectorError(f"--file-mb is at least 1, not {args.file_mb}")
    _checked(args.bootstrap, args.subjects, args.to)


def run(spark: SparkSession, args: argparse.Namespace) -> Summary:
    return archive(
        spark,
        args.bootstrap,
        args.subjects,
        args.to,
        accept_loss=args.accept_loss,
        file_bytes=args.file_mb << 20,
        progress=args.progress,
    ).summary()


@dataclass
class _Run:
    spark: SparkSession
    bootstrap: str
    folder: Path
    accept_loss: bool
    done: Archived

    def clean(self) -> None:
        self.batch = FIRST_BATCH
        self.state = load(self.folder)
        shutil.rmtree(self.folder / STAGING, ignore_errors=True)
        self.done.leftovers = len(remove_leftovers(self.folder, self.state, _now_ms()))

    def catch_up(self, ends: Offsets, file_bytes: int, progress: Progress) -> None:
        self.ids = identities(self.bootstrap, ends)
        starts, lost = self._starts(ends)
        total = sum(ends[name] - start for name, start in starts.items())
        while lost or any(start < ends[name] for name, start in starts.items()):
            self._archive(_portion(starts, ends, self.batch), lost)
            if self.done.batches % COMPACT_EVERY == 0:
                self._compact(file_bytes)
            starts, lost = self._starts(ends)
            left = sum(ends[name] - start for name, start in starts.items())
            progress(f"archive: {total - left:,} of {total:,} offsets, {size(self.done.octets)}")
        self._compact(file_bytes)

    def finished(self, names: Sequence[str]) -> Archived:
        self.done.files = sum(file.subject in names for file in self.state.files.values())
        self.done.lost = {name: self.state.lost[name] for name in names if name in self.state.lost}
        return self.done

    def _starts(self, ends: Offsets) -> tuple[Offsets, dict[str, Range]]:
        """Where each subject goes on, and what was deleted before that."""
        kept = earliest(self.bootstrap, ends)
        starts = {name: self.state.next.get(name, kept[name]) for name in ends}
        for name, start in starts.items():
            if start > ends[name] or self.state.ids.get(name, self.ids[name]) != self.ids[name]:
                raise ConnectorError(
                    f"{name} is not the subject that the archive has up to {start:,}: it was "
                    "deleted and made anew; archive it into another folder"
                )
        gone = {name: min(kept[name], end) for name, end in ends.items()}
        lost = {name: (start, gone[name]) for name, start in starts.items() if start < gone[name]}
        if lost and not self.accept_loss:
            told = "; ".join(f"{name}: {_told(range_)}" for name, range_ in lost.items())
            raise ConnectorError(
                f"retention deleted messages before they were archived ({told}): "
                "go on without them with --accept-loss, and archive more often"
            )
        return starts | {name: end for name, (_, end) in lost.items()}, lost

    def _archive(self, ranges: dict[str, Range], lost: dict[str, Range]) -> None:
        offsets = sum(end - start for start, end in ranges.values())
        number = self.state.number + 1
        files = write_files(self._rows(ranges, offsets), self.folder, number) if ranges else []
        gone = {name: [range_] for name, range_ in lost.items()}
        ids = {name: self.ids[name] for name in ranges}
        commit = Commit(number, _now_ms(), ranges, gone, files, ids=ids)
        write_commit(self.folder, self.state, commit)
        octets = sum(file.bytes for file in files)
        self.done.batches += 1
        self.done.messages += sum(file.rows for file in files)
        self.done.octets += octets
        fit = offsets * BATCH_BYTES // max(octets, 1)
        self.batch = max(1, min(fit, self.batch * 4, LARGEST_BATCH))

    def _rows(self, ranges: dict[str, Range], offsets: int) -> DataFrame:
        slots = self.spark.sparkContext.defaultParallelism
        messages = read_subject(
            self.spark,
            self.bootstrap,
            list(ranges),
            starting={name: start for name, (start, _) in ranges.items()},
            ending={name: end for name, (_, end) in ranges.items()},
            tasks=max(1, min(slots, offsets // OFFSETS_PER_TASK)),
        )
        return as_archived(messages)

    def _compact(self, file_bytes: int) -> None:
        self.done.replaced += compact(self.spark, self.folder, self.state, file_bytes, _now_ms)


def _portion(starts: Offsets, ends: Offsets, most: int) -> dict[str, Range]:
    """The next batch: subject by subject, no more than `most` offsets in all."""
    ranges = {}
    for name, start in starts.items():
        if most > 0 and start < ends[name]:
            ranges[name] = (start, min(ends[name], start + most))
            most -= ranges[name][1] - start
    return ranges


def _files(spark: SparkSession, folder: Path, paths: list[str]) -> DataFrame:
    if not paths:
        return spark.createDataFrame([], SCHEMA)
    return spark.read.schema(SCHEMA).option("basePath", str(folder)).parquet(*paths)


def _as_messages(rows: DataFrame, ranges: dict[str, Range] | None) -> DataFrame:
    messages = rows.select(
        "key",
        "value",
        sql.col("subject").alias("topic"),
        sql.lit(0).alias("partition"),
        "offset",
        "timestamp",
        "timestampType",
        "headers",
        "day",
    )
    if ranges is None:
        return messages
    chosen = sql.lit(False)
    for name, (start, end) in ranges.items():
        inside = (sql.col("offset") >= start) & (sql.col("offset") < end)
        chosen |= (sql.col("topic") == name) & inside
    return messages.where(chosen)


def _meets(one: Range | None, other: Range) -> bool:
    return one is not None and one[0] < other[1] and other[0] < one[1]


def _checked(bootstrap: str, subjects: Sequence[str], folder: Path | str) -> Path:
    place = _local(folder)
    if not subjects:
        raise ConnectorError("name a subject to archive")
    check_subjects(bootstrap, subjects)
    load(place)
    return place


def _local(folder: Path | str) -> Path:
    if ":/" in str(folder):
        raise ConnectorError(f"{folder} is no folder: an archive lies on disk; mount the storage")
    return Path(folder).absolute()


def _told(lost: Range) -> str:
    return f"offsets {lost[0]:,} to {lost[1] - 1:,}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
