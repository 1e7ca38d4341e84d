"""Who is told what was written to the message log, beside the log itself: the history of messages.

The observer is told after a write, in the same step of the event loop, and only of subjects whose config
says `history`. It must not raise and must not wait. The log does not depend on it. Without an observer a
write costs one look at an attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.tail import Batch


class WrittenFrame(NamedTuple):
    """A frame that was written: see format.py. Those of one write that belong together are neighbours."""

    kind: int
    subject: Subject
    position: int
    base: int
    """The sequence of its first message, where it has messages."""
    sequences: int
    payload: Batch | None


class WriteObserver(Protocol):
    def written(self, frames: Sequence[WrittenFrame]) -> None: ...
