"""Merges schedule files: small ones become larger ones, and what is finished goes. A task of its own.

While a part of the schedule cannot be read, nothing is merged: it is read again from the files that there
are (loader.py). A merge that fails is tried again later, so that it does not keep others from being merged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.pools import FILL, in_thread
from kumquat.core.wheel.files.file_set import FileSet
from kumquat.core.wheel.schedule.schedule import Schedule

log = logging.getLogger("kumquat.delay")

LOOK_SECONDS = 1.0
RETRY_SECONDS = 30.0
"""When files that could not be merged are tried again: a merge may read a lot before it fails."""


class Merger:
    def __init__(
        self,
        message_log: MessageService,
        schedule: Schedule,
        file_set: FileSet,
        lock: trio.Lock,
        now_ms: Callable[[], int],
    ) -> None:
        self._log = message_log
        self._schedule = schedule
        self._file_set = file_set
        self._lock = lock
        self._now_ms = now_ms
        self._again_at = 0.0
        self._complaints = Complaints(log)

    async def run(self) -> None:
        while True:
            try:
                if not self._file_set.empty:  # as in most brokers: no thread wakes in vain
                    await self._merge_and_remove()
            except Exception as error:  # also an unforeseen one: it must not end the broker
                text = "schedule files cannot be merged at the moment; they are tried again, others go on"
                self._complaints.error("merge", f"{text}: {error!r}")
            if trio.current_time() >= self._again_at:
                self._again_at = trio.current_time() + RETRY_SECONDS
                self._file_set.put_off.clear()
            await trio.sleep(LOOK_SECONDS)

    async def _merge_and_remove(self) -> None:
        while await self._merge():
            pass
        spare = self._file_set.unused(self._schedule.wheel.files_in_use())
        await in_thread(FILL, self._file_set.remove, spare)

    async def _merge(self) -> bool:
        """A merge leaves out what is delivered, and subjects that are deleted, as far as that is written. A
        power cut can undo it until it is synced: only then may the merged file replace the others."""
        file_set, schedule = self._file_set, self._schedule
        if schedule.unloaded:
            return False
        until = self._finished_until()
        inputs = await in_thread(FILL, file_set.plan, until)
        if not inputs:
            return False
        live = self._log.subjects.by_id.__contains__
        merged = await in_thread(FILL, file_set.merge, inputs, until, live)
        try:
            await self._log.wait_synced(self._log.log.written_end)
        except BaseException:
            file_set.discard(merged)
            raise
        async with self._lock:
            if schedule.unloaded:  # it is read again from the files that there were
                file_set.discard(merged)
                return False
            manifest = await in_thread(FILL, file_set.list_merged, inputs, merged)
            file_set.replace(inputs, merged, manifest)
        return True

    def _finished_until(self) -> int:
        """What is due earlier may be left out."""
        if self._file_set.has_tombstones:
            # The entry that a tombstone takes out may lie in another file: after a restart only W says that
            # it is finished, as it is in the manifest. The schedule's own may be further on.
            return self._file_set.manifest.delivered_until[0]
        return self._schedule.settled_until(self._now_ms())
