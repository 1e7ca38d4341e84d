"""Reads parked records back: for entries of the wheel, and frame by frame for a fill. All of it blocks.

A record lies in the message log at its schedule id, or in a schedule file; the entry says which. Neighbours
are read together. Every record is checked against its own CRC. The result is the record; or a text that
says how it is damaged; or an OSError, if it cannot be read at the moment: that says nothing about the
record, it is to be read again. No memory to read it into is such an error too. One bad record never keeps
others from being read.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from kumquat.core.errors import CorruptMessage
from kumquat.core.logs.disk.unreadable import read_patiently
from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.parked import (
    ORIGIN_SIZE,
    RECORD_HEAD,
    RECORD_HEAD_SIZE,
    parked_damage,
)
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.neighbours import Place, neighbours
from kumquat.core.wheel.format import ScheduleClosed, ScheduleDamaged
from kumquat.core.wheel.schedule.entries import LOG, Entry
from kumquat.core.wheel.schedule.model import ReadResult

log = logging.getLogger("kumquat.delay")
T = TypeVar("T")

MOST_FAILED = 8
"""After so many failed reads the rest is not tried: each takes long on a dying disk."""


class LogRecords:
    """Parked records and frames of the message log."""

    def __init__(self, message_log: MessageLog) -> None:
        self._log = message_log

    def payload(self, position: int, length: int) -> bytes:
        """The payload of a PARKED frame, up to where the lengths of its records make sense. OSError: it
        cannot be read at the moment."""
        try:
            payload = self.read(position + HEADER_SIZE, length)
        except CorruptMessage as error:
            log.error("the parked messages at position %d of the log are lost: %s", position, error)
            return bytes(ORIGIN_SIZE)
        at = ORIGIN_SIZE
        while at + RECORD_HEAD_SIZE <= length:
            size = RECORD_HEAD.unpack_from(payload, at)[0]
            if size < RECORD_HEAD_SIZE or at + size > length:
                break
            at += size
        if at != length:
            log.error("the parked messages from position %d of the log on are lost", position + at)
        return payload[:at]

    def read_many(self, places: Sequence[Place]) -> list[ReadResult]:
        found: list[ReadResult] = [""] * len(places)
        bases = [segment.base for segment in self._log.state.segments]
        for run in neighbours(places, bases):
            begin = places[run[0]][0]
            end = max(places[i][0] + places[i][1] for i in run)
            try:
                data = self.read(begin, end - begin)
            except (CorruptMessage, OSError) as error:
                records = _each([places[i] for i in run], self._alone, error)
                for i, record in zip(run, records, strict=True):
                    found[i] = record
                continue
            for i in run:
                position, length = places[i]
                record = data[position - begin : position - begin + length]
                found[i] = parked_damage(record) or record
        return found

    def _alone(self, place: Place) -> ReadResult:
        [record] = self.read_many([place])
        return record

    def read(self, position: int, size: int) -> bytes:
        segment = self._segment(position)
        if position + size > self._log.commit.in_file:
            raise OSError(
                errno.EAGAIN, "it is not written yet, the disk is slow", str(segment.path)
            )
        pinned = self._log.open_files.pinned(segment.path)
        with _memory_error_as_os_error(segment.path), pinned as fd:
            data = read_patiently(self._log.files, fd, size, position - segment.base)
        if len(data) != size:
            raise CorruptMessage(
                f"{segment.path}: expected {size} bytes at position {position}, found {len(data)}"
            )
        return data

    def _segment(self, position: int) -> Segment:
        segments = self._log.state.segments
        i = bisect_right(segments, position, key=lambda segment: segment.base) - 1
        if i < 0:
            raise CorruptMessage(f"the log no longer has position {position}")
        return segments[i]


@contextmanager
def _memory_error_as_os_error(path: Path) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise OSError(errno.ENOMEM, "no memory to read it", str(path)) from error


def _each(
    places: Sequence[T], read: Callable[[T], ReadResult], error: OSError | CorruptMessage
) -> list[ReadResult]:
    """Read one by one what could not be read together; `error` says why."""
    if len(places) == 1:
        return [error if isinstance(error, OSError) else str(error)]
    found: list[ReadResult] = []
    failed = 0
    for place in places:
        if isinstance(error, OSError) and failed == MOST_FAILED:
            found.append(error)
            continue
        record = read(place)
        failed += isinstance(record, OSError)
        found.append(record)
    return found


class RecordReader:
    """Parked records, wherever they lie."""

    def __init__(self, log_records: LogRecords, files: Mapping[int, ScheduleFile]) -> None:
        self._log_records = log_records
        self._files = files
        """All schedule files that are open, by number."""

    def read(self, entries: Sequence[Entry]) -> list[ReadResult]:
        """The record of each entry, in their order."""
        by_source: dict[int, list[int]] = {}
        for i, entry in enumerate(entries):
            by_source.setdefault(entry.source, []).append(i)
        found: list[ReadResult] = [""] * len(entries)
        for source, indexes in by_source.items():
            records: Sequence[ReadResult]
            if source == LOG:
                places = [(entries[i].schedule_id, entries[i].length) for i in indexes]
                records = self._log_records.read_many(places)
            else:
                records = _from_file(self._files.get(source), [entries[i] for i in indexes])
            for i, record in zip(indexes, records, strict=True):
                found[i] = record
        return found


def _from_file(file: ScheduleFile | None, entries: Sequence[Entry]) -> list[ReadResult]:
    """A file is closed during a read only when all entries that point into it were cancelled."""
    if file is not None:
        with suppress(ScheduleClosed):
            try:
                with _memory_error_as_os_error(file.path):
                    found = file.read_many([(entry.offset, entry.length) for entry in entries])
            except (ScheduleDamaged, OSError) as error:
                return _each(entries, lambda entry: _from_file(file, [entry])[0], error)
            return [record if isinstance(record, bytes) else str(record) for record in found]
    return ["cancelled"] * len(entries)
