"""Deleting what is past its time.

Two levels. Readers see a subject's own limits, exactly: its earliest sequence is raised past every batch
whose highest timestamp is older than `retention.ms`, and past what exceeds `retention.bytes` (at least
that much stays). The disk is freed by whole segments, oldest first: when all in it was stored longer ago
than the broker's `log.retention.ms`, when no subject has anything readable in it, or when the log is
larger than `log.total.bytes`. The last reason may delete what nobody has read, so it is logged as a
warning.

A subject whose own `retention.ms` is -1 or longer than the broker's *holds* the segments that have readable
messages of it, and with them all later ones: age alone does not delete these. `log.total.bytes` does. A
held segment goes when the subject's limits, DeleteRecords or its deletion leave nothing to hold it for.

Before a segment goes, the earliest sequences of its subjects are raised past it and that is synced: a
start after a crash in between finds a segment that is not needed any more, and no harm is done. A segment
that has aged without filling up is rolled, so that it can go as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.subject import Subject

log = logging.getLogger("kumquat.retention")


class Retention:
    """Decisions about what may go. They read index files, so they block; none changes anything."""

    def __init__(self, message_log: MessageLog, reader: Reader) -> None:
        self._log = message_log
        self._reader = reader

    def due_subjects(self, subjects: list[Subject], now: int) -> list[tuple[Subject, int]]:
        """Each subject whose earliest sequence is to be raised, and to where."""
        due = []
        for subject in subjects:
            if subject.earliest < subject.readable_end and not subject.deleted:
                earliest = self._earliest_to_keep(subject, now)
                if earliest > subject.earliest:
                    due.append((subject, earliest))
        return due

    def _earliest_to_keep(self, subject: Subject, now: int) -> int:
        config = subject.config
        earliest = subject.earliest
        if config.retention_ms >= 0:
            earliest = self._reader.locator.sequence_since(subject, now - config.retention_ms)
        if config.retention_bytes >= 0:
            by_size = self._reader.locator.sequence_keeping(subject, config.retention_bytes)
            earliest = max(earliest, min(by_size, subject.readable_end))
        return earliest

    def due_segment(self, now: int) -> tuple[Segment, str] | None:
        """The oldest segment, if it is to go, and why."""
        options, segments = self._log.options, self._log.state.segments
        if self._log.doomed or len(segments) < 2 or not self._is_spare(segments[0], segments[1]):
            return None
        oldest = segments[0]
        if self._is_aged(oldest, now) and not any(self.holders(oldest)):
            return oldest, "older than log.retention.ms"
        if 0 <= options.total_bytes < sum(segment.size for segment in segments):
            return oldest, "the log is larger than log.total.bytes"
        if not any(True for _ in self.readable_in(oldest)):
            return oldest, "nothing in it is readable any more"
        return None

    def held(self, now: int) -> tuple[Segment, list[Subject]] | None:
        """The oldest segment and who holds it, if it is past its age and still there for them alone."""
        segments = self._log.state.segments
        if (
            len(segments) < 2
            or segments[0].unindexed is not None
            or not self._is_aged(segments[0], now)
        ):
            return None
        holders = list(self.holders(segments[0]))
        return (segments[0], holders) if holders else None

    def holders(self, segment: Segment) -> Iterator[Subject]:
        """Of the subjects in a sealed segment, those that keep longer than `log.retention.ms`."""
        limit = self._log.options.retention_ms
        for subject, _ in self.readable_in(segment):
            if not 0 <= subject.config.retention_ms <= limit:
                yield subject

    def _is_aged(self, segment: Segment, now: int) -> bool:
        return 0 <= self._log.options.retention_ms < now - segment.newest_store_time

    def _is_spare(self, oldest: Segment, following: Segment) -> bool:
        """Whether the log can be opened without it, and the listeners have all that they need of it."""
        listener, settles = self._log.listener, self._log.settle_listener
        return (
            (listener is None or oldest.end <= listener.keep_from())
            and (settles is None or oldest.end <= settles.keep_from())
            and oldest.unindexed is None
            and oldest.newest_store_time >= 0
            and following.preamble_complete
            and following.preamble_end <= self._log.synced_end
        )

    def readable_in(self, segment: Segment) -> Iterator[tuple[Subject, int]]:
        """Each subject that has readable messages in a sealed segment, and where they end there."""
        by_id = self._log.state.subjects.by_id
        rows = self._reader.locator.rows(segment)
        for i in range(len(rows)):
            row = rows.at(i)
            subject = by_id.get(row.subject_id)
            if subject is not None and row.entries and subject.earliest < row.next_sequence:
                yield subject, row.next_sequence

    def should_roll(self, now: int) -> bool:
        """Whether the active segment has aged without filling up."""
        active, limit = self._log.state.active, self._log.options.retention_ms
        return 0 <= limit < now - active.started and active.entries > 0


def delete_doomed(message_log: MessageLog) -> None:
    """Blocks: delete the files of segments that are forgotten, oldest first. Each is gone for good before
    the next one goes: segments that come back after a power cut never leave a hole behind them. OSError:
    the rest is to be tried again, before any other segment is forgotten."""
    while message_log.doomed:
        _delete_files(message_log.files, message_log.doomed[0])
        del message_log.doomed[0]


def _delete_files(files: Files, segment: Segment) -> None:
    # Its keys first: nothing looks for a file of keys without a segment.
    for path in (segment.keys_path, segment.path, segment.index_path, segment.checkpoint_path):
        with suppress(FileNotFoundError):
            files.unlink(path)
    files.fsync_dir(segment.directory)
