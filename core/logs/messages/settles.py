"""What a SETTLES frame carries, byte by byte, and who is told of it; big-endian. See format.py for frames.

A message that was delivered for a group may end as a new message elsewhere: as a dead letter, or back in
its subject when a dead letter is redriven. The new message lies in the message log, what the group has
done lies in the action log, and the two are replayed apart. So the message log holds the truth: a SETTLES
frame, joined to the frame of messages behind it, names what those messages settle. A cut leaves both or
none. The action log follows once both are durable.

The payload is items, one behind the other:

    type 1         1: a range of messages of a group
    group id 8     as the action log numbers groups
    subject id 4   whose messages these are
    first 8        the first sequence
    size 4         how many

Other types may follow (a transaction commits positions); a log that holds a type this version does not
know is not opened. `base sequence` of the frame is the next sequence of the subject that it is written to,
`subject id` that subject.

The log does not know what is settled. After a start it passes each whole SETTLES frame from the
listener's `replay_from` on to a `SettleListener`; so replay begins no later than there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple, Protocol

RANGE = 1
ITEM = struct.Struct(">BqIqI")
ITEM_SIZE = ITEM.size
assert ITEM_SIZE == 25


class Settled(NamedTuple):
    """Messages that a group is done with."""

    gid: int
    subject_id: int
    first: int
    size: int


class UnknownItem(Exception):
    """An item of a type that this version does not know."""


class SettleListener(Protocol):
    @property
    def replay_from(self) -> int | None:
        """Frames below this position are known already. None: there can be no frame that is not."""

    def begin_replay(self) -> None:
        """Replay begins, perhaps once more: forget what was passed."""

    def settled(self, items: list[Settled], end: int) -> None:
        """A whole frame was read back, which ends at `end`."""

    def damaged(self, subject_id: int, position: int, length: int) -> None:
        """A frame was there, and is lost."""

    def keep_from(self) -> int:
        """Segments that end above this position must stay."""


def pack_settles(items: Iterable[Settled]) -> bytes:
    pack = ITEM.pack
    return b"".join([pack(RANGE, *item) for item in items])


def settles_of(payload: bytes | memoryview) -> list[Settled]:
    """The items of a frame whose CRC was right."""
    items, at = list[Settled](), 0
    while at < len(payload):
        if payload[at] != RANGE:
            raise UnknownItem(f"an item of type {payload[at]}")
        _, gid, subject_id, first, size = ITEM.unpack_from(payload, at)
        items.append(Settled(gid, subject_id, first, size))
        at += ITEM_SIZE
    return items
