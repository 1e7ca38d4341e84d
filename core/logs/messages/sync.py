"""One round of group commit: the part that blocks, made to run beside the loop.

Nothing is opened here: a sync that cannot be made for want of a descriptor would count as failed, and a
failed sync closes the log. The segments are pinned, and the folder is held open by the log.

Order matters. First the data of segments that were rolled since the last round, oldest first, then that
of the active one, then the folder if a file is new in it: only then is anything acked. The checkpoints
come last and tell of nothing but what has just been synced; losing them costs no message, so what goes
wrong there is not an error of the round.
"""

from __future__ import annotations

from contextlib import suppress

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.messages.recovery.checkpoint import CheckpointWriter
from kumquat.core.logs.messages.segment import OpenFiles, Segment
from kumquat.core.logs.messages.subject import Subject


class SyncJob:
    __slots__ = (
        "_active",
        "_checkpoint",
        "_files",
        "_folder",
        "_open_files",
        "_preamble_complete",
        "_rolled",
        "_rows",
        "high_watermarks",
        "target",
    )

    def __init__(
        self,
        files: Files,
        target: int,
        *,
        rolled: list[tuple[Segment, CheckpointWriter | None, bytes]],
        active: int,
        folder: int | None,
        checkpoint: CheckpointWriter,
        rows: bytes,
        preamble_complete: bool,
        high_watermarks: dict[Subject, int],
        open_files: OpenFiles,
    ) -> None:
        self.target = target
        self.high_watermarks = high_watermarks
        self._files = files
        self._rolled = rolled
        self._active = active
        self._folder = folder
        self._checkpoint = checkpoint
        self._rows = rows
        self._preamble_complete = preamble_complete
        self._open_files = open_files

    def run(self) -> None:
        """Blocks. OSError: nothing of this round counts as synced."""
        for segment, _, _ in self._rolled:
            with self._open_files.pinned(segment.path) as fd:
                self._files.fdatasync(fd)
        self._files.fdatasync(self._active)
        if self._folder is not None:
            self._files.fsync_dir(self._folder)
        for segment, checkpoint, rows in self._rolled:
            if checkpoint is not None:
                checkpoint.append(rows, segment.end, True)
                checkpoint.close()
            self._release(segment)
        self._checkpoint.append(self._rows, self.target, self._preamble_complete)

    def _release(self, segment: Segment) -> None:
        """A rolled segment is done with: give back what was reserved and not used, and the pin."""
        with suppress(OSError), self._open_files.pinned(segment.path) as fd:
            self._files.truncate(fd, segment.size)
        self._open_files.unpin(segment.path)
