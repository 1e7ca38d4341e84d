"""The keys of a batch, and nothing else of it: for an index over millions of them.

A record is read up to its key, and the next one is found by its length. Values and headers are neither
looked at nor copied: a quarter of the time that whole records take. What a client wrote may be garbage, so
every length is checked against what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kumquat.core.errors import InvalidRecord
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, read_head
from kumquat.core.records.compression import Data, pieces
from kumquat.core.records.records import doubled_varint, signed


def keys_of(batch: memoryview, limit: int) -> Iterator[tuple[int, bytes]]:
    """Offset and key of each record that has one (an empty one is one), in order; InvalidRecord where the
    batch is not what it says. A compressed one is inflated piece by piece."""
    head = read_head(batch)
    codec, data = head.attributes & CODEC_MASK, batch[HEAD_SIZE:]
    found: Iterable[Data] = pieces(codec, data, limit) if codec else (data,)
    base, left, rest = head.base_offset, head.record_count, b""
    for piece in found:
        have = rest + bytes(piece)
        size, at = len(have), 0
        while left:
            try:  # what breaks off here may go on in the next piece
                doubled, begin = doubled_varint(have, at)
                end = begin + (doubled >> 1)
                if end > size and not doubled & 1:
                    break
                _, after = doubled_varint(have, begin + 1)
                delta, after = doubled_varint(have, after)
                length, after = doubled_varint(have, after)
            except IndexError:
                break
            if doubled & 1 or after > end:
                raise InvalidRecord(f"a record at byte {at} of its piece breaks off or is garbled")
            if not length & 1:
                behind = after + (length >> 1)
                if behind > end:
                    raise InvalidRecord(f"a key claims {length >> 1} bytes, {end - after} are left")
                yield base + signed(delta), have[after:behind]
            left -= 1
            at = end
        if not left:
            return
        rest = have[at:]
    raise InvalidRecord(f"{left} of {head.record_count} records are missing, or break off")
