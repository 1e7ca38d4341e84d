"""What decisions of the delay service ask for: plain data, which the shell carries out (../shell.py).

A decision changes nothing. If the append that it asks for fails, all is as it was before.
"""

from __future__ import annotations

from typing import NamedTuple

from kumquat.core.logs.messages.parked import CancelItem, Origin
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.wheel.schedule.entries import Entry

NEVER = 1 << 62
"""A due time at which nothing has to be woken."""


class Parking(NamedTuple):
    """Messages are parked, cancelled or moved, and plain records stored, for one subject in one write."""

    subject: Subject
    origin: Origin
    """The producer's batch that it comes from."""
    parked: bytes
    """Parked records, one behind the other."""
    cancels: list[CancelItem]
    plain: bytearray | None
    """A batch of the records that are not delayed."""
    wake_at: int
    """The earliest due time of what is parked: the deliverer must be awake by then."""


class Append(NamedTuple):
    """One batch of a delivery."""

    subject: Subject
    schedule_ids: bytes
    """The schedule ids of its messages, packed."""
    batch: bytearray | None
    """None: these messages are damaged. They are written off, and nothing is delivered for them."""


class Damaged(NamedTuple):
    entry: Entry
    subject: str
    reason: str


class Delivery(NamedTuple):
    """Messages that are due, all delivered in one write."""

    entries: list[Entry]
    """Their entries, in order of delivery. Those of deleted subjects are among them."""
    appends: list[Append]
    damaged: list[Damaged]
