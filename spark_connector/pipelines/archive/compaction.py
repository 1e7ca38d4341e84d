"""Putting an archive's small files together.

Every run adds files, and a run every few minutes makes small ones, which are slow to read. Of each
subject and day, the files below half the wanted size are written again as few large ones when there are
FEWEST of them, or when two or more belong to a day that is over: a day before today, and not the day of
the subject's newest message (the producer may give it any time). Once they are put together they wait for
FEWEST others, so a message is written a few times a day at the most.

The new files are committed together with the removal of the old, and are shown in their place in one
step (archive/view.py): a reader sees either the old ones or the new ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.archive.commits import Commit, State
from kumquat.spark.pipelines.archive.format import ArchiveFile
from kumquat.spark.pipelines.archive.view import commit_and_show
from kumquat.spark.pipelines.archive.writer import read_files, write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

FEWEST = 8


def to_compact(
    files: Iterable[ArchiveFile], file_bytes: int, today: str
) -> list[list[ArchiveFile]]:
    """Which files should be put together; each group is of one subject and day."""
    groups: dict[tuple[str, str], list[ArchiveFile]] = defaultdict(list)
    newest: dict[str, ArchiveFile] = {}
    for file in files:
        newest[file.subject] = max(file, newest.get(file.subject, file), key=lambda each: each.last)
        if file.bytes < file_bytes // 2:
            groups[file.subject, file.day].append(file)
    return [
        sorted(group, key=lambda file: file.first)
        for (subject, day), group in sorted(groups.items())
        if len(group) >= (2 if day < today and day != newest[subject].day else FEWEST)
    ]


def compact(
    spark: SparkSession,
    folder: Path,
    state: State,
    file_bytes: int,
    now_ms: Callable[[], int],
) -> int:
    """Returns how many files were replaced. `spark` is an `archive_session`."""
    replaced = 0
    today = datetime.fromtimestamp(now_ms() / 1000, UTC).strftime("%Y-%m-%d")
    for group in to_compact(list(state.files.values()), file_bytes, today):
        number = state.number + 1
        rows = read_files(spark, folder, [file.path for file in group])
        pieces = math.ceil(sum(file.bytes for file in group) / file_bytes)
        parted = rows.coalesce(1) if pieces == 1 else rows.repartitionByRange(pieces, "offset")
        files = write_files(parted, folder, number)
        before, after = sum(file.rows for file in group), sum(file.rows for file in files)
        if before != after:
            raise ConnectorError(
                f"{folder}: {len(group)} files of {group[0].subject}, {group[0].day} should hold "
                f"{before:,} messages, but {after:,} were read: restore them from a backup"
            )
        removed = [file.path for file in group]
        commit_and_show(folder, state, Commit(number, now_ms(), add=files, remove=removed))
        replaced += len(group)
    return replaced
