"""What the frames of delayed messages carry, byte by byte; big-endian. See format.py for frames.

A client's batch may hold records for later (*parked*), records that cancel such ones, and plain ones. Each
sort has a frame of its own, written in one write in the order parked, cancel, messages. Each but the last
has the flag JOINED: it is valid only together with the frame behind it, so a cut leaves all or none.

PARKED and CANCEL begin with the origin, for idempotence:

    producer id 8, epoch 2, first sequence number 4, record count of the client's batch 4

The producer id is -1 where there is none, or where a frame that is joined behind says it.

PARKED: parked records, one behind the other.

    length 4       of the whole record, this field included
    CRC-32C 4      of all that follows
    due 8          ms since the epoch
    created 8      the producer's timestamp
    id length 2    0: it has no delay id
    delay id       UTF-8
    body           the Kafka record from its key length on: key, value, header count, headers. The delay
                   headers are gone; the count includes the two that delivery appends

The *schedule id* of a parked message is the position in the log of its record's first byte.

CANCEL: one item for each record that cancels or moves.

    outcome 1      CANCELLED, MOVED, DELIVERED (it came too late), REMEMBERED (a cancel, there is no such
                   id yet), MOVE_REMEMBERED (a move, likewise)
    schedule id 8  of the message in question, -1 when there is none
    due 8          of that message; MOVE_REMEMBERED: the new due
    until 8        MOVED: the new due; REMEMBERED, MOVE_REMEMBERED: until when; else 0
    id length 2, delay id

DELIVERED: schedule ids, 8 bytes each, in the order of the records of the frame of messages that is joined
behind. Without JOINED: these were found damaged, and are given up.

Two headers are appended at delivery: `qmq-due-ms` and `qmq-created-ms`, decimal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crc32c import crc32c

ORIGIN = struct.Struct(">qhii")
ORIGIN_SIZE = ORIGIN.size
assert ORIGIN_SIZE == 18
RECORD_HEAD = struct.Struct(">IIqqH")
RECORD_HEAD_SIZE = RECORD_HEAD.size
assert RECORD_HEAD_SIZE == 26
CRC_BEGINS = 8
"""The CRC of a parked record covers it from here on."""
CANCEL_ITEM = struct.Struct(">BqqqH")
assert CANCEL_ITEM.size == 27
SCHEDULE_ID = struct.Struct(">q")

CANCELLED = 1
MOVED = 2
DELIVERED = 3
REMEMBERED = 4
MOVE_REMEMBERED = 5


class Origin(NamedTuple):
    """The batch of an idempotent producer that a frame was made of."""

    producer_id: int
    epoch: int
    first: int
    records: int


NO_ORIGIN = Origin(-1, -1, -1, 0)


class ParkedHead(NamedTuple):
    length: int
    crc: int
    due: int
    created: int
    id_length: int


class CancelItem(NamedTuple):
    outcome: int
    schedule_id: int
    due: int
    until: int
    delay_id: bytes


def pack_parked(due: int, created: int, delay_id: bytes, body: bytes | memoryview) -> bytes:
    """A parked record."""
    length = RECORD_HEAD_SIZE + len(delay_id) + len(body)
    rest = RECORD_HEAD.pack(length, 0, due, created, len(delay_id))[CRC_BEGINS:] + delay_id + body
    return struct.pack(">II", length, crc32c(rest)) + rest


def parked_damage(record: bytes | memoryview) -> str | None:
    """What is wrong with a parked record; None when it is whole."""
    if len(record) < RECORD_HEAD_SIZE:
        return f"{len(record)} bytes, the head of a parked record is {RECORD_HEAD_SIZE}"
    length, crc = struct.unpack_from(">II", record)
    if length != len(record):
        return f"expected a parked record of {len(record)} bytes, found one of {length}"
    found = crc32c(record[CRC_BEGINS:])
    if found != crc:
        return f"expected CRC {crc:#010x} of a parked record, found {found:#010x}"
    return None


def heads_of(
    payload: bytes | memoryview, at: int = ORIGIN_SIZE
) -> Iterator[tuple[int, ParkedHead]]:
    """Where each record of a PARKED payload begins, and its head. The frame's CRC was right."""
    end, unpack = len(payload), RECORD_HEAD.unpack_from
    while at < end:
        head = ParkedHead._make(unpack(payload, at))
        yield at, head
        at += head.length


def delay_id_of(payload: bytes | memoryview, at: int, head: ParkedHead) -> bytes:
    begin = at + RECORD_HEAD_SIZE
    return bytes(payload[begin : begin + head.id_length])


def pack_origin(origin: Origin) -> bytes:
    return ORIGIN.pack(*origin)


def parse_origin(payload: bytes | memoryview) -> Origin:
    return Origin._make(ORIGIN.unpack_from(payload))


def pack_cancels(origin: Origin, items: Iterable[CancelItem]) -> bytes:
    parts = [pack_origin(origin)]
    for outcome, schedule_id, due, until, delay_id in items:
        parts += (CANCEL_ITEM.pack(outcome, schedule_id, due, until, len(delay_id)), delay_id)
    return b"".join(parts)


def cancels_of(payload: bytes | memoryview) -> Iterator[CancelItem]:
    at = ORIGIN_SIZE
    while at < len(payload):
        outcome, schedule_id, due, until, length = CANCEL_ITEM.unpack_from(payload, at)
        at += CANCEL_ITEM.size
        yield CancelItem(outcome, schedule_id, due, until, bytes(payload[at : at + length]))
        at += length


def pack_schedule_ids(schedule_ids: Iterable[int]) -> bytes:
    return b"".join(map(SCHEDULE_ID.pack, schedule_ids))


def schedule_ids_of(payload: bytes | memoryview) -> list[int]:
    return [schedule_id for (schedule_id,) in SCHEDULE_ID.iter_unpack(payload)]
