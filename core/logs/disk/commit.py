"""Commit: how the bytes of a log become durable. Both logs use it; neither knows how it is done.

A log appends bytes and gets a position: the number of bytes in the log up to there, through all segments.
It learns when that position is durable, and answers its client only then. `Commit` is the interface. It
has one implementation, LocalCommit (local_commit.py): durable means that the local disk was synced. A
second one is planned, on a replicated log: there durable means that the replicas have acknowledged it,
and the local file is a copy. So nothing but an implementation may assume that durable means fdatasync.

Group commit: at most one *round* is under way. It covers all that was written when it began. What is
written meanwhile is covered by the next round. A round's `run` blocks and belongs in another thread; all
else here runs on the event loop.

    state of a byte   how it gets there                   what it means
    staged            the log's own business              not final: undone if the write fails
    appended          append                              below `written`: it has its place in the log. As a
                                                          rule it is in the file at once
    in the file       append, or a round                  below `in_file`: in the page cache, where a power
                                                          cut may lose it and a kill does not
    being synced      begin_round                         below the `target` of the round
    durable           end_round without an error          below `durable`: survives a power cut; readers see
                                                          it, and clients get their acks
    fenced            end_round with an error, or fence   not below `durable`: never acked by this process

    durable <= target of the round under way <= written; in_file is anywhere from durable to written

Who waits: `call_when_durable(position, callback)`. Callbacks run in the order in which they were given,
with None when the position is durable, or with the error that fenced the log. The log's own `done` (it
raises high watermarks) runs before all callbacks of the round.

A *fenced* log appends nothing any more. All who wait get the error, and so does everybody who asks later
for a position that is not durable. Reads of what is durable go on. Only a restart ends it.

What the next start finds: each frame carries the durable position of its time, and after a round the log
notes the new one in a file (`note`; it is never synced itself and may be lost). What lies above the highest
durable position that a start finds may or may not be on disk: it is made durable before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.disk.files import Buffer

Callback = Callable[[KumquatError | None], None]
"""Called with None when a position is durable, or with the reason why it never will be."""

Note = Callable[[int], None]
"""Notes for the next start that all below a position is durable."""


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
    in_file: int
    """All below is in the file and can be read from there, by any thread; a kill of the process does not
    lose it. It is less than `written` while the disk is slow."""
    durable: int
    """All below survives whatever may happen. Readers may see it, and clients get their acks."""

    @property
    def fenced(self) -> StorageError | None:
        """Why nothing is appended any more, and why nothing above `durable` ever becomes durable. To be
        raised once: a new error each time."""

    @property
    def failing(self) -> str | None:
        """Why writes have failed lately, and may work again without a restart; None: they work."""

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

    def begin_round(self, note: Note, done: Callable[[], None]) -> Round:
        """Only if `wants_round`. When its bytes are durable, `note` runs in the round's thread; it may fail
        without harm. Then `done` runs on the loop, before those who wait are called."""

    def end_round(self, ended: Round, error: OSError | None = None) -> None:
        """The round was run; `error` says why it failed."""

    def fence(self, error: OSError) -> None:
        """Nobody knows any more what the disk holds: append nothing, and acknowledge nothing."""

    def close(self) -> None:
        """Blocks: let go of all files. No round may be under way."""


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
        fenced = log.fenced
        assert fenced is not None
        raise fenced from error
    log.finish_sync(begun)
