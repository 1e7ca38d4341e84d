"""Inflates the records of a batch, in pieces and never beyond a bound; and compresses again.

The broker opens a batch only where it must look inside: for a delay header, for a search by time, to hand
out a part of it. A few hundred bytes can hold gigabytes, so nothing is inflated without a bound. `pieces`
gives PIECE bytes at a time and refuses the batch as soon as it passes `limit`: a search needs the memory of
one piece. `held` says, before any memory is taken, how much the codec itself will hold.

Formats: gzip, one member or several; lz4 and zstd frames, one or several; snappy, raw or in the blocks
that Java's and Python's clients wrap around it. Raw snappy cannot be inflated in steps, but a byte of it
never becomes more than 22. What can be read from the frames without inflating is in frames.py.

An error must not keep inflated bytes alive: it refers to the frames of the functions that it passed, and
those to their variables. So buffers are released before an error leaves a function here, and an error of a
codec is never chained to ours.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Final

import cramjam
import lz4.frame
import zstandard

from kumquat.core.errors import CorruptMessage, UnsupportedCompression, WouldBlock
from kumquat.core.records.frames import (
    GZIP,
    LEAST_WINDOW,
    LZ4,
    SNAPPY,
    ZSTD,
    bad,
    is_one_zstd_frame,
    snappy_blocks,
    snappy_held,
    too_long,
    zstd_blocks,
    zstd_window,
)

PIECE: Final = 256 << 10
LIGHT: Final = 128 << 10
"""What may be inflated on the event loop: it takes less than a millisecond."""
_FED: Final = 64 << 10
"""Codecs copy the part of their input that they have not used yet: they are given so much at a time."""

_LEAST_PIECE: Final = 16 << 10
"""A batch that announces less than it holds must not be inflated byte by byte."""
_LZ4_HELD = 9 << 20
"""The largest block of an lz4 frame (4 MiB), twice, and some more."""

Data = bytes | bytearray | memoryview


def pieces(codec: int, data: memoryview, limit: int, size: int = PIECE) -> Iterator[Data]:
    """The records of a batch, inflated, in pieces. A piece may be overwritten when the next is asked for.
    InvalidRecord: they would be longer than `limit`."""
    total = 0
    try:
        for piece in _pieces(codec, data, limit, size):
            total += len(piece)
            if total > limit:
                raise too_long(limit)
            yield piece
    finally:
        piece = b""


def _pieces(codec: int, data: memoryview, limit: int, size: int) -> Iterator[Data]:
    if codec == GZIP:
        return _gzip(data, size)
    if codec == SNAPPY:
        return _snappy(data, limit)
    if codec == LZ4:
        return _lz4(data, size)
    if codec == ZSTD:
        return _zstd(data, size)
    raise UnsupportedCompression(f"compression codec {codec} is unknown")


def inflate(
    codec: int, data: memoryview, limit: int, most: int | None = None
) -> bytes | memoryview:
    """All records of a batch at once. WouldBlock: they are longer than `most`."""
    if not codec:
        return data
    with BytesIO() as out:  # freed on failure, even if the error is kept
        for piece in pieces(codec, data, limit, PIECE if most is None else min(PIECE, most + 1)):
            out.write(piece)
            if most is not None and out.tell() > most:
                raise WouldBlock
        return out.getvalue()


def inflate_light(codec: int, data: memoryview, limit: int, announced: int) -> bytes | None:
    """All records of a batch that announces (frames.py) LIGHT bytes or fewer; None: they are more."""
    if codec == ZSTD:
        whole = _zstd_whole(data, announced)
        if whole is not None and len(whole) <= limit:
            return whole
    parts: list[bytes] = []
    left = LIGHT
    try:
        size = min(max(announced, _LEAST_PIECE), LIGHT) + 1
        for piece in _pieces(codec, data, limit, size):
            left -= len(piece)
            if left < 0:
                return None
            parts.append(bytes(piece))
        if LIGHT - left > limit:
            raise too_long(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        parts.clear()
        piece = b""


def held(codec: int, data: memoryview, limit: int) -> int:
    """How many bytes `pieces` holds at one time, at the most. Cheap: nothing is inflated for it."""
    if codec == SNAPPY:
        return snappy_held(data, limit)
    if codec == LZ4:
        return PIECE + _LZ4_HELD
    if codec == ZSTD:
        return PIECE + zstd_window(data)
    return 2 * PIECE


def compressed(codec: int, parts: Iterable[Data], level: int = -1) -> Iterator[Data]:
    """The parts, one behind the other, compressed: what any client that reads the codec can read. `level`
    is gzip's."""
    if codec == GZIP:
        deflater = zlib.compressobj(level, wbits=31)
        yield from map(deflater.compress, parts)
        yield deflater.flush()
    elif codec == SNAPPY:
        yield bytes(cramjam.snappy.compress_raw(b"".join(parts)))
    elif codec == LZ4:
        # Java reads no frames whose blocks depend on each other.
        with lz4.frame.LZ4FrameCompressor(block_linked=False) as framer:
            yield framer.begin()
            yield from map(framer.compress, parts)
            yield framer.flush()
    elif codec == ZSTD:
        squeezer = zstandard.ZstdCompressor().compressobj()
        yield from map(squeezer.compress, parts)
        yield squeezer.flush()
    else:
        yield from parts


