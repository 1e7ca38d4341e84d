"""What a start reports about damage: each place once, however many frames it holds.

Damaged frames that lie one behind the other are one place. The report names the file, the position, what
was expected and found, how many frames the place holds and which messages are lost. Nothing is logged
before it is clear from which segment the log is read.

The end of the log may be missing as a whole: the checkpoint knows of more synced frames than the file
has. A copy that was made while the broker ran looks like this (the log was copied first, its checkpoint
later), and so does a disk that has lost data. Only the operator knows which of the two it is, so the
report names both.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from kumquat.core.logs.disk.segment_file import MISSING
from kumquat.core.logs.messages.segment import Segment

log = logging.getLogger("kumquat.log")

MOST_PLACES = 20
MOST_SUBJECTS = 10


@dataclass(slots=True)
class _Place:
    segment: Segment
    begin: int
    end: int
    bad: str
    missing: bool
    frames: int = 0
    messages: dict[str, list[int]] = field(default_factory=dict)
    """By subject: first sequence, last, and how many."""


class DamageReport:
    def __init__(self) -> None:
        self._places: list[_Place] = []

    def __bool__(self) -> bool:
        return bool(self._places)

    def continues(self, segment: Segment, position: int) -> bool:
        """Whether damage at this position belongs to the place that was met last."""
        last = self._places[-1] if self._places else None
        return last is not None and last.segment is segment and last.end == position

    def add(self, segment: Segment, position: int, bad: str, *, missing: bool = False) -> None:
        """A bad frame. `missing`: nothing follows it in the file."""
        if not self.continues(segment, position):
            self._places.append(_Place(segment, position, position, bad, missing))
        self._places[-1].frames += 1

    def reaches(self, end: int) -> None:
        """The frame that was added last ends there."""
        self._places[-1].end = end

    def lost(self, subject: str, first: int, count: int) -> None:
        """The frame that was added last held these messages, and they cannot be read."""
        known = self._places[-1].messages.setdefault(subject, [first, first, 0])
        known[1] = first + count - 1
        known[2] += count

    def write(self) -> None:
        for place in self._places[:MOST_PLACES]:
            log.error("%s", _text(place))
        if len(self._places) > MOST_PLACES:
            log.error("… and %d more damaged places", len(self._places) - MOST_PLACES)
        self._places = []


def _text(place: _Place) -> str:
    segment, begin = place.segment, place.begin
    bad = MISSING.format(end=place.end) if place.missing else place.bad
    parts = [
        f"{segment.path}: corruption at position {begin} (byte {begin - segment.base} of the file): {bad}"
    ]
    if place.frames > 1:
        parts.append(f"{place.frames} frames up to position {place.end}")
    if place.messages:
        lost = [
            f"{name!r} {first} to {last} ({count})"
            for name, (first, last, count) in list(place.messages.items())[:MOST_SUBJECTS]
        ]
        more = len(place.messages) - MOST_SUBJECTS
        others = f" and {more} more subjects" if more > 0 else ""
        parts.append(f"messages that cannot be read: {', '.join(lost)}{others}")
    return "; ".join(parts)
