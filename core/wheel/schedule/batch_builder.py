"""Batches from parked records: what consumers see when messages are due.

A parked record holds a Kafka record from its key length on. Its header count already includes the two
headers that are added here, `qmq-due-ms` and `qmq-created-ms`. So a record is put together from whole
pieces, and nothing in it is parsed. Its timestamp is the time of delivery, so that timestamps stay ordered
in the log. The batch has no producer id. Its records are of one subject and in order; the log sets the base
offset.

A batch has at most 8,192 records, and at most `max_bytes` bytes, unless a single record is larger.
"""

from __future__ import annotations

from crc32c import crc32c

from kumquat.core.logs.messages.parked import RECORD_HEAD, RECORD_HEAD_SIZE
from kumquat.core.records.batch import (
    CRC_FROM,
    CURRENT_MAGIC,
    HEAD,
    HEAD_SIZE,
    LOG_APPEND_TIME,
    OVERHEAD,
)

MOST_RECORDS = 8_192
_TABLE = 8_192
_MOST_AROUND = 9
"""The most bytes of a record besides its body and the added headers."""
_NO_HEAD = bytes(HEAD_SIZE)
_ADDED = b"\x14qmq-due-ms\x1a%013d\x1cqmq-created-ms\x1a%d"
_ADDED_ANY = b"\x14qmq-due-ms\x1a%013d\x1cqmq-created-ms%c%b"
"""For creation times that do not have thirteen digits: a producer may send any."""


def _varint(number: int) -> bytes:
    """A zigzag varint of a number that is not negative."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_VARINTS = [_varint(n) for n in range(_TABLE)]
_STARTS = [b"\0\0" + delta for delta in _VARINTS[:MOST_RECORDS]]
"""Attributes, timestamp delta 0, offset delta."""


def build_batches(
    records: list[bytes], now: int, append_time: bool, max_bytes: int
) -> list[tuple[bytearray, int]]:
    """Parked records as batches, in their order; each batch with its record count."""
    batches: list[tuple[bytearray, int]] = []
    parts: list[bytes] = [_NO_HEAD]
    size, count = HEAD_SIZE, 0
    unpack, varints, starts = RECORD_HEAD.unpack_from, _VARINTS, _STARTS
    for record in records:
        _, _, due, created, id_length = unpack(record)
        if 10**12 <= created < 10**13:
            added = _ADDED % (due, created)
        else:
            when = b"%d" % created
            added = _ADDED_ANY % (due, len(when) << 1, when)
        body = record[RECORD_HEAD_SIZE + id_length :]
        length = len(body) + len(added)
        if count and (size + length + _MOST_AROUND > max_bytes or count == MOST_RECORDS):
            batches.append((_batch(parts, count, now, append_time), count))
            parts, size, count = [_NO_HEAD], HEAD_SIZE, 0
        start = starts[count]
        length += len(start)
        lead = varints[length] if length < _TABLE else _varint(length)
        parts += (lead, start, body, added)
        size += length + len(lead)
        count += 1
    if count:
        batches.append((_batch(parts, count, now, append_time), count))
    return batches


def _batch(parts: list[bytes], count: int, now: int, append_time: bool) -> bytearray:
    batch = bytearray().join(parts)
    attributes = LOG_APPEND_TIME if append_time else 0
    fields = (attributes, count - 1, now, now, -1, -1, -1, count)
    length = len(batch) - OVERHEAD
    HEAD.pack_into(batch, 0, 0, length, 0, CURRENT_MAGIC, 0, *fields)
    with memoryview(batch) as view:
        crc = crc32c(view[CRC_FROM:])
    HEAD.pack_into(batch, 0, 0, length, 0, CURRENT_MAGIC, crc, *fields)
    return batch
