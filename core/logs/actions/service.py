"""The action log in a running broker: a thin Trio shell around ActionLog.

Appending is synchronous: when it returns, the actions are written and applied, and a round of group
commit has begun, if none was under way. Who must not answer before they are durable waits for the
position that `append_nowait` gave. What nobody waits for (`urgent=False`: hand-outs) is synced with what
comes next, or when there is much of it: a sync costs more than a hand-out.

Between times the shell completes snapshots and deletes segments that no start needs any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from kumquat.core.clock import SteadyClock
from kumquat.core.complaints import Complaints
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.state import Groups
from kumquat.core.errors import StorageError
from kumquat.core.histogram import Histogram
from kumquat.core.logs.actions.log import SEGMENT_BYTES, ActionLog
from kumquat.core.logs.actions.recovery import open_action_log
from kumquat.core.logs.disk.commit import Callback
from kumquat.core.logs.disk.files import Files, RealFiles
from kumquat.core.logs.disk.unreadable import not_opened
from kumquat.core.logs.flushing.rounds import Rounds

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
    sync_us: dict[str, int]
    """How long syncs took, µs: p50, p99, max."""
    appends: int
    fenced: bool


class ActionService:
    """Use `ActionService.open`."""

    def __init__(self, action_log: ActionLog) -> None:
        self.log = action_log
        self.now_ms = action_log.now_ms
        self.groups: Groups = action_log.groups
        self._rounds = Rounds(action_log)
        self._chores = trio.Event()
        self._complaints = Complaints(log)
        self._appends = 0

    @classmethod
    def open(
        cls,
        directory: Path,
        files: Files | None = None,
        now_ms: Callable[[], int] | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> ActionService:
        """Blocks: recovers the log in the data folder `directory`, whose lock the caller holds (the
        message log takes it). StartError says why it cannot. `now_ms`: a steady clock unless another one is
        given."""
        try:
            return cls(
                open_action_log(
                    files or RealFiles(), directory, now_ms or SteadyClock(), segment_bytes
                )
            )
        except (OSError, StorageError) as error:
            raise not_opened(f"the action log in {directory}", error) from error

    def abandon(self) -> None:
        """Blocks: close what was opened and will not run."""
        self._rounds.abandon()
        self.log.close()

    # --- writing -----------------------------------------------------------------------------------

    def append_nowait(self, actions: Sequence[Action], *, urgent: bool = True) -> int:
        """Write the actions, apply them to `groups`, begin to sync them. They stand or fall together, also
        over a crash. Gives the position up to which the log must be synced for them to be durable.
        StorageError: nothing has happened."""
        self._appends += 1
        try:
            end = self.log.append(actions)
        except BaseException:
            self._rounds.begin_nowait()  # it may be refused because too much is not synced
            raise
        if urgent or self.log.unsynced_bytes > _LAZY_BYTES:
            self._rounds.begin_nowait()
        return end

    def call_when_synced(self, position: int, callback: Callback) -> None:
        """Calls back in the loop when all below `position` is durable (at once if it is), or when the log
        is fenced."""
        self.log.call_when_synced(position, callback)
        if position > self.log.synced_end:
            self._rounds.begin_nowait()

    async def wait_synced(self, position: int | None = None) -> None:
        """Until all below `position` is durable; None: all that was appended so far."""
        await self._rounds.wait_synced(self.log.written_end if position is None else position)

    # --- running -----------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; then say that it was a clean stop, sync and close."""
        if isinstance(self.now_ms, SteadyClock):
            self.now_ms.follow(trio.current_time)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._finish_syncs)
                nursery.start_soon(self._do_chores)
                self._rounds.begin_nowait()
                task_status.started()
        finally:
            with trio.CancelScope(shield=True):
                await self._rounds.close()
                self.log.close()
            if isinstance(self.now_ms, SteadyClock):
                self.now_ms.unfollow()

    async def _finish_syncs(self) -> None:
        while True:
            await self._rounds.end_one()
            if self.log.has_chores:
                self._chores.set()

    async def _do_chores(self) -> None:
        """Snapshots of new segments, then the deletion of old ones."""
        while True:
            try:
                while self.log.snapshot_step():
                    self._rounds.begin_nowait()
                    await trio.lowlevel.checkpoint()
                self._rounds.begin_nowait()
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

    @property
    def sync_times(self) -> Histogram:
        """In µs."""
        return self._rounds.times

    def statistics(self) -> ActionStatistics:
        action_log = self.log
        return ActionStatistics(
            groups=len(self.groups.by_id),
            segments=len(action_log.segments),
            bytes_stored=sum(segment.end - segment.base for segment in action_log.segments),
            bytes_unsynced=action_log.unsynced_bytes,
            syncs=self._rounds.ended,
            sync_us=self._rounds.times.percentiles(),
            appends=self._appends,
            fenced=action_log.fenced is not None,
        )
