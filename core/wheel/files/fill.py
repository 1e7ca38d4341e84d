"""What goes into a schedule file: the blocking half of a fill (schedule/schedule.py). No clock, no Trio.

The frames of the stretch are read back from the log, which is synced up to its end by then: so a file never
holds what a power cut can still take from the log. What was delivered or cancelled meanwhile stays out. A
message whose due time had already passed `delivered_until` is filed one millisecond behind that; else a
start would take it as delivered. Its record says when it is due.

What cannot be filed (damaged, or a time or a name that the format has no room for) is left out: the log of
the broker names it, the fill goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from crc32c import crc32c

from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.logs.messages.parked import (
    CRC_BEGINS,
    DELIVERED,
    MOVED,
    ORIGIN_SIZE,
    RECORD_HEAD,
    delay_id_of,
    heads_of,
)
from kumquat.core.wheel.format import (
    LATEST_DUE,
    LONGEST_ID,
    PENDING,
    Name,
    Parked,
    Tombstone,
)
from kumquat.core.wheel.schedule.model import FRAME, Fill, Named, Refiled

log = logging.getLogger("kumquat.delay")

ReadFrame = Callable[[int, int], bytes]
"""The payload of the frame at a position of the log, of a given length."""


def parked_of(fill: Fill, read: ReadFrame, live: Callable[[int], bool]) -> Iterator[Parked]:
    """Blocks: the messages of the stretch that are still pending, in the order of the log."""
    frames, gone, until, new = fill.frames, fill.gone, fill.delivered_until, tuple.__new__
    for i in range(0, len(frames), FRAME):
        position, length, subject_id = frames[i : i + FRAME]
        if not live(subject_id):
            continue
        payload = read(position, length)
        if position in fill.unknown:
            _learn(fill, subject_id, position + HEADER_SIZE, payload)
        begin, at, view = position + HEADER_SIZE, ORIGIN_SIZE, memoryview(payload)
        while at < len(payload):  # as heads_of, in a third of the time
            size, crc, due, _, _ = RECORD_HEAD.unpack_from(payload, at)
            record, schedule_id = payload[at : at + size], begin + at
            found = crc32c(view[at + CRC_BEGINS : at + size])
            at += size
            if schedule_id in gone:
                continue
            if found != crc:
                log.error(
                    "the parked message at position %d of the log is lost: expected CRC %#010x, "
                    "found %#010x",
                    schedule_id,
                    crc,
                    found,
                )
                fill.lost.append(Tombstone(due, schedule_id, subject_id))
                continue
            if not 0 <= due <= LATEST_DUE:
                log.error(
                    "the parked message at position %d of the log is lost: it is due at %d, a schedule "
                    "file holds times from 0 to %d",
                    schedule_id,
                    due,
                    LATEST_DUE,
                )
                fill.lost.append(Tombstone(due, schedule_id, subject_id))
                continue
            if (due, schedule_id) <= until:
                fill.refiled[schedule_id] = Refiled(until[0] + 1, due, subject_id)
                due = until[0] + 1
            yield new(Parked, (due, schedule_id, subject_id, record))


def _learn(fill: Fill, subject_id: int, begin: int, payload: bytes) -> None:
    """Note what the schedule would know of a frame if it had been readable at the start."""
    for at, head in heads_of(payload):
        schedule_id, key = begin + at, (subject_id, delay_id_of(payload, at, head))
        known = fill.names.get(key)
        if head.id_length and (known is None or known.schedule_id < schedule_id):
            fill.names[key] = Named(schedule_id, head.due, PENDING)
            fill.remembered.pop(key, None)
        fill.found.append((schedule_id, key))
        if schedule_id not in fill.gone:
            fill.pending[subject_id] = fill.pending.get(subject_id, 0) + 1


def names_of(fill: Fill) -> Iterator[Name]:
    """The names that came up in the stretch; to be called when `parked_of` is exhausted."""
    for (subject_id, delay_id), (schedule_id, due, status) in fill.names.items():
        if not 0 < len(delay_id) <= LONGEST_ID or due > LATEST_DUE:
            log.error(
                "the name %r of subject %d (schedule id %d, due at %d) cannot be filed: it is forgotten",
                delay_id[:40],
                subject_id,
                schedule_id,
                due,
            )
            continue
        filed = fill.refiled.get(schedule_id)
        if schedule_id in fill.gone and status in (PENDING, MOVED):
            status = DELIVERED
        yield Name(subject_id, delay_id, schedule_id, due if filed is None else filed.filed, status)


def tombstones_of(fill: Fill) -> list[Tombstone]:
    """The tombstones of messages that can have been filed."""
    return [dead for dead in fill.tombstones if 0 <= dead.due <= LATEST_DUE]
