"""Both logs and the task that writes dead letters, without a gateway, on any files.

    async with rig(files) as it:
        it.produce("orders", b"a", b"b")
        it.doom("g", "orders", [[0, 1, 16]])
        await it.until(lambda: it.letters("orders.g.dlq") == …)

`until` looks again after each append to the action log, and when the task says that something fails:
nothing polls.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import trio

from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.dead_letters.join import Joiner
from kumquat.core.delivery.dead_letters.opening import open_joined
from kumquat.core.delivery.dead_letters.service import DeadLetters, NotMade
from kumquat.core.logs.actions.service import ActionService
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.reader import Reader
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.tests.batches import batch
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.records import Record, read_head, records_of

PATIENCE = 60.0


@dataclass
class Config:
    dead_letter_subject: str = ""


def open_logs(files: FakeFiles, **changed: int) -> tuple[MessageService, ActionService, Joiner]:
    """As the broker does at a start. The lock is a real file: each test has a folder of its own."""
    options = LogOptions(
        directory=files.directory, segment_bytes=6_000, reserve_bytes=4_096, tail_bytes=2_000
    )
    options = replace(options, **changed)  # type: ignore[arg-type]
    log, _, actions, joiner = open_joined(
        lambda join: (MessageService.open(options, files, join=join), None), segment_bytes=6_000
    )
    return log, actions, joiner


def read_all(log: MessageService, name: str) -> list[Record]:
    """What lies in a subject, as far as readers see it."""
    subject = log.subjects.by_name.get(name)
    found: list[Record] = []
    if subject is None:
        return found
    at, reader = subject.earliest, Reader(log.log)
    while at < subject.readable_end:
        for data in reader.read(subject, at, 1 << 20, True, nowait=False):
            found += records_of(memoryview(data), 1 << 20)
            head = read_head(data)
            at = head.base_offset + head.last_offset_delta + 1
    return found


def doomed_of(actions: ActionService, group: str, subject_id: int) -> set[int]:
    found = actions.groups.by_name.get(group)
    progress = found.progress.get(subject_id) if found is not None else None
    if progress is None:
        return set()
    return {at for each in progress.doomed.values() for at in range(each.first, each.end)}


@dataclass
class Rig:
    files: FakeFiles
    log: MessageService
    actions: ActionService
    joiner: Joiner
    config: Config = field(default_factory=Config)
    refuse: str = ""
    """Why subjects for letters cannot be made."""

    def __post_init__(self) -> None:
        self.changed = trio.Event()
        self._doomed: set[tuple[int, int]] = set()
        self._doom = trio.Event()
        self.dead = DeadLetters(
            self.actions,
            self.log,
            self.joiner,
            append=self.append,
            config=lambda name: self.config,
            make=self.make,
            wait_doomed=self.wait_doomed,
        )

    def append(self, changes: Sequence[Action]) -> int:
        position = self.actions.append_nowait(changes)
        for action in changes:
            if isinstance(action, kinds.Doom):
                self._doomed.add((action.gid, action.subject_id))
                self._doom.set()
        self.look()
        return position

    def look(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def wait_doomed(self) -> list[tuple[int, int]]:
        await self._doom.wait()
        found, self._doomed, self._doom = list(self._doomed), set(), trio.Event()
        return found

    async def make(self, name: str, origin: Subject) -> Subject:
        self.look()
        if self.refuse:
            raise NotMade(self.refuse)
        return self.subject(name)

    # --- what a test does ------------------------------------------------------------------------

    def subject(self, name: str) -> Subject:
        found = self.log.subjects.by_name.get(name)
        return found if found is not None else self.log.create_subject_nowait(name)

    async def produce(self, name: str, *values: bytes, data: bytearray | None = None) -> int:
        """One batch; gives its base sequence when it is durable."""
        made = data if data is not None else batch(*values)
        appended = self.log.append_nowait(self.subject(name), memoryview(made))
        await self.log.wait_synced()
        return appended.base_sequence

    def group(self, name: str) -> int:
        found = self.actions.groups.by_name.get(name)
        if found is not None:
            return found.id
        gid = self.actions.groups.next_id
        self.append([kinds.Group(gid, name)])
        return gid

    def doom(
        self,
        group: str,
        name: str,
        ranges: list[list[int]],
        reason: str = kinds.ATTEMPTS,
        text: str = "",
    ) -> None:
        subject_id, gid = self.subject(name).id, self.group(group)
        changes: list[Action] = [kinds.Doom(gid, subject_id, 0, ranges, reason, text)]
        if subject_id not in self.actions.groups.by_id[gid].progress:
            changes.insert(0, kinds.Share(gid, subject_id, 0))
        self.append(changes)

    def letters(self, name: str) -> list[Record]:
        return read_all(self.log, name)

    def open(self, group: str, name: str) -> set[int]:
        """Messages that are doomed still."""
        return doomed_of(self.actions, group, self.subject(name).id)

    async def until(self, true: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE):
            while not true():
                await self.changed.wait()

    async def written(self, group: str, name: str) -> None:
        """Until all that is doomed has its letter, and both logs know."""
        gid, subject_id = self.group(group), self.subject(name).id
        await self.until(lambda: not self.actions.groups.by_id[gid].progress[subject_id].doomed)
        await self.actions.wait_synced()


class Said(logging.Handler):
    """The task has said something."""

    def __init__(self, it: Rig) -> None:
        super().__init__()
        self._it = it

    def emit(self, record: logging.LogRecord) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(self._it.look)


@asynccontextmanager
async def rig(files: FakeFiles, **changed: int) -> AsyncIterator[Rig]:
    log, actions, joiner = open_logs(files, **changed)
    it = Rig(files, log, actions, joiner)
    said = Said(it)
    logging.getLogger("kumquat.dead_letters").addHandler(said)
    async with trio.open_nursery() as nursery:
        log_scope = trio.CancelScope(shield=True)

        async def run_log(task_status: trio.TaskStatus[None]) -> None:
            with log_scope:
                await log.run(task_status)

        await nursery.start(run_log)
        try:
            async with trio.open_nursery() as inner:
                await inner.start(actions.run)
                await inner.start(it.dead.run)
                yield it
                inner.cancel_scope.cancel()
        finally:
            logging.getLogger("kumquat.dead_letters").removeHandler(said)
            log_scope.cancel()
