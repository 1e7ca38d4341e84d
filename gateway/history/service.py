"""The task that writes the history: from the buffer to `__kumquat_actions`, through the message log.

Events are written some 100 ms after the first of them, or when there are many (buffer.py). Many are encoded
in a thread. The subject is made when the first subject has `history` on, and never written to by clients.

It must never hold up a client, nor fail its request, nor end the broker. So nobody waits for it, except a
`trace` that wants to be up to date (`flush`). If the log cannot be written (a full disk, a fence), or takes
too long, or the subject cannot be made, or this code is at fault, the events are dropped and counted.
`failing` in the statistics says why, and a `missed` event follows when it works again. The last moments
before a kill of the process are not in the history; at a clean stop all is written.

Its own appends make no events: internal subjects have no history.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.pools import HISTORY, in_thread
from kumquat.gateway.history.buffer import Buffer
from kumquat.gateway.history.events import batches
from kumquat.gateway.history.recorder import Recorder
from kumquat.gateway.net.dispatch import ANSWERABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.core.delivery.dead_letters.settling import Settling
    from kumquat.core.logs.actions.service import ActionService
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.wheel.shell import Shell
    from kumquat.gateway.history.events import Event
    from kumquat.gateway.topics.subjects import SubjectKeeper

EVERY_SECONDS = 0.1
FEW = 200
"""So many events are encoded on the event loop: 2 ms."""
_MOST_SECONDS = 5.0
"""For one write."""
_RETRY_SECONDS = 1.0
"""While it fails, what has come meanwhile is tried so often."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HistoryStatistics:
    recording: bool
    """Whether the history of any subject is recorded."""
    events: int
    """This and the next three: since the start of the broker."""
    written: int
    bytes: int
    """As they were written, compressed."""
    missed: int
    """Events that were dropped: too many at once, or they could not be written."""
    waiting: int
    """Events that are not written yet."""
    failing: str | None
    """Why nothing can be written at the moment."""


class History:
    def __init__(
        self,
        log: MessageService,
        actions: ActionService,
        shell: Shell,
        settling: Settling,
        subjects: SubjectKeeper,
        most: int,
    ) -> None:
        self._log = log
        self._actions = actions
        self._shell = shell
        self._settling = settling
        self._subjects = subjects
        self.buffer = Buffer(log.log.now_ms, most)
        self._recorder = Recorder(actions.groups, log.subjects, log.log.now_ms, self.buffer)
        self._subject: Subject | None = None
        self._lock = trio.Lock()
        self._written = self._bytes = 0
        self._failing: str | None = None
        self._fault: str | None = None
        """The last fault whose traceback was logged."""
        self._complaints = Complaints(logger)
        self.recording = False
        subjects.watch_history(self._switch)

    def _switch(self, on: bool) -> None:
        """The first subject has its history recorded, or none any more."""
        self.recording = on
        recorder = self._recorder if on else None
        self._log.log.writer.observer = recorder
        self._actions.log.observer = recorder
        self._shell.observer = recorder
        self._settling.observer = recorder
        if on:
            self.buffer.news.set()  # so that the subject is made

    # --- writing ---------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled; then what is left, while the log still runs."""
        task_status.started()
        try:
            while True:
                await self.buffer.news.wait()
                pause = EVERY_SECONDS if self._failing is None else _RETRY_SECONDS
                with trio.move_on_after(pause):
                    await self.buffer.many.wait()
                await self._write()
        finally:
            with trio.CancelScope(shield=True):
                await self._write()

    async def flush(self) -> None:
        """What has happened so far is in the subject, and can be read, as far as it can be written."""
        await self._write()
        subject = self._subject
        if subject is not None and subject.readable_end < subject.next_sequence:
            try:
                await self._log.wait_synced()
            except KumquatError as error:
                self._failed(error)

    async def _write(self) -> None:
        """Once begun it is not cancelled: a stop must not lose what was taken."""
        async with self._lock:
            events = self.buffer.take()
            if not events and not self.recording:
                return
            with trio.move_on_after(_MOST_SECONDS, shield=True):
                try:
                    await self._append(events)
                except Exception as error:  # whatever it is, it must not stop the broker
                    self.buffer.lost(events)
                    self._failed(error)
                except trio.Cancelled:
                    self.buffer.lost(events)
                    self._failed(StorageError("the log took too long"))
                    raise
                else:
                    self._written += len(events)
                    self._worked()

    def _worked(self) -> None:
        if self._failing is not None:
            logger.warning("the history of messages is written again")
        self._failing = None

    async def _append(self, events: Sequence[Event]) -> None:
        subject = self._subject
        if subject is None or subject.deleted:
            subject = self._subject = await self._subjects.make_actions()
        if self._log.log.fenced is not None:
            raise self._log.log.fenced
        if not events:
            return
        if len(events) > FEW:
            made = await in_thread(HISTORY, lambda: list(batches(events)))
        else:
            made = list(batches(events))
        await self._log.wait_produce_unblocked()
        for batch in made:
            self._log.append_nowait(subject, memoryview(batch))
        self._log.write_nowait()
        self._bytes += sum(map(len, made))

    def _failed(self, error: Exception) -> None:
        self._failing = str(error)
        if not isinstance(error, ANSWERABLE):
            self._failing = f"{type(error).__name__}: {error}"
            if self._fault != self._failing:
                logger.error("a fault in the history of messages", exc_info=error)
            self._fault = self._failing
        self.buffer.news.set()  # so that it is tried again
        text = f"the history of messages cannot be written, events are dropped: {self._failing}"
        self._complaints.error("failing", text)

    # --- numbers ---------------------------------------------------------------------------------

    def statistics(self) -> HistoryStatistics:
        buffer = self.buffer
        return HistoryStatistics(
            recording=self.recording,
            events=buffer.recorded,
            written=self._written,
            bytes=self._bytes,
            missed=buffer.missed,
            waiting=len(buffer),
            failing=self._failing,
        )
