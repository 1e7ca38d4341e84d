"""Compressed data as clients write it: every codec, in each of its framings."""

import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import zstandard

from kumquat.core.records.frames import GZIP, LZ4, SNAPPY, ZSTD


def _gzip(data: bytes) -> bytes:
    return zlib.compress(data, wbits=31)


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _snappy_blocks(data: bytes) -> bytes:
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), 32 << 10):
        block = _snappy(data[at : at + (32 << 10)])
        out += struct.pack(">i", len(block)) + block
    return out


def _lz4(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data))


def _lz4_alone(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))


def _lz4_large(data: bytes) -> bytes:
    """As Go writes it: blocks of up to 4 MiB, whatever is in them."""
    with lz4.frame.LZ4FrameCompressor(block_size=7, block_linked=False) as framer:
        return bytes(framer.begin() + framer.compress(data) + framer.flush())


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def _zstd_stream(data: bytes) -> bytes:
    """As Java writes it: the size is not said before."""
    stream = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return stream.compress(data) + stream.flush()


def _twice(write: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: write(data[: len(data) // 3]) + write(data[len(data) // 3 :])


WRITERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, _gzip),
    "gzip in two members": (GZIP, _twice(_gzip)),
    "snappy": (SNAPPY, _snappy),
    "snappy in blocks": (SNAPPY, _snappy_blocks),
    "lz4": (LZ4, _lz4),
    "lz4 with independent blocks": (LZ4, _lz4_alone),
    "lz4 in large blocks": (LZ4, _lz4_large),
    "lz4 in two frames": (LZ4, _twice(_lz4)),
    "zstd": (ZSTD, _zstd),
    "zstd as a stream": (ZSTD, _zstd_stream),
    "zstd in two frames": (ZSTD, _twice(_zstd)),
}
