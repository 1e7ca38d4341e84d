"""The preamble of a segment, the state of every subject, in small steps (format.py says what it is for).

*Packing* comes before a roll. A subject's state is one frame, and to pack 200,000 producers into it at
once would stop the event loop for a third of a second. So subjects with many producers have them packed a
few at a time, and the segment is rolled when all are. *Preamble* comes after the roll: states are written
some at a time, between other frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kumquat.core.logs.messages.format import PREAMBLE_END
from kumquat.core.logs.messages.state import LogState
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.writer import Writer

MANY = 1_000
"""A subject with more producers has them packed ahead of a roll."""


class Packing:
    """As long as there is one, a roll is wanted."""

    def __init__(self, subjects: Iterable[Subject]) -> None:
        many = [s for s in subjects if s.producers and len(s.producers) > MANY]
        for subject in many:
            subject.pack([])  # who sends from here on counts as changed
        self._left = deque((s, list(s.producers or ())) for s in many)

    @property
    def done(self) -> bool:
        return not self._left

    def step(self, most: int) -> None:
        """Pack some more producers of one subject."""
        subject, producers = self._left[0]
        subject.pack(producers[-most:])
        del producers[-most:]
        if not producers:
            self._left.popleft()

    def stop(self) -> None:
        """The segment is rolled now: what is packed by half is not used."""
        for subject, _ in self._left:
            subject.packed = None


class Preamble:
    """What the active segment still lacks."""

    def __init__(self, subjects: list[Subject]) -> None:
        self._subjects = subjects
        self._at = 0

    def stage(self, writer: Writer, state: LogState, most: int) -> int:
        """Stage the states of the next subjects, and the end of the preamble behind the last; gives how
        many subjects that were."""
        chunk = self._subjects[self._at : self._at + most]
        for subject in chunk:
            if not subject.deleted and subject.generation != state.generation:
                writer.stage_state(subject)
        if self._at + len(chunk) == len(self._subjects):
            writer.stage(PREAMBLE_END, None, len(state.subjects))
        return len(chunk)

    def written(self, count: int) -> bool:
        """The write of these succeeded; whether they were the last."""
        self._at += count
        return self._at == len(self._subjects)
