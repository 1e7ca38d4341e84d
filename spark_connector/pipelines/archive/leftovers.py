"""Files of an archive that no commit has: deleted when they are known to be superfluous.

They are of an interrupted run, whose range was archived again since; or their commit is lost, and
then they may be all that is left of messages which retention has deleted. So their rows are compared:
a file is deleted when the archive has every offset of it, and kept otherwise. The archive's own
files never have an offset twice, so nothing else needs to be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from kumquat.spark.errors import clear_errors
from kumquat.spark.pipelines.archive.format import stored
from kumquat.spark.pipelines.archive.writer import file_of, read_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column, SparkSession

    from kumquat.spark.pipelines.archive.commits import State


def remove_superfluous(
    spark: SparkSession, folder: Path, state: State, leftovers: Sequence[str]
) -> list[str]:
    """Returns what was deleted. They are in _files by now (`show_all`), and seen by no reader."""
    if not leftovers:
        return []
    needed = _with_rows_of_their_own(spark, folder, state, leftovers)
    superfluous = [name for name in leftovers if stored(folder, name) not in needed]
    for name in superfluous:
        stored(folder, name).unlink()
    return superfluous


def _with_rows_of_their_own(
    spark: SparkSession, folder: Path, state: State, leftovers: Sequence[str]
) -> set[Path]:
    subjects = {name.split("/")[0].removeprefix("subject=") for name in leftovers}
    own = sql.lit(False)
    for subject in subjects:
        for start, end in state.not_archived(subject):
            own |= (sql.col("subject") == subject) & _within(start, end)
    with clear_errors():
        rows = read_files(spark, folder, leftovers).where(own)
        found = rows.select("_metadata.file_path").distinct().collect()
    return {file_of(row["file_path"]) for row in found}


def _within(start: int, end: int | None) -> Column:
    offset = sql.col("offset")
    return offset >= start if end is None else (offset >= start) & (offset < end)
