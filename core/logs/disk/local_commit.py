"""Commit on the local disk: durable means that fdatasync has returned. See commit.py for the words.

What happens when
- a write fails or is short: nothing of it was written (active_file.py); `append` raises StorageError and
  the position stays. The next write is tried as usual.
- a sync fails: the log is fenced. The kernel has reported the error once and may have dropped the pages;
  a second sync would succeed and mean nothing. So a failed sync is never retried.
- the log rolls to a new segment while a round is under way: the old file is kept, open, for the next round,
  which syncs it before the new one. All files of a round are synced before any byte of it counts.
- a file is new in the folder: the round syncs the folder too, after the files.
- descriptors run out: a round does not need one. All handles are held open from the time of the write,
  because a sync that fails for want of a descriptor would fence the log.
- a write takes longer than SLOW_SECONDS: the event loop stood still for it. From then on writes are
  *deferred*: `append` gives the buffers their place and their room on disk, and the next round writes them,
  in its thread, before it syncs. `in_file` says how far the file is. Nobody is told that bytes are written
  before they are (acks=1 waits for the round), and the log does not roll meanwhile. When FAST_ROUNDS rounds
  in a row have written fast, what is left is written at once, and all is as before.
- a deferred write fails: the round writes the same bytes again, TRIES times, RETRY_SECONDS apart. It cannot
  be undone as a write of `append` is, for others were built on it; so after that the log is fenced.
- the process dies after a failed sync: the kernel takes the unsynced pages for clean, and a sync by the
  next process would not write them. So a start writes them again before it syncs (`rewrite_unsynced`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Final

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.disk.active_file import ActiveFile, Reserving
from kumquat.core.logs.disk.commit import Callback, Note, Round
from kumquat.core.logs.disk.files import Buffer, Files
from kumquat.core.logs.disk.segment_file import SegmentFile
from kumquat.core.logs.disk.write_trouble import WriteTrouble

SLOW_SECONDS: Final = 0.05
FAST_ROUNDS: Final = 8
TRIES: Final = 50
RETRY_SECONDS = 0.1

log = logging.getLogger("kumquat.log")


class LocalRound:
    """A round of a LocalCommit. See the head for the order of its steps."""

    __slots__ = (
        *("_active", "_files", "_folder", "_note"),
        *("begin", "deferred", "done", "rolled", "target", "write_seconds"),
    )

    def __init__(
        self,
        files: Files,
        target: int,
        rolled: list[ActiveFile],
        active: ActiveFile,
        folder: int | None,
        note: Note,
        done: Callable[[], None],
        deferred: list[Buffer],
        begin: int,
    ) -> None:
        self.target = target
        self.rolled = rolled
        self.done = done
        self.deferred = deferred
        """To be written first, from the position `begin` on."""
        self.begin = begin
        self.write_seconds = 0.0
        self._files = files
        self._active = active
        self._folder = folder
        self._note = note

    def run(self) -> None:
        if self.deferred:
            self._write_deferred()
        for file in self.rolled:
            self._files.fdatasync(file.fd)
        self._files.fdatasync(self._active.fd)
        if self._folder is not None:
            self._files.fsync_dir(self._folder)
        try:
            self._note(self.target)
        except OSError as error:
            log.debug("a note for the next start could not be written: %s", error)
        for file in self.rolled:
            file.give_back_room()
            file.release()

    def _write_deferred(self) -> None:
        clock, tries = self._files.clock, TRIES
        began = clock()
        while True:
            try:
                self._active.write_placed(self.deferred, self.begin - self._active.base)
                break
            except OSError as error:
                tries -= 1
                if not tries:
                    raise
                log.debug("a deferred write failed, trying again: %s", error)
                sleep(RETRY_SECONDS)
        self.write_seconds = clock() - began


class LocalCommit:
    """A log on the local disk. `name` is what errors call it, such as "the message log"."""

    def __init__(
        self, files: Files, directory: Path, name: str, reserving: Reserving, log: logging.Logger
    ) -> None:
        self.written = 0
        self.in_file = 0
        self.durable = 0
        self._fenced = ""
        """Why the log is fenced; empty: it is not."""
        self._files = files
        self._directory = directory
        self._name = name
        self._reserving = reserving
        self._log = log
        self._trouble = WriteTrouble(log)
        self._active: ActiveFile | None = None
        self._rolled: list[ActiveFile] = []
        """Files that the log has left and that no round has covered since."""
        self._folder = files.open_dir(directory)
        self._folder_changed = False
        self.under_way: LocalRound | None = None
        self._waiting: deque[tuple[int, Callback]] = deque()
        self._defers = False
        """The disk is slow: rounds write."""
        self._deferred: list[Buffer] = []
        """To be written by the next round, the last one up to `written`."""
        self._deferred_from = 0
        """The position of the first of them."""
        self._fast_rounds = 0

    @property
    def fenced(self) -> StorageError | None:
        """A new error each time. One error that is raised for each request would keep the frames of each
        raise in its traceback, and so the batches of each request."""
        return StorageError(self._fenced) if self._fenced else None

    @property
    def failing(self) -> str | None:
        return self._trouble.reason

    # --- appending -----------------------------------------------------------------------------

    def append(self, buffers: Sequence[Buffer]) -> int:
        if self._fenced:
            raise StorageError(self._fenced)
        active = self._active
        assert active is not None
        began = self._files.clock()
        try:
            size = active.place(buffers) if self._defers else active.append(buffers)
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(f"{self._name} cannot be written: {reason}") from error
        end = active.base + size
        if self._defers:
            if not self._deferred:
                self._deferred_from = self.written
            self._deferred += buffers
        else:
            self.in_file = end
            seconds = self._files.clock() - began
            if seconds > SLOW_SECONDS:
                self._begin_deferring(seconds)
        self.written = end
        return end

    def _begin_deferring(self, seconds: float) -> None:
        self._defers, self._fast_rounds = True, 0
        self._log.warning(
            "a write to %s took %.0f ms: the disk is slow. Writes are made beside the event loop until it "
            "is fast again",
            self._directory,
            1000 * seconds,
        )

    def _end_deferring(self) -> None:
        """The disk is fast again: write what is left, and go on as usual."""
        active = self._active
        assert active is not None
        if self._deferred:
            try:
                active.write_placed(self._deferred, self._deferred_from - active.base)
            except OSError as error:
                self._log.debug("a deferred write failed, left to the next round: %s", error)
                return
        self.in_file = self.written
        self._deferred, self._defers = [], False
        self._log.warning("writes to %s are fast again", self._directory)

    def start_at(self, position: int) -> None:
        self.written = self.in_file = self.durable = position

    def continue_in(self, path: Path, fd: int, base: int, release: Callable[[], None]) -> None:
        self._active = self._file(path, fd, base, self.written - base, release)

    def roll_to(
        self, path: Path, fd: int, base: int, size: int, release: Callable[[], None]
    ) -> None:
        if self._active is not None:
            self._rolled.append(self._active)
        self._active = self._file(path, fd, base, size, release)
        self._folder_changed = True
        self.written = self.in_file = base + size

    def _file(
        self, path: Path, fd: int, base: int, size: int, release: Callable[[], None]
    ) -> ActiveFile:
        return ActiveFile(
            self._files,
            path,
            fd,
            base,
            size,
            release=release,
            reserving=self._reserving,
            trouble=self._trouble,
        )

    def remove_new(self, path: Path) -> None:
        try:
            self._files.unlink(path)
            self._files.fsync_dir(self._folder)
        except OSError as error:
            self.fence(error)

    # --- rounds --------------------------------------------------------------------------------

    @property
    def wants_round(self) -> bool:
        return self.written > self.durable and self.under_way is None and not self._fenced

    def begin_round(self, note: Note, done: Callable[[], None]) -> LocalRound:
        assert self._active is not None
        folder = self._folder if self._folder_changed else None
        begun = LocalRound(
            self._files,
            self.written,
            self._rolled,
            self._active,
            folder,
            note,
            done,
            self._deferred,
            self._deferred_from,
        )
        self.under_way = begun
        self._deferred = []
        self._rolled = []
        self._folder_changed = False
        return begun

    def end_round(self, ended: Round, error: OSError | None = None) -> None:
        begun = self.under_way
        assert begun is not None
        assert ended is begun
        self.under_way = None
        if error is not None:
            self._rolled = begun.rolled + self._rolled  # they are still open
            self.fence(error)
            return
        if begun.deferred:
            self.in_file = begun.target
            fast = begun.write_seconds <= SLOW_SECONDS
            self._fast_rounds = self._fast_rounds + 1 if fast else 0
            if self._fast_rounds >= FAST_ROUNDS:
                self._end_deferring()
        if not self._fenced:
            self.durable = begun.target
            begun.done()
            if self._waiting:
                self._call_waiting(None)

    def call_when_durable(self, position: int, callback: Callback) -> None:
        if position <= self.durable:
            callback(None)
        elif self._fenced:
            callback(self.fenced)
        else:
            self._waiting.append((position, callback))

    def _call_waiting(self, error: KumquatError | None) -> None:
        waiting = self._waiting
        while waiting and (error is not None or waiting[0][0] <= self.durable):
            _, callback = waiting.popleft()
            try:
                callback(error)
            except Exception:
                self._log.exception("a callback after a sync failed")

    # --- the end -------------------------------------------------------------------------------

    def fence(self, error: OSError) -> None:
        self._log.critical(
            "sync of %s failed: %s. What was not synced may be lost, and a second sync cannot tell: %s is "
            "closed for writing. Check the disk, then restart",
            self._directory,
            error,
            self._name,
        )
        if not self._fenced:
            self._fenced = f"{self._name} is fenced: a sync failed ({error.strerror})"
        self._call_waiting(self.fenced)

    def close(self) -> None:
        assert self.under_way is None
        if self._active is not None:
            if not self._fenced:
                self._active.give_back_room()
            for file in [*self._rolled, self._active]:
                file.release()
        with suppress(OSError):
            self._files.close(self._folder)
        if not self._fenced:
            self._fenced = f"{self._name} is closed: the broker stops"
        self._call_waiting(self.fenced)


def rewrite_unsynced(file: SegmentFile, durable: int, end: int) -> None:
    """Blocks, at a start: make a segment durable up to `end`, of which only what lies below `durable` is
    known to be."""
    file.write_again(durable, min(end, file.end))
    file.sync()
