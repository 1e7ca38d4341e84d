"""The head of a record batch (Kafka's format v2), read and written without opening its records.

    offset  size  field
    0       8     base offset                 stamped by us, outside the CRC
    8       4     length of what follows byte 12
    12      4     partition leader epoch      stamped by us, outside the CRC
    16      1     magic, 2
    17      4     CRC-32C of byte 21 to the end
    21      2     attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control
    23      4     last offset delta
    27      8     base timestamp
    35      8     max timestamp
    43      8     producer id                 -1: not idempotent
    51      2     producer epoch
    53      4     base sequence
    57      4     record count
    61            the records

Nothing here is per record. `check` reads the head, checks the CRC over the whole batch, and refuses a bad
batch with the error code that Kafka would use.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from kumquat.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTransactionState,
    UnsupportedCompression,
)

HEAD = struct.Struct(">qiibIhiqqqhii")
HEAD_SIZE = HEAD.size
assert HEAD_SIZE == 61

OVERHEAD = 12  # base offset and length: what the length field leaves out
CRC_FROM = 21
CURRENT_MAGIC = 2

LEAST_RECORD = 7  # bytes of a record without key, value and headers
MOST_COMPRESSED = (64 << 20) // LEAST_RECORD

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

STAMP = struct.Struct(">qii")  # base offset, length, leader epoch
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")
_TIMES = struct.Struct(">qq")


class BatchHead(NamedTuple):
    """The fields of a batch's head, in the order of the format."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def read_head(batch: bytes | bytearray | memoryview, at: int = 0) -> BatchHead:
    """The head as it stands, unchecked. `batch` must hold HEAD_SIZE bytes from `at`."""
    return BatchHead._make(HEAD.unpack_from(batch, at))


def check(batch: memoryview) -> BatchHead:
    """The head of a batch that a client wants to append, or the reason why it may not."""
    size = len(batch)
    if size < HEAD_SIZE:
        if size > 16 and batch[16] < CURRENT_MAGIC:
            raise InvalidRecord(_old_magic(batch[16]))
        raise InvalidRecord(f"{size} bytes are no whole batch: its head alone has {HEAD_SIZE}")
    fields = HEAD.unpack_from(batch)
    head: BatchHead = tuple.__new__(BatchHead, fields)
    if fields[3] != CURRENT_MAGIC:
        raise InvalidRecord(_old_magic(fields[3]))
    if fields[1] != size - OVERHEAD:
        raise _wrong_length(head, size)
    if crc32c(batch[CRC_FROM:]) != fields[4]:
        raise CorruptMessage(f"batch CRC is {crc32c(batch[CRC_FROM:]):#010x}, not {head.crc:#010x}")
    count = fields[12]
    if count < 1 or fields[6] != count - 1:
        raise InvalidRecord(
            f"a batch of {count} records has last offset delta {head.last_offset_delta}"
        )
    if count * LEAST_RECORD > size - HEAD_SIZE:
        _check_count(head, size)
    if fields[5] & 0x37:
        _check_attributes(head)
    if fields[9] >= 0 and (fields[10] < 0 or fields[11] < 0):
        raise InvalidRecord(
            f"producer {head.producer_id} sent epoch {head.producer_epoch} and "
            f"sequence {head.base_sequence}: neither may be negative"
        )
    return head


def _old_magic(magic: int) -> str:
    return f"message format {magic} is not served: use a client that writes format 2 (Kafka 0.11+)"


def _wrong_length(head: BatchHead, size: int) -> CorruptMessage | InvalidRecord:
    whole = head.length + OVERHEAD
    if whole < HEAD_SIZE:
        return CorruptMessage(f"the batch says {whole} bytes, its head alone has {HEAD_SIZE}")
    if whole < size:
        return InvalidRecord(f"{size - whole} bytes follow the batch: one batch a partition")
    return InvalidRecord(f"no whole batch: it says {whole} bytes, the request holds {size}")


def _check_count(head: BatchHead, size: int) -> None:
    """A batch of a few bytes must not take up millions of offsets. A compressed batch cannot be counted
    unless it is opened; it gets a bound that no honest batch comes near."""
    compressed = head.attributes & CODEC_MASK
    if not compressed or head.record_count > MOST_COMPRESSED:
        raise InvalidRecord(f"{head.record_count} records cannot be in a batch of {size} bytes")


def _check_attributes(head: BatchHead) -> None:
    if head.attributes & CONTROL:
        raise InvalidRecord("control batches are written by the broker alone")
    if head.attributes & TRANSACTIONAL:
        raise InvalidTransactionState("transactions are not served: the batch has that bit set")
    if head.attributes & CODEC_MASK > 4:
        raise UnsupportedCompression(f"compression codec {head.attributes & CODEC_MASK} is unknown")


def stamp(batch: memoryview, base_offset: int) -> None:
    """Write the base offset in place; the leader epoch is always 0. Both lie outside the CRC."""
    STAMP.pack_into(batch, 0, base_offset, len(batch) - OVERHEAD, 0)


def stamp_append_time(batch: memoryview, now_ms: int) -> int:
    """Turn the batch into one of log append time, in place. Returns its new CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, 21)
    _ATTRIBUTES.pack_into(batch, 21, attributes | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(batch, 35, now_ms)
    crc = crc32c(batch[CRC_FROM:])
    _CRC.pack_into(batch, 17, crc)
    return crc


def damage(batch: memoryview, base_offset: int) -> str | None:
    """What is wrong with a stored batch that should begin at `base_offset`; None when it is whole."""
    if len(batch) < HEAD_SIZE:
        return f"only {len(batch)} bytes, a batch head is {HEAD_SIZE}"
    fields = HEAD.unpack_from(batch)
    outside = (base_offset, len(batch) - OVERHEAD, 0, CURRENT_MAGIC)
    if fields[:4] != outside:
        return f"expected offset, length, leader epoch, magic {outside}, found {fields[:4]}"
    crc = crc32c(batch[CRC_FROM:])
    if crc != fields[4]:
        return f"expected CRC {fields[4]:#010x}, found {crc:#010x}"
    return None
