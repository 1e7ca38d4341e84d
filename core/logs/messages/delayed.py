"""The interface between the message log and the delay service, which uses some of its frames.

The log writes and replays PARKED, CANCEL and DELIVERED frames, but does not know what they mean. It
passes each one to a `DelayListener`: when it is written and, after a start, when it is read back, through
the same `apply`. The listener says from which position on it needs these frames (what lies below, it has
in files of its own), so that replay begins no later than there; and from which position on the log must
be kept.
"""

from __future__ import annotations

from typing import Protocol


class DelayListener(Protocol):
    @property
    def replay_from(self) -> int:
        """Frames below this position are known already."""

    def begin_replay(self) -> None:
        """Replay begins, perhaps once more: forget what was applied."""

    def apply(self, kind: int, subject_id: int, position: int, payload: bytes | memoryview) -> None:
        """A frame was written, or read back. Its payload is whole."""

    def subject_deleted(self, subject_id: int, position: int) -> None:
        """The subject is gone, with all that is parked for it."""

    def unreadable(self, kind: int, subject_id: int, position: int, length: int) -> None:
        """A PARKED frame is there, and the disk cannot read it at the moment: only read back. It is to be
        asked for again."""

    def damaged(self, kind: int, subject_id: int, position: int, length: int) -> None:
        """A frame was there, and is lost."""

    def keep_from(self) -> int:
        """Segments that end above this position must stay."""
