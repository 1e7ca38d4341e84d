"""One round of group commit of the action log: the part that blocks, made to run beside the loop.

First the data of segments that were rolled since the last round, then that of the active one, then the
folder if a file is new in it (nothing is opened, as in sync.py): only then is anything answered for. What
comes after that (giving back room, the note of how far all is synced) may fail without harm.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from kumquat.core.logs.actions.format import SUFFIX, pack_synced
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.messages.format import segment_name


class ActionSegment:
    __slots__ = ("base", "end", "path", "snapshot_complete", "snapshot_end")

    def __init__(self, directory: Path, base: int) -> None:
        self.base = base
        self.path = directory / segment_name(base, SUFFIX)
        self.end = base
        self.snapshot_complete = False
        self.snapshot_end = base

    def __repr__(self) -> str:
        return f"<actions {self.base}..{self.end}>"


class ActionSyncJob:
    """One round of group commit: the part that blocks."""

    def __init__(
        self,
        files: Files,
        target: int,
        pulled: int,
        rolled: list[tuple[int, int]],
        active: int,
        folder: int | None,
        synced_file: int | None,
    ) -> None:
        self.target = target
        self.pulled = pulled
        self._files = files
        self._rolled = rolled
        self._active = active
        self._folder = folder
        self._synced_file = synced_file

    def run(self) -> None:
        """Blocks. OSError: nothing of this round counts as synced."""
        files = self._files
        for fd, _ in self._rolled:
            files.fdatasync(fd)
        files.fdatasync(self._active)
        if self._folder is not None:
            files.fsync_dir(self._folder)
        for fd, size in self._rolled:
            with suppress(OSError):
                files.truncate(fd, size)
            with suppress(OSError):
                files.close(fd)
        if self._synced_file is not None:
            with suppress(OSError):
                self._files.pwritev(self._synced_file, [pack_synced(self.target)], 0)
