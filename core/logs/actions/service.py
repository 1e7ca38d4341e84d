"""The action log in a running broker: a thin Trio shell around ActionLog.

Appending is synchronous: the actions are written and applied when it returns, and a sync has begun, if none
was under way. Who must not answer before they are durable waits for the position that `append_nowait` gave.
What nobody waits for (`urgent=False`: hand-outs) is synced with what comes next, or when there is much of
it: a sync costs more than a hand-out.
Between times the shell completes snapshots and deletes segments that nothing hangs on any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.state import Groups
from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.actions.log import SEGMENT_BYTES, ActionLog, Callback
from kumquat.core.logs.actions.recovery import open_action_log
from kumquat.core.logs.actions.sync import ActionSyncJob
from kumquat.core.logs.disk.files import Files, RealFiles
from kumquat.core.logs.disk.flusher import Flusher
from kumquat.core.logs.messages.service import not_opened, wall_clock_ms

log = logging.getLogger("kumquat.actions")

_RETRY_SECONDS = 5.0
_LAZY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ActionStatistics:
    groups: int
    segments: int
    bytes_stored: int
    bytes_unsynced: int
    syncs: int
    appends: int
    fenced: bool


class ActionService:
    """Use `ActionService.open`."""

    def __init__(self, action_log: ActionLog) -> None:
        self.log = action_log
        self.now_ms = action_log.now_ms
        self.groups: Groups = action_log.groups
        self._flusher: Flusher[ActionSyncJob] = Flusher()
        self._chores = trio.Event()
        self._complaints = Complaints(log)
        self._syncs = self._appends = 0

    @classmethod
    def open(
        cls,
        directory: Path,
        files: Files | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> ActionService:
        """Blocks: recovers the log in the data folder `directory`, whose lock the caller holds (the
        message log takes it). StartError says why it cannot."""
        try:
            return cls(open_action_log(files or RealFiles(), directory, now_ms, segment_bytes))
        except (OSError, StorageError) as error:
            raise not_opened(f"the action log in {directory}", error) from error

    # --- writing -----------------------------------------------------------------------------------

    def append_nowait(self, actions: Sequence[Action], *, urgent: bool = True) -> int:
        """Write the actions, apply them to `groups`, begin to sync them. They stand or fall together, also
        over a crash. Gives the position up to which the log must be synced for them to be durable.
        StorageError: nothing has happened."""
        self._appends += 1
        try:
            end = self.log.append(actions)
        except BaseException:
            self._kick()  # it may be refused because too much is not synced
            raise
        if urgent or self.log.unsynced_bytes > _LAZY_BYTES:
            self._kick()
        return end

    def call_when_synced(self, position: int, callback: Callback) -> None:
        """Calls back in the loop when the log is synced up to `position` (at once if it is) or fenced."""
        self.log.call_when_synced(position, callback)
        if position > self.log.synced_end:
            self._kick()

    async def wait_synced(self, position: int | None = None) -> None:
        """Until all below `position` is on disk; None: all that was appended so far."""
        done = trio.Event()
        outcome: list[KumquatError | None] = []

        def finished(error: KumquatError | None) -> None:
            outcome.append(error)
            done.set()

        self.call_when_synced(self.log.written_end if position is None else position, finished)
        await done.wait()
        if outcome[0] is not None:
            raise outcome[0]

    def _kick(self) -> None:
        """Begin a sync, if there is something to sync and none is under way."""
        job = self.log.begin_sync()
        if job is not None:
            self._flusher.start_nowait(job)

    # --- running -----------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then say that it was a clean stop, sync and close."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._finish_syncs)
                nursery.start_soon(self._do_chores)
                self._kick()
                task_status.started()
        finally:
            with trio.CancelScope(shield=True):
                for job, error in await trio.to_thread.run_sync(self._flusher.close):
                    self.log.finish_sync(job, error)
                self.log.close()

    async def _finish_syncs(self) -> None:
        while True:
            job, error = await self._flusher.wait_done()
            self._syncs += 1
            self.log.finish_sync(job, error)
            self._kick()
            if self.log.has_chores:
                self._chores.set()

    async def _do_chores(self) -> None:
        """Snapshots of new segments, then the deletion of old ones."""
        while True:
            try:
                while self.log.snapshot_step():
                    self._kick()
                    await trio.lowlevel.checkpoint()
                self._kick()
                for segment in self.log.take_obsolete():
                    with suppress(FileNotFoundError):
                        await trio.to_thread.run_sync(self.log.files.unlink, segment.path)
            except (OSError, StorageError) as error:
                text = f"housekeeping of the action log failed, trying again soon: {error}"
                self._complaints.error("housekeeping", text)
                await trio.sleep(_RETRY_SECONDS)
                continue
            await self._chores.wait()
            self._chores = trio.Event()

    # --- numbers -----------------------------------------------------------------------------------

    def statistics(self) -> ActionStatistics:
        action_log = self.log
        return ActionStatistics(
            groups=len(self.groups.by_id),
            segments=len(action_log.segments),
            bytes_stored=sum(segment.end - segment.base for segment in action_log.segments),
            bytes_unsynced=action_log.unsynced_bytes,
            syncs=self._syncs,
            appends=self._appends,
            fenced=action_log.fenced is not None,
        )
