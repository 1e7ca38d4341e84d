"""The records inside a batch: read only where a single record matters.

A record: varint length, attributes (1 byte, unused), varint timestamp delta, varint offset delta,
varint key length and key, varint value length and value, varint header count, then for each header a
varint key length and key and a varint value length and value. Varints are zigzag; -1 is null. A client
wrote all of it, so every length is checked against what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kumquat.core.errors import InvalidRecord
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, LOG_APPEND_TIME, BatchHead, read_head
from kumquat.core.records.compression import Data, pieces


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def records_of(batch: memoryview, limit: int) -> Iterator[Record]:
    """Each record of a stored batch, in order; InvalidRecord where the batch is not what it says. A
    compressed one is inflated piece by piece: no more is held than a piece and a record."""
    head = read_head(batch)
    codec, data = head.attributes & CODEC_MASK, batch[HEAD_SIZE:]
    found: Iterable[Data] = pieces(codec, data, limit) if codec else (data,)
    have, left = bytearray(), head.record_count
    for piece in found:
        have += piece
        at = 0
        while left and _is_whole(have, at):
            record, at = _record(have, at, head)
            left -= 1
            yield record
        del have[:at]
        if not left:
            return
    raise InvalidRecord(f"{left} of {head.record_count} records are missing, or break off")


def _is_whole(data: bytearray, at: int) -> bool:
    """Whether all of a record is there."""
    try:
        length, begin = varint(data, at)
    except IndexError:
        return False
    return begin + length <= len(data)


def _record(data: bytearray, start: int, head: BatchHead) -> tuple[Record, int]:
    try:
        return _fields(data, start, head)
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidRecord(f"a record breaks off or is garbled: {error}") from None


def _fields(data: bytearray, at: int, head: BatchHead) -> tuple[Record, int]:
    length, at = varint(data, at)
    end = at + length
    if length < 0:
        raise InvalidRecord(f"a record claims {length} bytes")
    timestamp_delta, at = varint(data, at + 1)
    offset_delta, at = varint(data, at)
    key, at = _field(data, at, end)
    value, at = _field(data, at, end)
    header_count, at = varint(data, at)
    headers = []
    for _ in range(header_count):
        name, at = _field(data, at, end)
        content, at = _field(data, at, end)
        headers.append(((name or b"").decode(), content))
    if at != end:
        raise InvalidRecord(f"a record claims to end at byte {end}, its fields end at {at}")
    timestamp = head.base_timestamp + timestamp_delta
    if head.attributes & LOG_APPEND_TIME:
        timestamp = head.max_timestamp
    return Record(head.base_offset + offset_delta, timestamp, key, value, tuple(headers)), at


def _field(data: bytearray, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = varint(data, at)
    if length < 0:
        return None, at
    if at + length > end:
        raise InvalidRecord(f"a field claims {length} bytes, {end - at} are left")
    return bytes(data[at : at + length]), at + length


def doubled_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint as it stands, before its zigzag is undone, and the place after it: twice the number if it is
    not negative; odd if it is. For loops over many records: short ones take half the time."""
    low = data[at]
    if low < 0x80:
        return low, at + 1
    high = data[at + 1]
    if high < 0x80:
        return low & 0x7F | high << 7, at + 2
    number, at = varint(data, at)
    return (2 * number if number >= 0 else -2 * number - 1), at


def signed(doubled: int) -> int:
    """The number that `doubled_varint` gave."""
    return (doubled >> 1) ^ -(doubled & 1)


def packed_varint(number: int) -> bytes:
    """A number that is not negative, as a zigzag varint."""
    left, out = 2 * number, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def varint(data: Data, at: int) -> tuple[int, int]:
    """A zigzag varint and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise InvalidRecord(f"a varint before byte {at} is longer than ten bytes")
