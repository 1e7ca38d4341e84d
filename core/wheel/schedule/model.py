"""What the schedule keeps of a message, a delay id and a fill: plain data. The rules are in schedule.py."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from kumquat.core.wheel.format import Tombstone

Key = tuple[int, int]
"""Due time and schedule id: the order of delivery."""
NameKey = tuple[int, bytes]
"""Subject id and delay id."""
FRAME = 3
"""Numbers per frame in `recent`: position, payload length, subject id."""


class Unfiled(NamedTuple):
    """A parked message that lies in the log alone."""

    due: int
    sid: int
    length: int
    subject_id: int
    named: bool


class Refiled(NamedTuple):
    """A message that is filed under another time than it is due at."""

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
    """The message that a delay id stands for."""

    sid: int
    due: int
    status: int


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
    """What a schedule file is to be made of; taken on the loop, used in a thread."""

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
    """Filled in by the thread: sids that are filed under another due time."""
    lost: list[Tombstone] = field(default_factory=list)
    """Filled in by the thread: messages that could not be filed."""
    unknown: set[int] = field(default_factory=set)
    """Positions of frames of which nothing else is known yet."""
    found: list[tuple[int, NameKey]] = field(default_factory=list)
    """Filled in by the thread: the messages in those, with no name where they have none."""

    @property
    def is_empty(self) -> bool:
        return not (self.frames or self.tombstones or self.names)
