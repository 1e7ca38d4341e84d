"""Record batches for tests: uncompressed, small, every byte known."""

from crc32c import crc32c

from kumquat.core.records.batch import CRC_FROM, HEAD, HEAD_SIZE, OVERHEAD, read_head

TIME = 1_700_000_000_000


def batch(
    *values: bytes, producer_id: int = -1, epoch: int = -1, first: int = -1, timestamp: int = TIME
) -> bytearray:
    """A batch as a client sends it: writable, base offset 0. `first`: the producer's sequence
    number."""
    records = b"".join(_record(number, value) for number, value in enumerate(values))
    size = HEAD_SIZE + len(records)
    head = HEAD.pack(
        0,
        size - OVERHEAD,
        -1,
        2,
        0,
        0,
        len(values) - 1,
        timestamp,
        timestamp,
        producer_id,
        epoch,
        first,
        len(values),
    )
    data = bytearray(head + records)
    data[17:21] = crc32c(data[CRC_FROM:]).to_bytes(4, "big")
    return data


def body(data: bytes | bytearray | memoryview) -> bytes:
    """What the broker must keep of a batch: all behind the fields that it stamps."""
    return bytes(data[16:])


def count_of(data: bytes | bytearray | memoryview) -> int:
    return read_head(data).record_count


def _record(offset_delta: int, value: bytes) -> bytes:
    fields = b"\0" + _varint(0) + _varint(offset_delta) + _varint(-1)
    fields += _varint(len(value)) + value + _varint(0)
    return _varint(len(fields)) + fields


def _varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
