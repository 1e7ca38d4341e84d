"""Rows to files of an archive, which no commit has yet; and files to rows.

Spark writes under _staging, into a folder that no other run can have; then the files get their names
and places, and are synced. What they hold is read back from the files themselves (rows, first and
last offset), so a commit says what is on disk, not what should be there. The driver gets a row for each
file, never a message.

Messages are sorted by offset in every file. Times are stored as microseconds in UTC, and the days are
UTC's, in any time zone of the session.

The folder is on this machine's file system, even if Spark's default is another one. Its name may have any
character in it, also those that Spark reads as patterns.
"""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from pyspark.sql import functions as sql

from kumquat.spark.errors import clear_errors
from kumquat.spark.pipelines.archive.format import FILES, STAGING, ArchiveFile, found, stored
from kumquat.spark.pipelines.common.durable import sync

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "key BINARY, value BINARY, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, subject STRING, day STRING"
)
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
_LARGE_MESSAGES = {
    "parquet.page.size.row.check.min": "1",
    "parquet.block.size.row.check.min": "1",
}
"""Parquet by default checks only after a hundred rows how much it holds in memory. With messages of tens of
megabytes that is too late. From the first check it estimates when the next one is due."""
_PATTERN_SIGNS = re.compile(r"[\\{}\[\]*?]")


def archive_session(spark: SparkSession) -> SparkSession:
    """The same Spark with settings of the archive's own; the caller's stay as they are."""
    session = spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def as_archived(messages: DataFrame) -> DataFrame:
    """Rows of Spark's Kafka source as an archive has them. Needs `archive_session`."""
    return messages.select(
        "key",
        "value",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
        sql.col("topic").alias("subject"),
        sql.date_format("timestamp", "yyyy-MM-dd").alias("day"),
    )


def write_files(rows: DataFrame, folder: Path, number: int) -> list[ArchiveFile]:
    """The files for commit `number`, where `read_files` finds them, and synced."""
    token = secrets.token_hex(4)
    staging = folder / STAGING / token
    staging.parent.mkdir(parents=True, exist_ok=True)
    try:
        with clear_errors():
            ordered = rows.sortWithinPartitions("subject", "day", "offset")
            writer = ordered.write.partitionBy("subject", "day").options(**_LARGE_MESSAGES)
            writer.parquet(f"file://{staging}")
            facts = _facts(rows.sparkSession, staging)
        files = [
            _place(folder, staging, path, f"{number:020}-{token}-{index:04}.parquet", facts[path])
            for index, path in enumerate(sorted(facts))
        ]
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    folders = {stored(folder, file.path).parent for file in files}
    for changed in [*folders, *{path.parent for path in folders}, folder / FILES, folder]:
        if changed.exists():
            sync(changed)
    return files


def read_files(spark: SparkSession, folder: Path, names: Iterable[str]) -> DataFrame:
    """What these files of the archive hold. Where none of them is of an earlier version, the column
    `_metadata.file_path` says which is which."""
    places = [found(folder, name) for name in names]
    inside = [path for path in places if path.is_relative_to(folder / FILES)]
    beside = [path for path in places if not path.is_relative_to(folder / FILES)]
    if inside and beside:
        return _read(spark, folder / FILES, inside).unionByName(_read(spark, folder, beside))
    return _read(spark, folder, beside) if beside else _read(spark, folder / FILES, inside)


def _read(spark: SparkSession, base: Path, paths: Iterable[Path]) -> DataFrame:
    names = [_literally(path) for path in paths]
    if not names:
        return spark.createDataFrame([], SCHEMA)
    return spark.read.schema(SCHEMA).option("basePath", f"file://{base}").parquet(*names)


def file_of(spark_path: str) -> Path:
    """What `_metadata.file_path` means."""
    return Path(unquote(urlparse(spark_path).path))


def _literally(path: Path) -> str:
    return "file://" + _PATTERN_SIGNS.sub(r"\\\g<0>", str(path))


def _facts(spark: SparkSession, staging: Path) -> dict[Path, tuple[int, int, int]]:
    folders = [*staging.glob("subject=*")]
    if not folders:
        return {}
    by_file = (
        _read(spark, staging, folders)
        .groupBy("_metadata.file_path")
        .agg(
            sql.count("*").alias("rows"),
            sql.min("offset").alias("first"),
            sql.max("offset").alias("last"),
        )
    )
    return {
        file_of(row["file_path"]): (row["rows"], row["first"], row["last"])
        for row in by_file.collect()
    }


def _place(
    folder: Path, staging: Path, path: Path, name: str, facts: tuple[int, int, int]
) -> ArchiveFile:
    below = (path.relative_to(staging).parent / name).as_posix()
    target = stored(folder, below)
    target.parent.mkdir(parents=True, exist_ok=True)
    sync(path)
    path.replace(target)
    rows, first, last = facts
    return ArchiveFile(below, rows, target.stat().st_size, first, last)
