"""What lies in the action log, byte by byte. Format version 1; big-endian throughout.

The folder `actions/` holds segments, named after the position of their first byte, and little else:

    00000000000000000000.actions    frames, one behind the other
    synced                          how far the log is known to be synced
    unnamed.tmp                     a segment that is being begun, and does not count yet

A *position* counts bytes over the whole log, from 0, through all segments; it never goes back. A frame is
a header of 44 bytes and a payload, a JSON array of actions (core/delivery/actions.py) in ASCII:

    offset  size  field
    0       4     magic, aa "KQA"
    4       1     format version, 1
    5       1     kind, see below
    6       2     zero, room for flags
    8       4     payload length
    12      4     payload CRC-32C
    16      8     position of this frame: a header found elsewhere is not valid
    24      8     synced end as known when this frame was written: all below it was on disk
    32      8     when it was written, ms since the epoch
    40      4     CRC-32C of the 40 bytes before

    kind  name           payload
    1     ACTIONS        what was done, by one request: applied as a whole or not at all
    2     SNAPSHOT       the state of one group, or the slots given by some subjects, from nothing
    3     SEGMENT_START  the numbers given out
    4     SNAPSHOT_END   nothing

A segment begins with SEGMENT_START. Its *snapshot* is the state of every group that was there when it
began. It is written in chunks between other frames, so that rolling stops nobody; but a group's state
always stands before the first actions in the segment that name it, and SNAPSHOT_END says that all are
there. From then on this segment and its successors are enough. A segment is rolled only when its snapshot
is complete and synced; the one before is kept all the same, in case something in the snapshot rots.

The border between a tear and corruption is the message log's (format.py): whatever lies below the highest
synced end that any valid frame or the file `synced` names was on disk.

When a header is bad, the next frame is found by its magic. That is safe here and nowhere else: payloads
are ASCII and the magic begins with a byte that is not, so no payload can forge one.

The file `synced`: magic "KQS1" 4, zero 4, synced end 8, CRC-32C of the 16 bytes before 4. It is written
after each sync and never synced itself: it names only what was on disk already, and may be lost.

To change the format: raise VERSION, keep reading the old one in `actions/recovery.py`, say what changed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from kumquat.core.delivery.actions import Ack, Action, Commit, Pull, from_json, to_json

VERSION = 1
MAGIC = b"\xaaKQA"
SUFFIX = ".actions"
SYNCED_NAME = "synced"
UNNAMED = "unnamed.tmp"

HEADER = struct.Struct(">4sBBHIIqqqI")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 44
_UNSUMMED = struct.Struct(">4sBBHIIqqq")
_CRC = struct.Struct(">I")
assert _UNSUMMED.size + _CRC.size == HEADER_SIZE

_SYNCED_MAGIC = b"KQS1"
_SYNCED = struct.Struct(">4sIq")
SYNCED_SIZE = _SYNCED.size + _CRC.size
assert SYNCED_SIZE == 20

ACTIONS = 1
SNAPSHOT = 2
SEGMENT_START = 3
SNAPSHOT_END = 4

KIND_NAMES = {
    ACTIONS: "actions",
    SNAPSHOT: "snapshot",
    SEGMENT_START: "segment start",
    SNAPSHOT_END: "snapshot end",
}

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, check_circular=False).encode
_decode = json.JSONDecoder().raw_decode


class FrameHeader(NamedTuple):
    """The fields of a valid header, in the order of the format, without magic and checksum."""

    version: int
    kind: int
    length: int
    payload_crc: int
    position: int
    synced_end: int
    time: int

    @property
    def end(self) -> int:
        return self.position + HEADER_SIZE + self.length


def _encode_actions(actions: Sequence[Action]) -> str:
    if len(actions) == 1:  # By far the most frames are one of these, and all of it is numbers.
        action = actions[0]
        if type(action) is Pull:
            gid, subject_id, slot, pull, ranges = action
            return f'[["pull",{gid},{subject_id},{slot},{pull},{ranges}]]'
        if type(action) is Ack:
            gid, subject_id, slot, pull = action
            return f'[["ack",{gid},{subject_id},{slot},{pull}]]'
        if type(action) is Commit and action.metadata == "":
            gid, subject_id, sequence, epoch, _ = action
            return f'[["commit",{gid},{subject_id},{sequence},{epoch},""]]'
    return _encode([to_json(action) for action in actions])


def pack_frame(
    kind: int, actions: Sequence[Action], position: int, synced_end: int, now_ms: int
) -> bytes:
    payload = _encode_actions(actions).encode("ascii")
    head = _UNSUMMED.pack(
        MAGIC, VERSION, kind, 0, len(payload), crc32c(payload), position, synced_end, now_ms
    )
    return b"".join((head, _CRC.pack(crc32c(head)), payload))


def parse_header(data: bytes, at: int, position: int) -> FrameHeader | str:
    """The header at `at` of the data, which lies at `position` of the log; or why it is none."""
    if len(data) - at < HEADER_SIZE:
        return f"{max(0, len(data) - at)} bytes left, a frame header is {HEADER_SIZE}"
    magic, version, kind, _, length, payload, where, synced, time, crc = HEADER.unpack_from(
        data, at
    )
    if magic != MAGIC:
        return f"expected magic {MAGIC.hex()}, found {magic.hex()}"
    found = crc32c(data[at : at + HEADER_SIZE - 4])
    if found != crc:
        return f"expected header CRC {crc:#010x}, found {found:#010x}"
    if where != position:
        return f"the frame says it lies at {where}"
    return FrameHeader(version, kind, length, payload, where, synced, time)


def payload_damage(header: FrameHeader, payload: bytes) -> str | None:
    """What is wrong with a payload under a valid header; None when it is whole."""
    found = crc32c(payload)
    if found != header.payload_crc:
        return f"expected payload CRC {header.payload_crc:#010x}, found {found:#010x}"
    return None


def parse_actions(payload: bytes) -> list[Action]:
    """The payload of a frame whose CRC was right: it is trusted to be well formed."""
    return [from_json(array) for array in parse_arrays(payload)]


def parse_arrays(payload: bytes) -> list[list[Any]]:
    """Likewise, each action as it is stored."""
    found: list[list[Any]] = _decode(payload.decode("ascii"))[0]
    return found


def pack_synced(synced_end: int) -> bytes:
    head = _SYNCED.pack(_SYNCED_MAGIC, 0, synced_end)
    return head + _CRC.pack(crc32c(head))


def parse_synced(data: bytes) -> int:
    """The synced end; 0 when the file is not whole."""
    if len(data) < SYNCED_SIZE:
        return 0
    magic, _, synced_end = _SYNCED.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _SYNCED.size)
    if magic != _SYNCED_MAGIC or crc32c(data[: _SYNCED.size]) != crc:
        return 0
    return int(synced_end)
