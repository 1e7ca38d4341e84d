"""What the delay service keeps of a message, a delay id and a fill: plain data, without rules."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from kumquat.core.wheel.format import Tombstone

Key = tuple[int, int]
"""Due time and schedule id: the order of delivery."""
NameKey = tuple[int, bytes]
"""Subject id and delay id."""
Packed = tuple[int, int, int, int, int]
"""An entry of a schedule file as ENTRY unpacks it: due, schedule id, offset, length and flags, subject
id."""
ReadResult = bytes | str | OSError
"""A parked record; or what is wrong with it; or why it cannot be read at the moment."""
FRAME = 3
"""Numbers per frame in `recent`: position, payload length, subject id."""


class Unfiled(NamedTuple):
    """A parked message that no schedule file holds yet."""

    due: int
    schedule_id: int
    length: int
    subject_id: int
    named: bool


class Refiled(NamedTuple):
    """A message whose schedule file has another time for it than the one at which it is due."""

    filed: int
    due: int
    subject_id: int


class Remembered(NamedTuple):
    """A cancel or a move that came before its message."""

    until: int
    """For how long it waits."""
    new_due: int | None
    """None: it cancels."""


class Named(NamedTuple):
    """The message that a delay id names."""

    schedule_id: int
    due: int
    status: int
    """PENDING, or the outcome of a cancel."""


@dataclass(slots=True)
class Counters:
    """Since the start of the broker."""

    scheduled: int = 0
    delivered: int = 0
    cancelled: int = 0
    moved: int = 0
    dropped: int = 0
    """With their subject."""
    damaged: int = 0


@dataclass(slots=True)
class Fill:
    """What a schedule file is made of. It is collected on the event loop and used in a thread."""

    start: int
    end: int
    delivered_until: Key
    frames: array[int]
    gone: set[int]
    tombstones: list[Tombstone]
    names: dict[NameKey, Named]
    pending: dict[int, int]
    remembered: dict[NameKey, Remembered]
    done: set[int]
    done_until: int
    refiled: dict[int, Refiled] = field(default_factory=dict)
    """Added by the thread: messages that are filed under another time, by schedule id."""
    lost: list[Tombstone] = field(default_factory=list)
    """Added by the thread: messages that could not be filed."""
    unknown: set[int] = field(default_factory=set)
    """Positions of frames that could not be read before: nothing else is known of them."""
    found: list[tuple[int, NameKey]] = field(default_factory=list)
    """Added by the thread: the messages in those frames; the delay id is empty where there is none."""

    @property
    def is_empty(self) -> bool:
        return not (self.frames or self.tombstones or self.names)
