"""Batches for tests of messages with keys and headers, in every codec, with holes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from kumquat.core.logs.tests.batches import TIME
from kumquat.core.records.batch import CRC_FROM, HEAD, HEAD_SIZE, OVERHEAD
from kumquat.core.records.records import packed_varint
from kumquat.core.records.tests.codecs import WRITERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Sent(NamedTuple):
    """A message, and how many sequences behind it are holes."""

    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = TIME
    holes: int = 0


class Stored(NamedTuple):
    """A message that the log has; a record's fields."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def packed(sent: Sequence[Sent], codec: str = "") -> bytearray:
    """A batch as the log takes it. One with holes must be appended with its head: no client sends such."""
    base = min(each.timestamp for each in sent)
    records, delta = b"", 0
    for each in sent:
        records += _record(each, each.timestamp - base, delta)
        delta += 1 + each.holes
    number = 0
    if codec:
        number, write = WRITERS[codec]
        records = write(records)
    size, highest = HEAD_SIZE + len(records), max(each.timestamp for each in sent)
    fields = (0, size - OVERHEAD, -1, 2, 0, number, delta - 1, base, highest, -1, -1, -1, len(sent))
    data = bytearray(HEAD.pack(*fields) + records)
    data[17:21] = crc32c(data[CRC_FROM:]).to_bytes(4, "big")
    return data


def stored(sent: Iterable[Sent], base: int) -> list[Stored]:
    """What the log has of a batch that begins at `base`."""
    found = []
    for each in sent:
        found.append(Stored(base, each.timestamp, each.key, each.value, each.headers))
        base += 1 + each.holes
    return found


def _record(sent: Sent, timestamp_delta: int, offset_delta: int) -> bytes:
    fields = b"\0" + packed_varint(timestamp_delta) + packed_varint(offset_delta)
    fields += _field(sent.key) + _field(sent.value) + packed_varint(len(sent.headers))
    for name, value in sent.headers:
        fields += _field(name.encode()) + _field(value)
    return packed_varint(len(fields)) + fields


def _field(data: bytes | None) -> bytes:
    return b"\x01" if data is None else packed_varint(len(data)) + data
