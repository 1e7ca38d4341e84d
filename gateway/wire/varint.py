"""Unsigned varints: seven bits a byte, low group first, the high bit set on all but the last.

Kafka's are 32 bits wide: five bytes at the most. Lengths, counts, tags and sizes all fit in 31
bits, so anything larger is refused here. Overlong forms (a zero written in two bytes) are accepted,
as Kafka accepts them. Generated code handles one-byte values inline and calls these for the rest.
"""

from kumquat.gateway.wire.errors import WireError

MAX_VALUE = 0x7FFFFFFF
ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """The value at `pos` and the position after it."""
    first = buf[pos]
    if first < 128:
        return first, pos + 1
    return finish_uvarint(buf, pos + 1, first)


def finish_uvarint(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """The same, when the first byte has been read already and has its high bit set."""
    byte = buf[pos]
    value = first + (byte - 1 << 7)
    if byte < 128:
        return value, pos + 1
    byte = buf[pos + 1]
    value += byte - 1 << 14
    if byte < 128:
        return value, pos + 2
    byte = buf[pos + 2]
    value += byte - 1 << 21
    if byte < 128:
        return value, pos + 3
    byte = buf[pos + 3]
    value += byte - 1 << 28
    if byte > 127:
        raise WireError("varint of more than five bytes")
    if value > MAX_VALUE:
        raise WireError(f"varint {value} is over 31 bits")
    return value, pos + 4


def uvarint(value: int) -> bytes:
    """The shortest form of `value`."""
    if value < 128:
        return ONE_BYTE[value]
    if value < 16384:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
