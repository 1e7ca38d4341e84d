"""Inflating what is in a compressed batch, never to more than a bound.

The broker inflates only when it must look inside a batch (a search by time, a delay header). A few
hundred bytes can claim gigabytes, so every codec writes into a buffer of bounded size: it grows from
a guess and is refused at `limit`. Snappy comes in two dresses: raw, and in the blocks that Java's and
Python's clients wrap around it (magic 0x82 "SNAPPY\\0", two version ints, then length-prefixed blocks).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

import cramjam

from core.errors import CorruptMessage, InvalidRecord, UnsupportedCompression

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = len(_XERIAL) + 8
_FIRST_GUESS = 1 << 16


def inflate(codec: int, data: memoryview, limit: int) -> bytes | memoryview:
    """The records of a batch, inflated; InvalidRecord when they would be longer than `limit`."""
    if codec == 0:
        return data
    if codec == GZIP:
        return _gzip(data, limit)
    if codec == SNAPPY:
        return _snappy(data, limit)
    if codec == LZ4:
        return _grow(cramjam.lz4.decompress_into, data, limit)
    if codec == ZSTD:
        return _grow(cramjam.zstd.decompress_into, data, limit)
    raise UnsupportedCompression(f"compression codec {codec} is unknown")


def _too_long(limit: int) -> InvalidRecord:
    return InvalidRecord(f"the batch inflates to more than max.decompressed.bytes ({limit})")


def _gzip(data: memoryview, limit: int) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        found = inflater.decompress(data, limit)
        if inflater.unconsumed_tail or not inflater.eof:
            if len(found) >= limit:
                raise _too_long(limit)
            raise CorruptMessage("the gzip data of the batch ends too soon")
    except zlib.error as error:
        raise CorruptMessage(f"the batch cannot be inflated: {error}") from error
    return found


def _grow(into: Callable[[memoryview, bytearray], int], data: memoryview, limit: int) -> memoryview:
    """Inflate into ever larger buffers: these codecs do not tell a short buffer from bad data."""
    size = min(limit, max(_FIRST_GUESS, 8 * len(data)))
    while True:
        out = bytearray(size)
        try:
            return memoryview(out)[: into(data, out)]
        except cramjam.DecompressionError as error:
            if size == limit:
                raise InvalidRecord(
                    f"the batch cannot be inflated within max.decompressed.bytes ({limit}): {error}"
                ) from error
            size = min(limit, 4 * size)


def _snappy(data: memoryview, limit: int) -> bytes:
    try:
        if bytes(data[: len(_XERIAL)]) != _XERIAL:
            return _snappy_block(data, limit)
        blocks: list[bytes] = []
        at, left = _XERIAL_HEAD, limit
        while at < len(data):
            (length,) = struct.unpack_from(">i", data, at)
            if not 0 <= length <= len(data) - at - 4:
                raise CorruptMessage(f"a snappy block claims {length} bytes at byte {at}")
            blocks.append(_snappy_block(data[at + 4 : at + 4 + length], left))
            left -= len(blocks[-1])
            at += 4 + length
        return b"".join(blocks)
    except (cramjam.DecompressionError, struct.error) as error:
        raise CorruptMessage(f"the batch cannot be inflated: {error}") from error


def _snappy_block(block: memoryview, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > limit:
        raise _too_long(limit)
    found: Any = cramjam.snappy.decompress_raw(block)
    return bytes(found)
