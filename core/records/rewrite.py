"""Records of a stored batch with headers appended: as they were, plus what the broker has to say.

Three users. A record that is delivered again carries `qmq-attempt`: `with_header` cuts records out of a
batch, as cut.py does, and gives each the same header. A dead letter is a new message: `bodies` takes
records out of a batch, and `build` makes a new batch of any of them, each with headers of its own. What the
broker has to say itself (gateway/history) is built of bodies too, and compressed (`compress`).

A record is taken apart at one place, in front of its header count, which takes four varints. All else is
copied as it stands: key, value, headers. So what a client wrote as a header is not looked at; InvalidRecord
where the fields before do not fit the record. See records.py for the layout of a record.

Timestamps: `with_header` leaves them to the head of the batch, as a cut does. `build` writes the absolute
time of each record, with the lowest as base; the new batch is never one of log append time (the log makes
it one, where the subject asks for that).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from kumquat.core.errors import InvalidRecord
from kumquat.core.records.batch import (
    CODEC_MASK,
    CRC_FROM,
    CURRENT_MAGIC,
    HEAD,
    HEAD_SIZE,
    LOG_APPEND_TIME,
    OVERHEAD,
    BatchHead,
    read_head,
)
from kumquat.core.records.compression import Data, compressed
from kumquat.core.records.cut import NO_EPOCH, Buffers, CutPoints
from kumquat.core.records.records import packed_varint, varint

_NO_HEAD = bytes(HEAD_SIZE)
_TABLE = 8_192
_VARINTS = [packed_varint(number) for number in range(_TABLE)]
_FAR = 1 << 61
"""No timestamp is further from 0: any two fit one batch, whatever a client wrote."""


class Body(NamedTuple):
    """A record without its place in a batch."""

    timestamp: int
    fields: bytes | memoryview
    """Key and value, with their lengths."""
    header_count: int
    headers: bytes | memoryview
    newest: int = 0
    """The highest timestamp of the batch that it was taken from."""


NOTHING = b"\x01\x01"
"""The fields of a record without key and value."""


def header(name: bytes, value: bytes) -> bytes:
    """A header as it stands in a record."""
    return b"".join((packed_varint(len(name)), name, packed_varint(len(value)), value))


def with_header(
    points: CutPoints,
    batch: memoryview,
    first_delta: int,
    last_delta: int,
    base_offset: int,
    added: bytes,
) -> Buffers:
    """The records with these deltas, both included, with one more header (see `header`); delta 0 is to have
    offset `base_offset`. Nothing when there are none in the batch. `points` are those of this batch."""
    head = read_head(batch)
    parts: list[bytes | memoryview] = [_NO_HEAD]
    count = 0
    for data, begin, counted, end in _records(points, batch, head, first_delta, last_delta):
        headers, behind = _header_count(data, counted, end)
        number = _varint(headers + 1)
        size = (counted - begin) + len(number) + (end - behind) + len(added)
        parts += (_varint(size), data[begin:counted], number, data[behind:end], added)
        count += 1
    if not count:
        return []
    last_delta = min(last_delta, head.last_offset_delta)
    fields = (head.attributes & ~CODEC_MASK, last_delta, *head[7:12], count)
    return [memoryview(_finished(parts, base_offset, NO_EPOCH, fields))]


def bodies(
    points: CutPoints, batch: memoryview, first_delta: int, last_delta: int
) -> list[tuple[int, Body]]:
    """The records with these deltas, in order, as far as they are there; each behind its delta, which is
    its number unless the batch has holes (cut.py). They hold on to the batch."""
    head = read_head(batch)
    number = max(first_delta, 0)
    holes = head.last_offset_delta != head.record_count - 1
    append_time = head.max_timestamp if head.attributes & LOG_APPEND_TIME else None
    found = list[tuple[int, Body]]()
    for data, begin, counted, end in _records(points, batch, head, first_delta, last_delta):
        headers, behind = _header_count(data, counted, end)
        later, at = varint(data, begin + 1)
        delta, fields = varint(data, at)
        timestamp = head.base_timestamp + later if append_time is None else append_time
        timestamp = max(-_FAR, min(timestamp, _FAR))
        body = Body(timestamp, data[fields:counted], headers, data[behind:end], head.max_timestamp)
        found.append((delta if holes else number, body))
        number += 1
    return found


def build(records: Sequence[tuple[Body, Sequence[bytes]]], newest: int = 0) -> bytearray:
    """A batch of records, each with more headers behind its own. At least one. The log sets its offset.
    `newest`: its highest timestamp is no lower; retention goes by that, so an old message in a new batch is
    not deleted at once (so it is a time of the log's clock). Readers take it as an upper bound."""
    base = min(body.timestamp for body, _ in records)
    parts: list[bytes | memoryview] = [_NO_HEAD]
    for i, (body, added) in enumerate(records):
        lead = b"".join((b"\0", packed_varint(body.timestamp - base), _varint(i)))
        number = _varint(body.header_count + len(added))
        size = len(lead) + len(body.fields) + len(number) + len(body.headers)
        size += sum(map(len, added))
        parts += (_varint(size), lead, body.fields, number, body.headers, *added)
    count, highest = len(records), max(newest, *(body.timestamp for body, _ in records))
    return _finished(parts, 0, 0, (0, count - 1, base, highest, -1, -1, -1, count))


def compress(batch: bytearray, codec: int, level: int) -> bytearray:
    """The same batch with its records compressed; `batch` is as `build` made it."""
    head = read_head(batch)
    with memoryview(batch) as view:
        records = compressed(codec, [view[HEAD_SIZE:]], level)
        parts = [_NO_HEAD, *records]
    return _finished(parts, head.base_offset, head.leader_epoch, (codec, *head[6:]))


def fields_of(
    body: Body,
) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    """Key, value and headers. InvalidRecord: the headers are garbled. A name that is no UTF-8 is none for
    that: some clients write any bytes."""
    key, at = _field(body.fields, 0)
    value, _ = _field(body.fields, at)
    headers, at = list[tuple[str, bytes | None]](), 0
    try:
        for _ in range(body.header_count):
            name, at = _field(body.headers, at)
            content, at = _field(body.headers, at)
            headers.append(((name or b"").decode(errors="replace"), content))
    except IndexError as error:
        raise InvalidRecord(f"the headers of a record are garbled: {error}") from None
    return key, value, tuple(headers)


def _field(data: bytes | memoryview, at: int) -> tuple[bytes | None, int]:
    length, at = varint(data, at)
    if length < 0:
        return None, at
    if at + length > len(data):
        raise InvalidRecord(f"a field claims {length} bytes, {len(data) - at} are left")
    return bytes(data[at : at + length]), at + length


def _records(
    points: CutPoints, batch: memoryview, head: BatchHead, first_delta: int, last_delta: int
) -> Iterable[tuple[memoryview, int, int, int]]:
    """Of each record: the data it lies in, where it begins behind its length, where its header count
    stands, and where it ends."""
    data = memoryview(batch[HEAD_SIZE:] if points.inflated is None else points.inflated)
    first_delta, last_delta = max(first_delta, 0), min(last_delta, head.last_offset_delta)
    if first_delta > last_delta:
        return
    at, stop, _ = points.find(data, head, first_delta, last_delta)
    while at < stop:
        length, begin = varint(data, at)
        end = begin + length
        try:
            _, where = varint(data, begin + 1)
            _, where = varint(data, where)
            for _ in ("key", "value"):
                size, where = varint(data, where)
                where += max(size, 0)
        except IndexError:
            where = end
        if where >= end:
            raise InvalidRecord("a field of a record ends behind the record")
        yield data, begin, where, end
        at = end


def _header_count(data: memoryview, at: int, end: int) -> tuple[int, int]:
    try:
        count, behind = varint(data, at)
    except IndexError:
        raise InvalidRecord("the header count of a record breaks off") from None
    if count < 0 or behind > end:
        raise InvalidRecord(f"a record claims {count} headers")
    return count, behind


def _varint(number: int) -> bytes:
    return _VARINTS[number] if number < _TABLE else packed_varint(number)


def _finished(parts: Sequence[Data], offset: int, epoch: int, fields: tuple[int, ...]) -> bytearray:
    """The batch whose records are all parts but the first, which makes room for its head."""
    batch = bytearray().join(parts)
    length = len(batch) - OVERHEAD
    HEAD.pack_into(batch, 0, offset, length, epoch, CURRENT_MAGIC, 0, *fields)
    with memoryview(batch) as view:
        crc = crc32c(view[CRC_FROM:])
    HEAD.pack_into(batch, 0, offset, length, epoch, CURRENT_MAGIC, crc, *fields)
    return batch
