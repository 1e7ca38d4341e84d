"""Pieces of Kafka's requests, by hand: for clients that no library would let send what they send."""

from __future__ import annotations

import struct


def frame(key: int, version: int, body: bytes, flexible: bool = False) -> bytes:
    head = struct.pack(">hhih", key, version, 0, -1) + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str) -> bytes:
    return struct.pack(f">h{len(value)}s", len(value), value.encode())


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def compact(value: str) -> bytes:
    return uvarint(len(value) + 1) + value.encode()


def array(count: int, elements: bytes) -> bytes:
    return struct.pack(">i", count) + elements
