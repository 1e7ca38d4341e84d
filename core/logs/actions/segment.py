"""One file of the action log: positions `base` to `end`."""

from __future__ import annotations

from pathlib import Path

from kumquat.core.logs.actions.format import SUFFIX
from kumquat.core.logs.disk.segment_file import segment_name


class ActionSegment:
    __slots__ = ("base", "end", "path", "snapshot_complete", "snapshot_end")

    def __init__(self, directory: Path, base: int) -> None:
        self.base = base
        self.path = directory / segment_name(base, SUFFIX)
        self.end = base
        """Behind the last frame that was written."""
        self.snapshot_complete = False
        self.snapshot_end = base
        """Behind its snapshot, if that is complete."""

    def __repr__(self) -> str:
        return f"<actions {self.base}..{self.end}>"
