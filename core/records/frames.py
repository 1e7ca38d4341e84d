"""What a compressed batch says about itself, read from its frames; nothing is inflated here.

`announced` says how long the records of a batch will be. By it the broker chooses where to inflate them: on
the event loop, in a thread, or in the one thread for the largest (look.py, core/inflation.py). What an
honest encoder writes inflates to no more, or with lz4 seldom to more:

    gzip    the length stands behind the data (one member: no client writes several)
    snappy  the length stands before each block
    lz4     the length stands in the frame's head, or else there are so many blocks of a known largest size.
            Go's clients name the largest size there is, 4 MiB, whatever they write. So a block counts as
            four times its compressed length, or 64 KiB if that is more
    zstd    likewise; a block inflates to 128 KiB at the most

A batch may inflate to more than it announces: it has lied, or is an lz4 batch of large blocks that compress
well. Inflating always has a bound, so that is found there, and the batch is begun again where it belongs.

What a codec checks itself is not checked here: the codec's error says more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import cramjam
import zstandard

from kumquat.core.errors import CorruptMessage, InvalidRecord

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

UNKNOWN: Final = 1 << 62
_MOST_BLOCKS = 256
"""What more blocks inflate to is not added up: a hostile batch may have hundreds of thousands, and this
runs on the event loop. An honest batch of 8 MiB has 256, if they are of 32 KiB."""

_LONGEST_HEAD = 18
"""Bytes of the head of a zstd frame."""
LEAST_WINDOW: Final = 8 << 20
_LARGEST_WINDOW = 1 << 27
_ZSTD_BLOCK = 128 << 10
_RLE, _COMPRESSED = 1, 2
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)

_LZ4_HEAD = struct.Struct("<IBB")
_LZ4_MAGIC = 0x184D2204
_LZ4_DICTIONARY, _LZ4_SUM, _LZ4_SIZE_KNOWN, _LZ4_BLOCK_SUMS = 0x01, 0x04, 0x08, 0x10
_LZ4_PLAIN = 1 << 31
"""Set in the length of a block that is not compressed."""
_LZ4_SMALL = 64 << 10
_LZ4_RATIO = 4
"""How many times its compressed length a block of more than 64 KiB has, as a rule."""

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = len(_XERIAL) + 8
_MOST_SNAPPY = 22
"""A byte of raw snappy never becomes more."""

_UINT = struct.Struct("<I")
_LONG = struct.Struct("<Q")


def announced(codec: int, data: memoryview, limit: int) -> int:
    """How many bytes the records will be, if the batch is honest; UNKNOWN: it has too many blocks to say.
    CorruptMessage, InvalidRecord: it certainly cannot be inflated, or not to `limit` bytes or fewer."""
    if codec == GZIP:
        return int.from_bytes(data[-4:], "little")
    if codec == SNAPPY:
        sizes: Iterable[int] = (claimed for _, claimed in snappy_blocks(data, limit))
    elif codec == LZ4:
        sizes = _lz4_blocks(data)
    else:
        sizes = zstd_blocks(data)
    total = 0
    for count, size in enumerate(sizes):
        if count == _MOST_BLOCKS:
            return UNKNOWN
        total += size
    return total


def too_long(limit: int) -> InvalidRecord:
    return InvalidRecord(f"the batch inflates to more than max.decompressed.bytes ({limit})")


def bad(reason: object) -> CorruptMessage:
    return CorruptMessage(f"the batch cannot be inflated: {reason}")


# --- zstd ---------------------------------------------------------------------------------------


def zstd_window(data: memoryview) -> int:
    """The window that the first frame needs, but no less than every reader has to offer, and bounded.
    No other frame of the batch gets more."""
    try:
        asked = zstandard.get_frame_parameters(data[:_LONGEST_HEAD]).window_size
    except zstandard.ZstdError:
        asked = 0
    return min(max(asked, LEAST_WINDOW), _LARGEST_WINDOW)


def zstd_blocks(data: memoryview) -> Iterator[int]:
    """What each block inflates to, at the most. CorruptMessage: a frame is cut off, which zstd's reader
    would take for the end. Blocks are passed over by their sizes."""
    at = 0
    try:
        while at < len(data):
            (magic,) = _UINT.unpack_from(data, at)
            if magic in _SKIPPABLE:
                at += 8 + int(_UINT.unpack_from(data, at + 4)[0])
                yield 0
                continue
            head = data[at : at + _LONGEST_HEAD]
            at += zstandard.frame_header_size(head)
            parameters = zstandard.get_frame_parameters(head)
            known = parameters.content_size != zstandard.CONTENTSIZE_UNKNOWN
            if known:
                yield parameters.content_size
            last = 0
            while not last:
                last, kind, size, at = _zstd_block(data, at)
                yield 0 if known else _ZSTD_BLOCK if kind == _COMPRESSED else size
            at += 4 if parameters.has_checksum else 0
    except (zstandard.ZstdError, struct.error, IndexError) as error:
        raise bad(error) from None
    if at != len(data):
        raise CorruptMessage("the zstd data of the batch ends too soon")


def is_one_zstd_frame(data: memoryview) -> bool:
    """Whether data that `zstd_blocks` found whole is one frame, with nothing behind it."""
    (magic,) = _UINT.unpack_from(data)
    if magic in _SKIPPABLE:
        return False
    head = data[:_LONGEST_HEAD]
    at, last = zstandard.frame_header_size(head), 0
    while not last:
        last, _, _, at = _zstd_block(data, at)
    return at + (4 if zstandard.get_frame_parameters(head).has_checksum else 0) == len(data)


def _zstd_block(data: memoryview, at: int) -> tuple[int, int, int, int]:
    """Whether a block is the last of its frame, its kind and size, and where the next begins."""
    block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
    kind, size = block >> 1 & 3, block >> 3
    return block & 1, kind, size, at + 3 + (1 if kind == _RLE else size)


# --- lz4 ----------------------------------------------------------------------------------------


def _lz4_blocks(data: memoryview) -> Iterator[int]:
    """What each block inflates to, at the most; of a large block what is likely."""
    at = 0
    try:
        while at < len(data):
            magic, flags, sizes = _LZ4_HEAD.unpack_from(data, at)
            if magic in _SKIPPABLE:
                at += 8 + int(_UINT.unpack_from(data, at + 4)[0])
                yield 0
                continue
            if magic != _LZ4_MAGIC:
                return
            known = flags & _LZ4_SIZE_KNOWN
            if known:
                yield _LONG.unpack_from(data, at + _LZ4_HEAD.size)[0]
            largest = 1 << 2 * (sizes >> 4 & 7) + 8  # 4: 64 KiB … 7: 4 MiB
            at += _LZ4_HEAD.size + 1 + (8 if known else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
            while length := int(_UINT.unpack_from(data, at)[0]):
                plain, size = length & _LZ4_PLAIN, length & ~_LZ4_PLAIN
                at += 4 + size + (4 if flags & _LZ4_BLOCK_SUMS else 0)
                likely = min(largest, max(_LZ4_SMALL, _LZ4_RATIO * size))
                yield 0 if known else size if plain else likely
            at += 4 + (4 if flags & _LZ4_SUM else 0)
    except struct.error:
        return  # the codec will say that it is cut off


# --- snappy -------------------------------------------------------------------------------------


def snappy_held(data: memoryview, limit: int) -> int:
    """What inflating it takes, at the most: it cannot be done in steps."""
    return min(limit, _MOST_SNAPPY * len(data))


def snappy_blocks(data: memoryview, limit: int) -> Iterator[tuple[memoryview, int]]:
    """Each block, and what it says to inflate to. Raw snappy is one block; what Java's and Python's clients
    wrap around it has a head (magic, two version ints) and then blocks behind their lengths."""
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        yield data, _snappy_claim(data, limit)
        return
    at = _XERIAL_HEAD
    if at > len(data):
        raise CorruptMessage("the snappy data of the batch ends too soon")
    while at < len(data):
        try:
            (length,) = struct.unpack_from(">i", data, at)
        except struct.error as error:
            raise bad(error) from None
        if not 0 <= length <= len(data) - at - 4:
            raise CorruptMessage(f"a snappy block claims {length} bytes at byte {at}")
        block = data[at + 4 : at + 4 + length]
        yield block, _snappy_claim(block, limit)
        at += 4 + length


def _snappy_claim(block: memoryview, limit: int) -> int:
    try:
        claimed = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise bad(error) from None
    if claimed > limit:
        raise too_long(limit)
    if claimed > _MOST_SNAPPY * len(block):
        raise CorruptMessage(f"{len(block)} bytes of snappy claim to inflate to {claimed}")
    return claimed
