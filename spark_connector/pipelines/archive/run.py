"""A run of `archive`: batch after batch, from where the archive ends to where the subjects end.

    clean       loads the commits, ends here if some are lost, and shows to all readers what they say
    begin       a subject that is new gets its first commit: where its archive begins
    catch_up    batches, until the ends of `begin` are reached; small files are put together
    finish      what earlier runs have left over is deleted, if it is superfluous

During a run a subject may lose messages to retention, or be deleted and made again. So each batch asks
where the subjects begin now, and before it is committed whether they are still the same ones. An id
is never given twice, so what was read in between is of that subject too. What Spark wrote is counted,
and a commit is made only if the files in the folder hold as much.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as sql

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import earliest, identities, latest
from kumquat.spark.pipelines.archive.commits import Commit, leftovers, load, remove_replaced
from kumquat.spark.pipelines.archive.compaction import compact
from kumquat.spark.pipelines.archive.format import STAGING, ArchiveFile, Range
from kumquat.spark.pipelines.archive.leftovers import remove_superfluous
from kumquat.spark.pipelines.archive.view import can_swap, commit_and_show, show_all
from kumquat.spark.pipelines.archive.writer import as_archived, write_files
from kumquat.spark.pipelines.common.summary import Progress, Summary, count, size
from kumquat.spark.subjects import read_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kumquat.spark.offsets import Offsets

BATCH_BYTES = 256 << 20
FIRST_BATCH = 1_000
"""For the first batch: messages may have tens of megabytes."""
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
    compacts: bool = True
    """Whether the file system can do what a compaction needs."""
    replaced: int = 0
    leftovers: int = 0
    """Files of interrupted runs: deleted."""
    kept: int = 0
    """Such files that hold messages which the archive does not have."""
    lost: dict[str, list[Range]] = field(default_factory=dict)
    files: int = 0

    def summary(self) -> Summary:
        done = f"{count(self.messages, 'message')}, {size(self.octets)}"
        values = [
            ("folder", str(self.folder)),
            ("subjects", ", ".join(self.subjects)),
            ("archived", f"{done}, in {self.batches:,} batches"),
            ("files", f"{self.files:,} in all, {self.replaced:,} small ones put together"),
        ]
        if not self.compacts:
            reason = "this file system cannot swap two folders in one step"
            values.append(("not compacted", f"small files stay as they are: {reason}"))
        if self.leftovers:
            values.append(("removed", f"{count(self.leftovers, 'file')} of an interrupted run"))
        if self.kept:
            left_over = f"{count(self.kept, 'file')} of an interrupted run, or whose commit is lost"
            values.append(("KEPT", f"{left_over}: they hold messages that are not archived"))
        for subject, ranges in self.lost.items():
            values += [("LOST", f"{subject}: {_offsets(each)}") for each in ranges]
        return Summary(f"archive: {count(self.messages, 'message')}", values)


class Run:
    """The caller must hold the lock. `spark` is an `archive_session`."""

    def __init__(
        self,
        spark: SparkSession,
        bootstrap: str,
        names: Sequence[str],
        folder: Path,
        accept_loss: bool,
    ) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.names = names
        self.folder = folder
        self.accept_loss = accept_loss
        self.done = Archived(names, folder)

    def clean(self) -> None:
        self.state = load(self.folder)
        self.batch = _first_batch(self.state.files.values(), self.names)
        self.leftovers = leftovers(self.folder, self.state)
        shutil.rmtree(self.folder / STAGING, ignore_errors=True)
        show_all(self.folder, self.state, _now_ms())
        remove_replaced(self.folder, self.state, _now_ms())
        self.done.compacts = can_swap(self.folder)

    def begin(self) -> Offsets:
        """Returns where the subjects end."""
        ids = identities(self.bootstrap, self.names)
        kept = earliest(self.bootstrap, self.names)
        self._check_same(ids | self.state.ids)
        new = {name: (kept[name], kept[name]) for name in self.names if name not in self.state.next}
        if new:
            number = self.state.number + 1
            commit = Commit(number, _now_ms(), new, ids={name: ids[name] for name in new})
            commit_and_show(self.folder, self.state, commit)
        return latest(self.bootstrap, self.names)

    def catch_up(self, ends: Offsets, file_bytes: int, progress: Progress) -> None:
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

    def finish(self) -> Archived:
        gone = remove_superfluous(self.spark, self.folder, self.state, self.leftovers)
        self.done.leftovers = len(gone)
        self.done.kept = len(self.leftovers) - len(gone)
        files = self.state.files.values()
        self.done.files = sum(file.subject in self.names for file in files)
        lost = self.state.lost
        self.done.lost = {name: lost[name] for name in self.names if name in lost}
        return self.done

    def _starts(self, ends: Offsets) -> tuple[Offsets, dict[str, Range]]:
        """Where each subject continues, and what was deleted before that."""
        kept = earliest(self.bootstrap, ends)
        self._check_same(self.state.ids)
        starts = {name: self.state.next[name] for name in ends}
        for name, start in starts.items():
            if start > ends[name]:
                raise ConnectorError(
                    f"{name} ends at {ends[name]:,}, but the archive has it up to {start:,}: the "
                    "broker lost its newest messages; archive it into another folder"
                )
        gone = {name: min(kept[name], end) for name, end in ends.items()}
        lost = {name: (start, gone[name]) for name, start in starts.items() if start < gone[name]}
        if lost and not self.accept_loss:
            raise ConnectorError(self._lost(lost))
        return starts | {name: end for name, (_, end) in lost.items()}, lost

    def _lost(self, lost: Mapping[str, Range]) -> str:
        ranges_text = "; ".join(f"{name}: {_offsets(range_)}" for name, range_ in lost.items())
        files = count(len(self.leftovers), "file")
        perhaps = (
            f" ({files} of an interrupted run, or whose commit is lost, may hold them)"
            if self.leftovers
            else ""
        )
        return (
            f"retention deleted messages before they were archived ({ranges_text}): "
            f"go on without them with --accept-loss, and archive more often{perhaps}"
        )

    def _archive(self, ranges: dict[str, Range], lost: dict[str, Range]) -> None:
        offsets = sum(end - start for start, end in ranges.values())
        number = self.state.number + 1
        try:
            files = self._write(ranges, offsets, number) if ranges else []
        except ConnectorError:
            self._check_same(self.state.ids)
            kept = earliest(self.bootstrap, ranges)
            if all(kept[name] <= start for name, (start, _) in ranges.items()):
                raise
            return  # retention was faster: `_starts` handles it
        self._check_same(self.state.ids)
        gone = {name: [range_] for name, range_ in lost.items()}
        commit_and_show(self.folder, self.state, Commit(number, _now_ms(), ranges, gone, files))
        octets = sum(file.bytes for file in files)
        self.done.batches += 1
        self.done.messages += sum(file.rows for file in files)
        self.done.octets += octets
        fit = offsets * BATCH_BYTES // max(octets, 1)
        self.batch = max(1, min(fit, self.batch * 4, LARGEST_BATCH))

    def _write(self, ranges: dict[str, Range], offsets: int, number: int) -> list[ArchiveFile]:
        seen = Observation()
        rows = self._rows(ranges, offsets).observe(seen, sql.count(sql.lit(1)).alias("rows"))
        files = write_files(rows, self.folder, number)
        written, found = seen.get["rows"], sum(file.rows for file in files)
        if written != found:
            raise ConnectorError(
                f"Spark wrote {written:,} messages, but {found:,} of them are in {self.folder}: "
                "let all of Spark's machines see that folder"
            )
        return files

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
        if not self.done.compacts:
            return
        self.done.replaced += compact(self.spark, self.folder, self.state, file_bytes, _now_ms)

    def _check_same(self, known: Mapping[str, str]) -> None:
        """Whether the subjects are the ones that have these ids."""
        for name, found in identities(self.bootstrap, self.names).items():
            if found != known[name]:
                raise ConnectorError(
                    f"{name} is not the subject that the archive has up to "
                    f"{self.state.next.get(name, 0):,}: it was deleted and made again; archive it "
                    "into another folder"
                )


def _first_batch(files: Iterable[ArchiveFile], names: Sequence[str]) -> int:
    """As many offsets as are BATCH_BYTES of the subject that had the largest messages so far."""
    rows, octets = Counter[str](), Counter[str]()
    for file in files:
        rows[file.subject] += file.rows
        octets[file.subject] += file.bytes
    if not all(rows[name] for name in names):
        return FIRST_BATCH
    return max(1, min(LARGEST_BATCH, *(rows[n] * BATCH_BYTES // octets[n] for n in names)))


def _portion(starts: Offsets, ends: Offsets, most: int) -> dict[str, Range]:
    """The next batch: subject by subject, no more than `most` offsets in all."""
    ranges = {}
    for name, start in starts.items():
        if most > 0 and start < ends[name]:
            ranges[name] = (start, min(ends[name], start + most))
            most -= ranges[name][1] - start
    return ranges


def _offsets(lost: Range) -> str:
    return f"offsets {lost[0]:,} to {lost[1] - 1:,}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
