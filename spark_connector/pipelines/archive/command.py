"""`kumquat-spark archive`: subjects to Parquet, each message once, from where the last run ended.

    archive(spark, "127.0.0.1:9092", ["orders", "payments"], "archive")
    read_archive(spark, "archive").groupBy("topic", "day").count()

A run goes from where the archive ends to where the subjects end as it begins, in batches
(archive/run.py). The offsets that a batch covers are committed in the same file as the list of its
data (archive/format.py): a run that is stopped or killed anywhere has done whole batches, and the
next one continues from there.

- Read an archive with `read_archive`, or with anything that reads Parquet: it finds each archived message
  once, at any moment (archive/view.py). A reader that listed the archive while small files were put
  together may not find a file, and must list again. `read_archive` is not affected.
- A subject may be a pattern, `shop-*`: those that the broker has when the run begins.
- One run at a time: a second one on the folder waits half a minute, then says so.
- A subject's archive begins where the subject did when a run first named it, also if it was empty then.
  If retention deleted messages from there on before they were archived, the run ends and names the range,
  unless `accept_loss`. Then the range is kept in the commit and shown in every summary. Holes in the
  offsets are no loss.
- A subject that was deleted and made again is another one: the run ends, before any of it is archived.
- A batch should have about BATCH_BYTES on disk, so that memory does not depend on how much there
  is: the first one is small, and from its size the number of messages of the next one is estimated.
- The folder is one that this machine, and all of Spark's, see as files: the commit is a rename.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import check_subjects, matching
from kumquat.spark.pipelines.archive.commits import State, exists, load
from kumquat.spark.pipelines.archive.format import COMMITS, LOCK, Range
from kumquat.spark.pipelines.archive.run import Archived, Run
from kumquat.spark.pipelines.archive.writer import archive_session, read_files
from kumquat.spark.pipelines.common.durable import locked
from kumquat.spark.pipelines.common.sources import add_broker
from kumquat.spark.pipelines.common.summary import SILENT, Progress, Summary

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

FILE_BYTES = 128 << 20


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
    """Archives what the subjects have now and the archive does not."""
    names = [subjects] if isinstance(subjects, str) else list(dict.fromkeys(subjects))
    place, names = _checked(bootstrap, names, folder)
    (place / COMMITS).mkdir(parents=True, exist_ok=True)
    with locked(spark, place / LOCK):
        run = Run(archive_session(spark), bootstrap, names, place, accept_loss)
        run.clean()
        run.catch_up(run.begin(), file_bytes, progress)
        done = run.finish()
    progress.end()
    return done


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
    files = [
        file.path
        for file in state.files.values()
        if file.subject in wanted
        and (ranges is None or _meets(ranges.get(file.subject), (file.first, file.last + 1)))
    ]
    return _as_messages(read_files(spark, place, files), ranges)


def archive_state(folder: Path | str) -> State:
    """What is committed: where each subject begins and ends, its files, what was lost."""
    place = _local(folder)
    if not exists(place):
        raise ConnectorError(f"no archive in {place}: correct the name, or make one with `archive`")
    return load(place)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_broker(parser)
    parser.add_argument(
        "subjects",
        nargs="+",
        metavar="SUBJECT",
        help="what to archive: names, or patterns in quotes ('shop-*')",
    )
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
    """Checks what can be checked before Spark starts."""
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


def _checked(bootstrap: str, subjects: Sequence[str], folder: Path | str) -> tuple[Path, list[str]]:
    place = _local(folder)
    if not subjects:
        raise ConnectorError("name a subject to archive")
    _check_writable(place)
    names = matching(bootstrap, subjects)
    check_subjects(bootstrap, names)
    load(place)
    return place, names


def _check_writable(place: Path) -> None:
    """Checks the folder if it exists, else the one in which it will be made."""
    there = next(path for path in (place, *place.parents) if path.exists())
    if not there.is_dir():
        raise ConnectorError(f"{there} is no folder: give the archive another place")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConnectorError(f"{there} cannot be written by this user: give the archive another")


def _local(folder: Path | str) -> Path:
    if ":/" in str(folder):
        raise ConnectorError(f"{folder} is no folder: an archive lies on disk; mount the storage")
    return Path(folder).absolute()
