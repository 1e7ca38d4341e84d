"""The task that keeps the index of keys up to date. A thin Trio shell.

While a subject has `index.keys`, it looks once in LOOK_SECONDS for sealed segments whose file does not
answer for all such subjects: a new segment, a config that was just set, a file that was lost or
damaged. It makes one file at a time, in a thread, in steps of STEP_SECONDS, and rests between them so
that it takes at most a fifth of a core. While no subject has the config, it waits and does nothing.

What cannot be made now (the disk is full, no descriptors, a read that fails, a fault of ours) is logged
once a minute, and tried again after RETRY_SECONDS, then after twice as long, and so on; other segments go
on. Searches scan meanwhile. Whatever goes wrong, it does not end the broker.
"""

from __future__ import annotations

from functools import partial

import trio

from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.messages.format import KEYS_SUFFIX
from kumquat.core.logs.messages.index import IndexDamaged
from kumquat.core.logs.messages.keys.build import Build, Wanted, wanted_in
from kumquat.core.logs.messages.keys.files import KeyFiles, log
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.pools import KEYS, in_thread

LOOK_SECONDS = 1.0
STEP_SECONDS = 0.01
REST_SECONDS = 4 * STEP_SECONDS
"""How long it rests behind a step, at the least. Where a step takes longer, because of the disk or because
the machine is busy, it rests as long."""
RETRY_SECONDS = 10.0
MOST_SECONDS = 600.0


class KeyIndex:
    def __init__(self, log: MessageService, files: KeyFiles | None = None) -> None:
        self._log = log
        self.files = files or KeyFiles(log.log.open_files)
        self._subjects: set[Subject] = {s for s in log.subjects if s.config.index_keys}
        self._changed = trio.Event()
        self._version = 0
        """Of `_subjects`: goes up when one is added. There may be 100,000, too many to compare."""
        self._complete: dict[int, int] = {}
        """By the base of a segment: the version for all of whose subjects its file is known to answer."""
        self._failed: dict[int, tuple[float, float]] = {}
        """By the base of a segment: when to try again, and how long was waited."""

    def config_changed(self, subject: Subject) -> None:
        """Its `index.keys` may have been set or reset."""
        if subject.config.index_keys:
            self._subjects.add(subject)
            self._version += 1
            self._changed.set()
        else:
            self._subjects.discard(subject)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._tidy()
        task_status.started()
        while True:
            if not self._subjects:
                self._changed = trio.Event()
                await self._changed.wait()
            await self.look()
            await trio.sleep(LOOK_SECONDS)

    async def _tidy(self) -> None:
        try:
            await in_thread(KEYS, self._remove_orphans)
        except Exception as error:  # a thread that cannot be started, too
            directory = self._log.log.state.directory
            log.warning("files of keys in %s cannot be tidied up: %s", directory, error)

    def _remove_orphans(self) -> None:
        """Blocks: delete files of keys whose segments are gone. A power cut may bring one back."""
        state, files = self._log.log.state, self._log.log.files
        known = {segment.keys_path.name for segment in state.segments}
        for name in files.listdir(state.directory):
            if name.endswith(KEYS_SUFFIX) and name not in known:
                files.unlink(state.directory / name)

    # --- one look at all segments --------------------------------------------------------------

    async def look(self) -> None:
        """Make what is missing and can be made now, newest segments first."""
        segments = self._log.log.state.segments
        bases = {segment.base for segment in segments}
        self._complete = {base: done for base, done in self._complete.items() if base in bases}
        self._failed = {base: when for base, when in self._failed.items() if base in bases}
        due = [segment for segment in reversed(segments[:-1]) if self._is_due(segment)]
        if due:
            self._subjects = {subject for subject in self._subjects if not subject.deleted}
        for segment in due:
            await self._make(segment)

    def _is_due(self, segment: Segment) -> bool:
        sealed = segment.unindexed is None and segment.newest_store_time >= 0
        due = self._failed.get(segment.base, (0.0, 0.0))[0]
        known = self._complete.get(segment.base, -1)
        wanted = self.files.is_damaged(segment) or known < self._version
        return sealed and trio.current_time() >= due and wanted

    async def _make(self, segment: Segment) -> None:
        version, subjects = self._version, set(self._subjects)
        try:
            reader = self._log.reader
            wanted = await in_thread(KEYS, wanted_in, reader, self.files, segment, subjects)
            if wanted:
                await self._build(segment, wanted)
        except Exception as error:  # whatever it is, it must not stop the broker
            if segment in self._log.log.state.segments:
                self._note_failure(segment, error)
            return
        self._complete[segment.base] = version
        self._failed.pop(segment.base, None)

    def _note_failure(self, segment: Segment, error: Exception) -> None:
        waited = self._failed.get(segment.base, (0.0, 0.0))[1]
        wait = min(MOST_SECONDS, max(RETRY_SECONDS, 2 * waited))
        self._failed[segment.base] = (trio.current_time() + wait, wait)
        if not isinstance(error, (KumquatError, OSError, IndexDamaged)):
            log.error("a fault while %s was made", segment.keys_path, exc_info=error)
        self.files.complaints.error(
            ("make", segment.base),
            f"{segment.keys_path} cannot be made for now: {error}. It is tried again; searches by key "
            "take longer until then",
        )

    async def _build(self, segment: Segment, wanted: list[Wanted]) -> None:
        limit = self._log.log.options.max_decompressed_bytes
        build = Build(self._log.reader, self.files, segment, wanted, limit)
        try:
            began = trio.current_time()
            while not await in_thread(KEYS, partial(build.step, STEP_SECONDS)):
                took = min(1.0, trio.current_time() - began)
                await trio.sleep(max(REST_SECONDS, took))
                began = trio.current_time()
        finally:
            build.abandon()
        if segment not in self._log.log.state.segments:
            await self._tidy()
            raise StorageError(f"{segment} was deleted meanwhile")
