"""What lies in the message log, byte by byte. Format version 1; big-endian throughout.

The folder `messages/` holds, for each segment, named after the position of its first byte:

    00000000000000000000.log         frames, one behind the other
    00000000000000000000.checkpoint  which frames of the active segment are synced (checkpoint.py)
    00000000000000000000.index       the consume log of a sealed segment (index.py)
    00000000000000000000.keys        the keys of a sealed segment, where an index is wanted (keys/)

A *position* counts bytes over the whole log, from 0, through all segments; it never goes back. A frame
is a header of 60 bytes and a payload:

    offset  size  field
    0       4     magic "KQF1"
    4       1     format version, 1
    5       1     kind, see below
    6       2     flags: 1, JOINED: valid only together with the frame behind it
    8       4     subject id, 0 where there is none
    12      4     payload length
    16      4     how many sequences the payload takes
    20      4     payload CRC-32C; for a batch, the batch's own CRC field
    24      8     base sequence (its meaning is the kind's, see below)
    32      8     store time, ms since the epoch
    40      8     position of this frame: a header found elsewhere is not valid
    48      8     synced end as known when this frame was written: all below it was on disk
    56      4     CRC-32C of the 56 bytes before

Kinds, what `base sequence` says, and the payload:

     1  MESSAGES         first sequence            a record batch v2, base offset stamped
     2  PARKED           next sequence             messages for later (parked.py, as the next two)
     3  CANCEL           next sequence             what was to be cancelled or moved, and the outcome
     4  DELIVERED        next sequence             schedule ids of the messages in the frame behind
     5  SETTLES          next sequence             what the messages in the frame behind settle (settles.py)
     6  SUBJECT_CREATED  0                         subject state, without producers
     7  SUBJECT_DELETED  next sequence             nothing
     8  EARLIEST_RAISED  the new earliest          nothing
     9  PRODUCER_IDS     ceiling: ids below may have been given out      nothing
    10  SEGMENT_START    producer-id ceiling       next subject id 4, cluster id 22 (ASCII)
    11  SUBJECT_STATE    next sequence             subject state
    12  PREAMBLE_END     number of live subjects   nothing

A segment begins with SEGMENT_START. Its *preamble* is the SUBJECT_STATE of every subject that was alive
when it began. It is written in chunks between other frames, so that rolling stops nobody; but a
subject's state always stands before the first frame in the segment that touches it, and PREAMBLE_END
says that all are there. From then on this segment and its successors are enough to know every subject,
its next sequence, its earliest sequence and its producers: older segments may go. A segment is rolled
only when its preamble is complete, so the two newest are always enough to start.

Subject state: topic id 16, earliest 8, name length 2, producer count 4, the name; then for each
producer: id 8, epoch 2, batch count 1, and for each of its last five batches: first sequence number 4,
last 4, base sequence 8, store time 8. A producer may be there more than once: its last entry counts.

The border between a tear and corruption: whatever lies below the highest synced end that any valid
frame or checkpoint names was on disk, so a bad frame there is corruption (kept, reported, never
served). The first bad frame above it is where the last process was cut off: all from there on goes, if
the disk can read it.

To change the format: raise VERSION, keep reading the old one in `recovery.py`, say here what changed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from kumquat.core.records.batch import HEAD

VERSION = 1
MAGIC = b"KQF1"

HEADER = struct.Struct(">4sBBHIIIIqqqqI")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 60
HEADER_AND_HEAD = struct.Struct(HEADER.format + HEAD.format[1:])
"""A frame of messages up to the records: its header, and the head of the batch behind it."""
_UNSUMMED = struct.Struct(">4sBBHIIIIqqqq")
_CHECKSUM = struct.Struct(">I")
assert _UNSUMMED.size + _CHECKSUM.size == HEADER_SIZE

MESSAGES = 1
PARKED = 2
CANCEL = 3
DELIVERED = 4
SETTLES = 5
SUBJECT_CREATED = 6
SUBJECT_DELETED = 7
EARLIEST_RAISED = 8
PRODUCER_IDS = 9
SEGMENT_START = 10
SUBJECT_STATE = 11
PREAMBLE_END = 12

KIND_NAMES = {
    MESSAGES: "messages",
    PARKED: "parked",
    CANCEL: "cancel",
    DELIVERED: "delivered",
    SETTLES: "settles",
    SUBJECT_CREATED: "subject created",
    SUBJECT_DELETED: "subject deleted",
    EARLIEST_RAISED: "earliest raised",
    PRODUCER_IDS: "producer ids",
    SEGMENT_START: "segment start",
    SUBJECT_STATE: "subject state",
    PREAMBLE_END: "preamble end",
}

DELAYED = (PARKED, CANCEL, DELIVERED)
"""The kinds that the delay service lives on."""

JOINED = 1

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
KEYS_SUFFIX = ".keys"
CHECKPOINT_SUFFIX = ".checkpoint"

_STATE = struct.Struct(">16sqHI")
_PRODUCER = struct.Struct(">qhB")
_BATCH = struct.Struct(">iiqq")
_SEGMENT_START = struct.Struct(">I22s")


class FrameHeader(NamedTuple):
    """The fields of a valid header, in the order of the format, without magic and checksum."""

    version: int
    kind: int
    subject_id: int
    length: int
    sequences: int
    payload_crc: int
    base_sequence: int
    store_time: int
    position: int
    synced_end: int
    flags: int = 0

    @property
    def end(self) -> int:
        return self.position + HEADER_SIZE + self.length


class ProducerBatch(NamedTuple):
    """A remembered batch of an idempotent producer."""

    first: int
    last: int
    base_sequence: int
    store_time: int
    end: int  # position behind its frame: known synced below the synced end


@dataclass(slots=True)
class PackedProducers:
    """Producers that were packed ahead, in chunks."""

    chunks: list[bytes]
    count: int
    """How many there are in the chunks."""
    changed: set[int]
    """Those that have sent since the packing began."""


class SubjectState(NamedTuple):
    """What a SUBJECT_STATE frame says beside its header."""

    topic_id: bytes
    earliest: int
    name: str
    producers: dict[int, tuple[int, tuple[ProducerBatch, ...]]]


def pack_header(
    kind: int,
    subject_id: int,
    length: int,
    sequences: int,
    payload_crc: int,
    base_sequence: int,
    store_time: int,
    position: int,
    synced_end: int,
    flags: int = 0,
) -> bytes:
    head = _UNSUMMED.pack(
        MAGIC,
        VERSION,
        kind,
        flags,
        subject_id,
        length,
        sequences,
        payload_crc,
        base_sequence,
        store_time,
        position,
        synced_end,
    )
    return head + _CHECKSUM.pack(crc32c(head))


def parse_header(data: bytes | memoryview, at: int, position: int) -> FrameHeader | str:
    """The header at `at` of the data, which lies at `position` of the log; or why it is none."""
    if len(data) - at < HEADER_SIZE:
        return f"{max(0, len(data) - at)} bytes left, a frame header is {HEADER_SIZE}"
    (
        magic,
        version,
        kind,
        flags,
        subject_id,
        length,
        count,
        payload,
        base,
        stored,
        where,
        synced,
        crc,
    ) = HEADER.unpack_from(data, at)
    if magic != MAGIC:
        return f"expected magic {MAGIC.hex()}, found {magic.hex()}"
    found = crc32c(data[at : at + HEADER_SIZE - 4])
    if found != crc:
        return f"expected header CRC {crc:#010x}, found {found:#010x}"
    if where != position:
        return f"the frame says it lies at {where}"
    return FrameHeader(
        version, kind, subject_id, length, count, payload, base, stored, where, synced, flags
    )


def pack_producer(producer_id: int, state: tuple[int, tuple[ProducerBatch, ...]]) -> bytes:
    epoch, batches = state
    packed = [_BATCH.pack(b.first, b.last, b.base_sequence, b.store_time) for b in batches]
    return _PRODUCER.pack(producer_id, epoch, len(batches)) + b"".join(packed)


def pack_subject_state(state: SubjectState, packed: PackedProducers | None = None) -> bytes:
    """`packed`: producers that were packed before."""
    name, producers = state.name.encode(), state.producers
    before, chunks = 0, list[bytes]()
    if packed is not None:
        before, chunks = packed.count, packed.chunks
        producers = {p: producers[p] for p in packed.changed if p in producers}
    parts = [
        _STATE.pack(
            state.topic_id,
            state.earliest,
            len(name),
            before + len(producers),
        ),
        name,
        *chunks,
    ]
    parts += [pack_producer(producer_id, known) for producer_id, known in producers.items()]
    return b"".join(parts)


def parse_subject_state(payload: bytes | memoryview) -> SubjectState:
    """The payload of a frame whose CRC was right: it is trusted to be well formed."""
    topic_id, earliest, name_length, count = _STATE.unpack_from(payload)
    at = _STATE.size + name_length
    name = bytes(payload[_STATE.size : at]).decode()
    producers: dict[int, tuple[int, tuple[ProducerBatch, ...]]] = {}
    for _ in range(count):
        producer_id, epoch, batch_count = _PRODUCER.unpack_from(payload, at)
        at += _PRODUCER.size
        end = at + batch_count * _BATCH.size
        batches = tuple(
            ProducerBatch(first, last, base, stored, 0)
            for first, last, base, stored in _BATCH.iter_unpack(payload[at:end])
        )
        producers[producer_id] = (epoch, batches)
        at = end
    return SubjectState(topic_id, earliest, name, producers)


def pack_segment_start(next_subject_id: int, cluster_id: str) -> bytes:
    return _SEGMENT_START.pack(next_subject_id, cluster_id.encode())


def parse_segment_start(payload: bytes | memoryview) -> tuple[int, str]:
    next_subject_id, cluster_id = _SEGMENT_START.unpack(payload)
    return next_subject_id, cluster_id.rstrip(b"\0").decode()
