"""The rounds of one log in a running broker: begun by the write that needs one, run by the flusher, ended
on the event loop.

A log decides when a round is due and what it means that one has ended (disk/commit.py). This is the part
with Trio in it, and the same for both logs. No task has to wake for a round to begin: `begin_nowait`
hands it to the flusher's thread. `end_one`, in a loop, is the task of the log's service.
"""

from __future__ import annotations

import trio

from kumquat.core.errors import KumquatError
from kumquat.core.histogram import Histogram
from kumquat.core.logs.disk.commit import Log, Round
from kumquat.core.logs.flushing.flusher import Flusher


class Rounds:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._flusher: Flusher[Round] = Flusher()
        self._closed = False
        self.ended = 0
        """How many have ended."""
        self.times = Histogram()
        """How long they took in their thread, µs: fdatasync, almost all of it."""

    def begin_nowait(self) -> None:
        """Begin a round, if there is something to make durable and none is under way."""
        if self._closed:
            return
        begun = self._log.begin_sync()
        if begun is not None:
            self._flusher.start_nowait(begun)

    async def end_one(self) -> None:
        """Wait for the next round to be over, tell the log, and begin another one if need be."""
        ended, error, seconds = await self._flusher.wait_done()
        self.ended += 1
        self.times.add(int(seconds * 1e6))
        self._log.finish_sync(ended, error)
        self.begin_nowait()

    async def wait_synced(self, position: int) -> None:
        """Until all below `position` is durable. Raises the reason why it never will be."""
        over = trio.Event()
        outcome: list[KumquatError | None] = []

        def called(error: KumquatError | None) -> None:
            outcome.append(error)
            over.set()

        self._log.call_when_synced(position, called)
        self.begin_nowait()
        await over.wait()
        failure = outcome.pop()
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # kept here, it would be in a cycle with its own traceback

    def abandon(self) -> None:
        """Blocks: end the thread of a log that was opened and will not run."""
        self._closed = True
        self._flusher.close()

    async def close(self) -> None:
        """Wait for the round under way, and begin no other: what is written meanwhile is synced when the
        log is closed."""
        self._closed = True
        for ended, error, _ in await trio.to_thread.run_sync(self._flusher.close):
            self._log.finish_sync(ended, error)
