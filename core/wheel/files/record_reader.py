"""Reading parked records back: by the slots of the wheel, and frame by frame for a fill. All of it blocks.

A record lies in the message log at its schedule id, or in a schedule file; the entry says which. Neighbours
are read together. Every record is checked against its own CRC: what is damaged comes back as the words that
say so, never as bytes, and never keeps others from being read. What the disk does not give at the moment
comes back as the OSError: that says nothing about the record, it is to be asked for again. No memory to
read it into is such an error too.
"""

from __future__ import annotations

import errno
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from kumquat.core.wheel.format import ScheduleClosed, ScheduleDamaged
from kumquat.core.wheel.schedule.wheel import LOG, Slot

log = logging.getLogger("kumquat.delay")
T = TypeVar("T")

_GAP = 32 << 10
"""Bytes between two records that are rather read than a second read begun."""
_STRIDE = 1 << 20
"""The most that one read of several records takes, but for the last of them."""

_ENDLESS = 1 << 63

MOST_FAILED = 8
"""After so many reads that failed the rest of them is not tried: a dying disk takes long for each."""

Body = bytes | str | OSError
"""A parked record; or what is wrong with it; or why it cannot be read at the moment."""
Place = tuple[int, int]
"""Where a record lies in the log, and its length."""


class LogBodies:
    """Parked records and frames of the message log."""

    def __init__(self, message_log: MessageLog) -> None:
        self._log = message_log

    def payload(self, position: int, length: int) -> bytes:
        """The payload of a PARKED frame, cut off where its records can no longer be told apart. OSError: it
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

    def read_many(self, places: Sequence[Place]) -> list[Body]:
        found: list[Body] = [""] * len(places)
        order = sorted(range(len(places)), key=places.__getitem__)
        bases = [segment.base for segment in self._log.state.segments]
        for run in _runs(places, order, bases):
            begin = places[run[0]][0]
            end = max(places[i][0] + places[i][1] for i in run)
            try:
                data = self.read(begin, end - begin)
            except (CorruptMessage, OSError) as error:
                bodies = _each([places[i] for i in run], self._alone, error)
                for i, body in zip(run, bodies, strict=True):
                    found[i] = body
                continue
            for i in run:
                position, length = places[i]
                record = data[position - begin : position - begin + length]
                found[i] = parked_damage(record) or record
        return found

    def _alone(self, place: Place) -> Body:
        [body] = self.read_many([place])
        return body

    def read(self, position: int, size: int) -> bytes:
        segment = self._segment(position)
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


def _runs(
    places: Sequence[Place], order: Iterable[int], bases: Sequence[int]
) -> Iterator[list[int]]:
    """Neighbours, to be read together: in one segment, as `bases` tells where each begins."""
    run: list[int] = []
    begin = end = border = 0
    for i in order:
        position, length = places[i]
        if run and (position > end + _GAP or position - begin > _STRIDE or position >= border):
            yield run
            run = []
        if not run:
            begin = end = position
            following = bisect_right(bases, position)
            border = bases[following] if following < len(bases) else _ENDLESS
        run.append(i)
        end = max(end, position + length)
    if run:
        yield run


def _each(
    places: Sequence[T], read: Callable[[T], Body], error: OSError | CorruptMessage
) -> list[Body]:
    """What could not be read together, one by one; `error` says why."""
    if len(places) == 1:
        return [error if isinstance(error, OSError) else str(error)]
    found: list[Body] = []
    failed = 0
    for place in places:
        if isinstance(error, OSError) and failed == MOST_FAILED:
            found.append(error)
            continue
        body = read(place)
        failed += isinstance(body, OSError)
        found.append(body)
    return found


def read_bodies(
    slots: Sequence[Slot], log_bodies: LogBodies, files: dict[int, ScheduleFile]
) -> list[Body]:
    """The record of each slot, in their order."""
    by_source: dict[int, list[int]] = {}
    for i, slot in enumerate(slots):
        by_source.setdefault(slot.source, []).append(i)
    found: list[Body] = [""] * len(slots)
    for source, indexes in by_source.items():
        bodies: Sequence[Body]
        if source == LOG:
            bodies = log_bodies.read_many([(slots[i].sid, slots[i].length) for i in indexes])
        else:
            bodies = _from_file(files.get(source), [slots[i] for i in indexes])
        for i, body in zip(indexes, bodies, strict=True):
            found[i] = body
    return found


def _from_file(file: ScheduleFile | None, slots: Sequence[Slot]) -> list[Body]:
    """A file is closed under a reader only when all that was wanted of it has been cancelled."""
    if file is not None:
        with suppress(ScheduleClosed):
            try:
                with _memory_error_as_os_error(file.path):
                    found = file.read_many([(slot.offset, slot.length) for slot in slots])
            except (ScheduleDamaged, OSError) as error:
                return _each(slots, lambda slot: _from_file(file, [slot])[0], error)
            return [body if isinstance(body, bytes) else str(body) for body in found]
    return ["cancelled"] * len(slots)