def _fed(data: memoryview) -> Iterator[memoryview]:
    return (data[at : at + _FED] for at in range(0, len(data), _FED))


def _gzip(data: memoryview, size: int) -> Iterator[bytes]:
    inflater = zlib.decompressobj(wbits=31)
    for fed in _fed(data):
        left: Data = fed
        while left:
            if inflater.eof:  # another member follows
                inflater = zlib.decompressobj(wbits=31)
            try:
                piece = inflater.decompress(left, size)
            except zlib.error as error:
                raise bad(error) from None
            if piece:
                yield piece
            left = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        while not inflater.eof and (piece := _more(inflater, size)):
            yield piece
    if not inflater.eof:
        raise CorruptMessage("the gzip data of the batch ends too soon")


def _more(inflater: zlib._Decompress, size: int) -> bytes:
    """What the inflater still holds after it has used all of its input."""
    try:
        return inflater.decompress(b"", size)
    except zlib.error as error:
        raise bad(error) from None


def _lz4(data: memoryview, size: int) -> Iterator[bytes]:
    inflater = lz4.frame.LZ4FrameDecompressor()
    for fed in _fed(data):
        left: Data = fed
        while True:
            if inflater.eof and left:  # another frame follows
                inflater.reset()
            try:
                piece = inflater.decompress(left, max_length=size)
            except (RuntimeError, ValueError, EOFError) as error:
                raise bad(error) from None
            if piece:
                yield piece
            left = inflater.unused_data or b"" if inflater.eof else b""
            if not left and (inflater.eof or (inflater.needs_input and len(piece) < size)):
                break
    if not inflater.eof:
        raise CorruptMessage("the lz4 data of the batch ends too soon")


def _zstd(data: memoryview, size: int) -> Iterator[memoryview]:
    for _ in zstd_blocks(data):
        pass  # no frame is cut off
    window = zstd_window(data)
    spare = _spare.inflaters if window == LEAST_WINDOW else []
    inflater = spare.pop() if spare else zstandard.ZstdDecompressor(max_window_size=window)
    reader = inflater.stream_reader(data, read_across_frames=True)
    piece = memoryview(bytearray(size))
    try:
        while got := reader.readinto(piece):
            yield piece[:got]
    except zstandard.ZstdError as error:
        raise bad(error) from None
    finally:
        reader.close()  # type: ignore[no-untyped-call]
        spare.append(inflater)


def _zstd_whole(data: memoryview, size: int) -> bytes | None:
    """One frame of up to so many bytes, as every client writes it, in half the time that a reader takes.
    `data` is known to be whole. None: it is something else, and a reader has to say what."""
    if not data or not is_one_zstd_frame(data) or zstd_window(data) > LEAST_WINDOW:
        return None
    spare = _spare.inflaters
    inflater = spare.pop() if spare else zstandard.ZstdDecompressor(max_window_size=LEAST_WINDOW)
    try:
        return inflater.decompress(data, max_output_size=size)  # it would ignore further frames
    except zstandard.ZstdError:
        return None
    finally:
        spare.append(inflater)


class _Spare(threading.local):
    """Inflaters that are not in use: to make one costs as much as a small batch."""

    def __init__(self) -> None:
        self.inflaters: list[zstandard.ZstdDecompressor] = []


_spare = _Spare()


def _snappy(data: memoryview, limit: int) -> Iterator[memoryview]:
    left = limit
    for block, claimed in snappy_blocks(data, limit):
        left -= claimed
        if left < 0:
            raise too_long(limit)
        out = bytearray(claimed)
        try:
            got = cramjam.snappy.decompress_raw_into(block, out)
        except cramjam.DecompressionError as error:
            raise bad(error) from None
        yield memoryview(out)[:got]
