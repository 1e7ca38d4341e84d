"""One wrong bit in a frame of the action log is found by its checksum, and put right.

A CRC is linear: which bit was flipped decides by how the checksum is off, whatever else the data holds, and
for CRC-32C no two bits of a frame give the same. So one flipped bit is not a loss. More than one looks like
a single one with a chance of bits : 2**32, and must leave actions that can be parsed besides. Nothing is
mended that is not known to have been synced: what a torn write leaves is cut off (replay.py).
"""

from __future__ import annotations

from crc32c import crc32c

from kumquat.core.logs.actions.format import (
    HEADER_SIZE,
    FrameHeader,
    parse_actions,
    parse_header,
    payload_damage,
)
from kumquat.core.logs.actions.scan import ActionFrames

_POLYNOMIAL = 0x82F63B78
"""Of CRC-32C, its bits reversed."""
_SUMMED = HEADER_SIZE - 4
"""Bytes of a header before its checksum."""
_MOST_BYTES = 1 << 20
"""Of a payload that is searched: that takes a second or two."""


def _byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ _POLYNOMIAL * (value & 1)
    return value


_TABLE = [_byte(value) for value in range(256)]


def wrong_bit(size: int, off: int) -> tuple[int, int] | None:
    """Which bit of `size` bytes is flipped, as byte and mask, if their CRC is off by `off` (the exclusive
    or of what it is and what it should be); None: it is not one bit alone."""
    effects = [_TABLE[1 << bit] for bit in range(8)]
    for at in range(size - 1, -1, -1):
        if off in effects:
            return at, 1 << effects.index(off)
        effects = [effect >> 8 ^ _TABLE[effect & 0xFF] for effect in effects]
    return None


def mended(frames: ActionFrames, position: int) -> tuple[FrameHeader, bytes, int] | None:
    """The frame at a position with one bit put right, and in which byte of the log that is; None when that
    does not make it whole."""
    window, at = frames.window(position)
    data = bytearray(window[at : at + HEADER_SIZE])
    if len(data) < HEADER_SIZE or frames.unreadable(position, position + HEADER_SIZE):
        return None
    header, wrong = frames.header_at(position), -1
    if isinstance(header, str):
        wrong = _mend_header(data)
        if wrong < 0:
            return None
        header = parse_header(bytes(data), 0, position)
    if isinstance(header, str) or header.end > frames.end:
        return None
    payload = frames.payload_of(header)
    if frames.unreadable(position, header.end):
        return None
    if payload_damage(header, payload) is not None:
        if wrong >= 0 or len(payload) > _MOST_BYTES:
            return None
        found = wrong_bit(len(payload), crc32c(payload) ^ header.payload_crc)
        if found is None:
            return None
        fixed = bytearray(payload)
        fixed[found[0]] ^= found[1]
        payload, wrong = bytes(fixed), HEADER_SIZE + found[0]
    try:
        parse_actions(payload)
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return header, payload, position + wrong


def _mend_header(data: bytearray) -> int:
    """Put one bit of a header right, and give in which byte it was; -1: it is not one bit alone."""
    off = crc32c(data[:_SUMMED]) ^ int.from_bytes(data[_SUMMED:], "big")
    found = wrong_bit(_SUMMED, off)
    if found is not None:
        data[found[0]] ^= found[1]
        return found[0]
    if off.bit_count() != 1:
        return -1
    data[_SUMMED:] = crc32c(data[:_SUMMED]).to_bytes(4, "big")
    return _SUMMED + 3 - (off.bit_length() - 1) // 8
