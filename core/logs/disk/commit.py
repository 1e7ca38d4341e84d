"""Commit: how the bytes of a log become durable. Both logs use it; neither knows how it is done.

A log appends bytes and gets a position: the number of bytes in the log up to there, through all segments.
It learns when that position is durable, and answers its client only then. The interface is `Commit`.
There is one implementation, `LocalCommit`: durable means that the local disk was synced. A second one is
planned, on a replicated log (there, durable means that the replicas have acknowledged it, and the local
file is a copy). So nothing outside this file may assume that durable means fdatasync.

Group commit: at most one *round* is under way. It covers all that was written when it began. What is
written meanwhile is covered by the next round. A round's `run` blocks and belongs in another thread; all
else here runs on the event loop.

    state of a byte   how it gets there                   what it means
    staged            the log's own business              not final: undone if the write fails
    written           append                              below `written`: in the page cache, where a power
                                                          cut may lose it and a kill does not
    being synced      begin_round                         below the `target` of the round
    durable           end_round without an error          below `durable`: survives a power cut; readers see
                                                          it, and clients get their acks
    fenced            end_round with an error, or fence   not below `durable`: never acked by this process

    durable <= target of the round under way <= written

Who waits: `call_when_durable(position, callback)`. Callbacks run in the order in which they were given,
with None when the position is durable, or with the error that fenced the log. The log's own `done` (it
raises high watermarks) runs before all callbacks of the round.

What happens when
- a write fails or is short: nothing of it was written (active_file.py); `append` raises StorageError and
  the position stays. The next write is tried as usual.
- a sync fails: the log is fenced. The kernel has reported the error once and may have dropped the pages;
  a second sync would succeed and mean nothing. So a failed sync is never retried. Nothing is appended any
  more, all who wait get the error, and so does everybody who asks later for a position that is not
  durable. Reads of what is durable go on.
- the log rolls to a new segment while a round is under way: the old file is kept, open, for the next round,
  which syncs it before the new one. All files of a round are synced before any byte of it counts.
- a file is new in the folder: the round syncs the folder too, after the files.
- the round cannot open a file: it never has to. All handles are held open from the time of the write,
  because a sync that fails for want of a descriptor would fence the log.

What the next start is told: each frame carries the durable position of its time, and after a round the log
notes the new one in a file (`note`; it is never synced itself and may be lost). What lies above the highest
durable position that a start finds is written again and synced before anybody sees it (`rewrite_unsynced`):
after a failed sync the kernel takes these pages for clean, and a sync alone would not write them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.disk.active_file import ActiveFile, Reserving
from kumquat.core.logs.disk.files import Buffer, Files
from kumquat.core.logs.disk.segment_file import SegmentFile

Callback = Callable[[KumquatError | None], None]
"""Called with None when a position is durable, or with the reason why it never will be."""


class Round(Protocol):
    """A step from one durable position to the next."""

    @property
    def target(self) -> int:
        """All below is durable when the round has ended well."""

    def run(self) -> None:
        """Blocks; any thread may call it, once. OSError: nothing of this round counts as durable."""


class Commit(Protocol):
    """What a log knows of how it becomes durable."""

    written: int
    """The position behind the last byte that was appended."""
    durable: int
    """All below survives whatever may happen. Readers may see it, and clients get their acks."""
    fenced: StorageError | None
    """Why nothing is appended any more, and why nothing above `durable` ever becomes durable."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append the buffers, one behind the other, and give the position behind them. StorageError:
        nothing has happened."""

    def start_at(self, position: int) -> None:
        """A start has found that all below is durable: go on from there."""

    def continue_in(self, path: Path, fd: int, base: int, release: Callable[[], None]) -> None:
        """Append to the segment at `base`, which reaches up to `written`."""

    def roll_to(
        self, path: Path, fd: int, base: int, size: int, release: Callable[[], None]
    ) -> None:
        """Append to a new segment, which begins at `written` and holds `size` bytes already. `release` is
        called when nobody needs `fd` any more."""

    def remove_new(self, path: Path) -> None:
        """Remove a file that was to be the next segment, for good: if it came back after a power cut, it
        would stand at a position where the log has gone on. If that fails, the log is fenced."""

    def call_when_durable(self, position: int, callback: Callback) -> None:
        """At once if it is durable, or if the log is fenced."""

    @property
    def under_way(self) -> Round | None:
        """The round that has begun and not ended."""

    @property
    def wants_round(self) -> bool:
        """Whether there is something to be made durable, and no round is under way."""

    def begin_round(self, note: Callable[[], None], done: Callable[[], None]) -> Round:
        """Only if `wants_round`. When all is durable, `note` runs in the round's thread: it tells the
        next start how far. It may fail without harm. `done` runs on the loop, before those who wait are
        called."""

    def end_round(self, ended: Round, error: OSError | None = None) -> None:
        """The round was run; `error` says why it failed."""

    def fence(self, error: OSError) -> None:
        """Nobody knows any more what the disk holds: append nothing, and acknowledge nothing."""

    def close(self) -> None:
        """Blocks: let go of all files. No round may be under way."""


class LocalRound:
    """A round of a LocalCommit. See the head for the order of its steps."""

    __slots__ = ("_active", "_files", "_folder", "_note", "done", "rolled", "target")

    def __init__(
        self,
        files: Files,
        target: int,
        rolled: list[ActiveFile],
        active: ActiveFile,
        folder: int | None,
        note: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        self.target = target
        self.rolled = rolled
        self.done = done
        self._files = files
        self._active = active
        self._folder = folder
        self._note = note

    def run(self) -> None:
        for file in self.rolled:
            self._files.fdatasync(file.fd)
        self._files.fdatasync(self._active.fd)
        if self._folder is not None:
            self._files.fsync_dir(self._folder)
        with suppress(OSError):
            self._note()
        for file in self.rolled:
            file.give_back_room()
            file.release()


class LocalCommit:
    """A log on the local disk. `name` is what errors call it, such as "the message log"."""

    def __init__(
        self, files: Files, directory: Path, name: str, reserving: Reserving, log: logging.Logger
    ) -> None:
        self.written = 0
        self.durable = 0
        self.fenced: StorageError | None = None
        self._files = files
        self._directory = directory
        self._name = name
        self._reserving = reserving
        self._log = log
        self._active: ActiveFile | None = None
        self._rolled: list[ActiveFile] = []
        """Files that the log has left and that no round has covered since."""
        self._folder = files.open_dir(directory)
        self._folder_changed = False
        self.under_way: LocalRound | None = None
        self._waiting: deque[tuple[int, Callback]] = deque()

    # --- appending -----------------------------------------------------------------------------

    def append(self, buffers: Sequence[Buffer]) -> int:
        if self.fenced is not None:
            raise self.fenced
        active = self._active
        assert active is not None
        try:
            size = active.append(buffers)
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(f"{self._name} cannot be written: {reason}") from error
        self.written = end = active.base + size
        return end

    def start_at(self, position: int) -> None:
        self.written = self.durable = position

    def continue_in(self, path: Path, fd: int, base: int, release: Callable[[], None]) -> None:
        self._active = self._file(path, fd, base, self.written - base, release)

    def roll_to(
        self, path: Path, fd: int, base: int, size: int, release: Callable[[], None]
    ) -> None:
        if self._active is not None:
            self._rolled.append(self._active)
        self._active = self._file(path, fd, base, size, release)
        self._folder_changed = True
        self.written = base + size

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
            log=self._log,
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
        return self.written > self.durable and self.under_way is None and self.fenced is None

    def begin_round(self, note: Callable[[], None], done: Callable[[], None]) -> LocalRound:
        assert self.wants_round
        assert self._active is not None
        folder = self._folder if self._folder_changed else None
        begun = LocalRound(
            self._files, self.written, self._rolled, self._active, folder, note, done
        )
        self.under_way = begun
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
        self.durable = begun.target
        begun.done()
        self._call_waiting(None)

    def call_when_durable(self, position: int, callback: Callback) -> None:
        if position <= self.durable:
            callback(None)
        elif self.fenced is not None:
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
        self.fenced = StorageError(f"{self._name} is fenced: a sync failed ({error.strerror})")
        self._call_waiting(self.fenced)

    def close(self) -> None:
        assert self.under_way is None
        if self._active is not None:
            if self.fenced is None:
                self._active.give_back_room()
            for file in [*self._rolled, self._active]:
                file.release()
        with suppress(OSError):
            self._files.close(self._folder)
        if self.fenced is None:
            self.fenced = StorageError(f"{self._name} is closed: the broker stops")
        self._call_waiting(self.fenced)


class Log(Protocol):
    """What both logs offer to whoever runs their rounds."""

    @property
    def fenced(self) -> StorageError | None: ...

    def begin_sync(self) -> Round | None:
        """The next round; None when all is durable, when one is under way, or when the log is fenced."""

    def finish_sync(self, ended: Round, error: OSError | None = None) -> None:
        """The round was run."""

    def call_when_synced(self, position: int, callback: Callback) -> None: ...


def sync_now(log: Log) -> None:
    """Blocks: a whole round, where there is no flusher (yet, or any more). StorageError: it failed, and the
    log is fenced."""
    begun = log.begin_sync()
    if begun is None:
        return
    try:
        begun.run()
    except OSError as error:
        log.finish_sync(begun, error)
        assert log.fenced is not None
        raise log.fenced from error
    log.finish_sync(begun)


def rewrite_unsynced(file: SegmentFile, durable: int, end: int) -> None:
    """Blocks, at a start: make a segment durable up to `end`, of which only what lies below `durable` is
    known to be."""
    file.write_again(durable, min(end, file.end))
    file.sync()
