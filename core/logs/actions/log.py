"""The action log: appending, syncing, rolling. Synchronous: no clock of its own, no Trio.

`append` writes one frame and then applies its actions to the groups; a write that fails changes nothing.
How frames become durable, who waits for that, and what happens when a sync fails is the commit's business
(disk/commit.py): `begin_sync` gives a round, whose `run` blocks and belongs in another thread, and
`finish_sync` takes it back.

A message may be handed out before the action that says so is durable. But no more than one JUMP of them
may be unsynced at a time: that is how far pull logs jump ahead after an unclean start, so that no pull
offset ever names two messages. Beyond it `append` refuses.

A new segment is begun at once, and its snapshot is written in small steps (`snapshot_step`): see format.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.actions import OF_NO_GROUP, Action
from kumquat.core.delivery.pull_log import JUMP
from kumquat.core.delivery.state import Group, Groups
from kumquat.core.errors import StorageError
from kumquat.core.logs.actions.format import (
    ACTIONS,
    SEGMENT_START,
    SNAPSHOT,
    SNAPSHOT_END,
    SYNCED_NAME,
    UNNAMED,
    pack_frame,
    pack_synced,
)
from kumquat.core.logs.actions.segment import ActionSegment
from kumquat.core.logs.disk.active_file import Reserving
from kumquat.core.logs.disk.commit import Callback, Commit, Round, sync_now
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.local_commit import LocalCommit
from kumquat.core.logs.disk.rolling import Rolls

log = logging.getLogger("kumquat.actions")


class ActionObserver(Protocol):
    """Who is told what the actions of a running broker do to messages: their history. It must not raise,
    must not wait, and changes nothing."""

    def applying(self, action: Action, beside: Sequence[Action]) -> None:
        """The action is written, together with those `beside` it (itself among them), and about to be
        applied: the groups are as they were before it."""


SEGMENT_BYTES = 16 << 20
"""A start reads one segment, in about a second."""
SEGMENT_RANGES = 100_000
"""Likewise, of ranges of messages that were given back or acked one by one: small on disk, and each takes
as long as a whole commit."""
_ONE_BY_ONE = (kinds.Accept, kinds.Retry, kinds.Doom, kinds.Settle)
RESERVE_BYTES = 4 << 20
_SUBJECTS_A_FRAME = 500


class ActionLog:
    def __init__(
        self,
        groups: Groups,
        files: Files,
        directory: Path,
        now_ms: Callable[[], int],
        segment_bytes: int = SEGMENT_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self.groups = groups
        self.files = files
        self.directory = directory
        self.segments: list[ActionSegment] = []
        self.commit: Commit = LocalCommit(
            files, directory, "the action log", Reserving(reserve_bytes), log
        )
        self.now_ms = now_ms
        self._segment_bytes = segment_bytes
        self._synced_file: int | None = None
        self.rolls = Rolls(log)
        self._ranges = 0
        """Ranges since the snapshot of the active segment."""
        self._pulled = self._pulled_syncing = 0
        """Messages handed out in frames that no round covers yet, and that the one under way does."""
        self._groups_left: deque[Group] = deque()
        self._subjects_left: deque[int] = deque()
        """What the snapshot of the active segment still lacks."""
        self.doubted: dict[tuple[str, int], int] = {}
        """Where the log was damaged: see Replay."""
        self.observer: ActionObserver | None = None
        """None while nobody's history is recorded."""

    @property
    def active(self) -> ActionSegment:
        return self.segments[-1]

    @property
    def synced_end(self) -> int:
        """All below is durable."""
        return self.commit.durable

    @property
    def written_end(self) -> int:
        return self.commit.written

    @property
    def fenced(self) -> StorageError | None:
        return self.commit.fenced

    @property
    def unsynced_bytes(self) -> int:
        return self.commit.written - self.commit.durable

    # --- opening and closing -----------------------------------------------------------------------

    def resume(self, segments: list[ActionSegment], end: int, again: bool) -> None:
        """Go on behind `end`, all below which is synced; in a new segment if there is none, or `again`."""
        self.segments = segments
        self.commit.start_at(end)
        self._synced_file = self.files.open(self.directory / SYNCED_NAME, create=True)
        if again or not segments:
            self.roll()
            return
        active = self.active
        fd = self.files.open(active.path)
        self.commit.continue_in(active.path, fd, active.base, partial(self.files.close, fd))
        if not self.active.snapshot_complete:
            self._plan_snapshot()

    def close(self) -> None:
        """Blocks: say that the log was stopped, sync it, and close the files. No job may be under way."""
        with suppress(StorageError):
            if self.fenced is None:
                self.append([kinds.Stopped()])
        with suppress(StorageError):
            self.sync()
        self.commit.close()
        if self._synced_file is not None:
            with suppress(OSError):
                self.files.close(self._synced_file)

    # --- writing -----------------------------------------------------------------------------------

    def append(self, actions: Sequence[Action]) -> int:
        """Write the actions and apply them; they are durable when the log is synced up to the position
        that is given. StorageError: nothing has happened."""
        if self.commit.fenced is not None:
            raise self.commit.fenced
        pulled = self._count_pulled(actions)
        fresh = self._groups_to_tell(actions)
        frames = [(SNAPSHOT, self.groups.snapshot(group)) for group in fresh]
        self._write([*frames, (ACTIONS, actions)])
        self._pulled += pulled
        for group in fresh:
            group.snapshot = self.active.base
        self._ranges += sum(len(each.ranges) for each in actions if isinstance(each, _ONE_BY_ONE))
        self._apply(actions)
        end = self.commit.written
        self._roll_if_full()
        return end

    def _count_pulled(self, actions: Sequence[Action]) -> int:
        pulled = 0
        for action in actions:
            if type(action) is kinds.Pull:
                pulled += sum(part[1] for part in action.ranges)
        if pulled and self._pulled + self._pulled_syncing + pulled >= JUMP:
            raise StorageError(
                f"{self._pulled + self._pulled_syncing} messages were handed out since the action log "
                "was last synced: the disk does not keep up"
            )
        return pulled

    def _groups_to_tell(self, actions: Sequence[Action]) -> list[Group]:
        """Groups that these actions name and of which the active segment knows nothing yet."""
        by_id, base, found = self.groups.by_id, self.active.base, []
        for action in actions:
            if type(action) not in OF_NO_GROUP:
                group = by_id.get(action[0])  # type: ignore[arg-type,misc]
                if group is not None and group.snapshot != base and group not in found:
                    found.append(group)
        return found

    def _apply(self, actions: Sequence[Action]) -> None:
        """As replay does: one that does not fit is passed over, the others count. Then it is raised."""
        wrong: Exception | None = None
        observer = self.observer
        for action in actions:
            if observer is not None:
                observer.applying(action, actions)
            try:
                self.groups.apply(action)
            except Exception as error:
                error.add_note(f"action {action}")
                wrong = wrong or error
            if type(action) is kinds.Group and wrong is None:
                self.groups.by_id[action.gid].snapshot = self.active.base
        if wrong is not None:
            raise wrong

    def _write(self, frames: Sequence[tuple[int, Sequence[Action]]]) -> None:
        commit = self.commit
        at, durable = commit.written, commit.durable
        now = self.groups.now_ms = self.now_ms()
        packed = []
        for kind, actions in frames:
            packed.append(pack_frame(kind, actions, at, durable, now))
            at += len(packed[-1])
        self.active.end = commit.append(packed)

    # --- rolling and snapshots -----------------------------------------------------------------------

    def _roll_if_full(self) -> None:
        active = self.active
        full = (
            active.end - active.snapshot_end >= self._segment_bytes
            or self._ranges >= SEGMENT_RANGES
        )
        if (
            not full
            or not active.snapshot_complete
            or self.synced_end < active.snapshot_end
            or self.commit.in_file < self.commit.written
            or not self.rolls.may_try
        ):
            return
        self.rolls.attempt(self.roll, active.path)

    def roll(self) -> None:
        """Begin a new segment. OSError leaves all as it was: its name is given to the file last, so that
        a segment that came to nothing is never taken for one."""
        new = ActionSegment(self.directory, self.written_end)
        numbers = kinds.Numbers(self.groups.next_id, self.groups.floor, self.groups.joined)
        frame = pack_frame(SEGMENT_START, [numbers], new.base, self.synced_end, self.now_ms())
        unnamed = self.directory / UNNAMED
        fd = self.files.open(unnamed, create=True)
        try:
            self.files.truncate(fd, 0)
            self.files.reserve(fd, 0, len(frame))
            self.files.pwritev(fd, [frame], 0)
            self.files.rename(unnamed, new.path)
        except OSError:
            self.files.close(fd)
            raise
        self.commit.roll_to(new.path, fd, new.base, len(frame), partial(self.files.close, fd))
        self.segments.append(new)
        self._ranges = 0
        new.end = self.written_end
        self._plan_snapshot()

    def _plan_snapshot(self) -> None:
        base = self.active.base
        self._groups_left = deque(g for g in self.groups.by_id.values() if g.snapshot != base)
        self._subjects_left = deque(self.groups.numbers)

    @property
    def has_chores(self) -> bool:
        return not self.active.snapshot_complete or bool(self._obsolete())

    def snapshot_step(self, most: int = 50) -> bool:
        """Write some more of the snapshot; False when there is nothing to do (any more)."""
        if self.active.snapshot_complete or self.fenced is not None:
            return False
        frames: list[tuple[int, Sequence[Action]]] = []
        subjects = list(islice(self._subjects_left, _SUBJECTS_A_FRAME))
        numbers = self.groups.numbers
        slots = [
            self.groups.snapshot_slots(subject_id)
            for subject_id in subjects
            if subject_id in numbers
        ]
        groups = [] if subjects else list(islice(self._groups_left, most))
        fresh = [
            group
            for group in groups
            if self.groups.by_id.get(group.id) is group and group.snapshot != self.active.base
        ]
        if slots:
            frames.append((SNAPSHOT, slots))
        frames += [(SNAPSHOT, self.groups.snapshot(group)) for group in fresh]
        last = not subjects and len(groups) == len(self._groups_left)
        if last:
            frames.append((SNAPSHOT_END, []))
        self._write(frames)
        for group in fresh:
            group.snapshot = self.active.base
        for _ in subjects:
            self._subjects_left.popleft()
        for _ in groups:
            self._groups_left.popleft()
        if last:
            self.active.snapshot_end = self.written_end
            self.active.snapshot_complete = True
        return not last

    def _obsolete(self) -> list[ActionSegment]:
        active = self.active
        if active.snapshot_complete and self.synced_end >= active.snapshot_end:
            return self.segments[:-2]
        return []

    def take_obsolete(self) -> list[ActionSegment]:
        """Segments that no start needs any more. The caller deletes them."""
        obsolete = self._obsolete()
        del self.segments[: len(obsolete)]
        return obsolete

    # --- syncing -----------------------------------------------------------------------------------

    def begin_sync(self) -> Round | None:
        """The next round; None when all is durable, when one is under way, or when the log is fenced."""
        if not self.commit.wants_round:
            return None
        begun = self.commit.begin_round(self._note_synced, self._pulled_durable)
        self._pulled_syncing, self._pulled = self._pulled, 0
        return begun

    def finish_sync(self, ended: Round, error: OSError | None = None) -> None:
        """The round was run: those who wait for what it covers are called."""
        self.commit.end_round(ended, error)

    def sync(self) -> None:
        """Blocks: a whole round, where there is no flusher (yet, or any more)."""
        sync_now(self)

    def call_when_synced(self, position: int, callback: Callback) -> None:
        """Calls back when all below `position` is durable (at once if it is), or when the log is fenced."""
        self.commit.call_when_durable(position, callback)

    def _note_synced(self, synced_end: int) -> None:
        """Runs in the round's thread. What it writes may be lost without harm."""
        if self._synced_file is not None:
            self.files.pwritev(self._synced_file, [pack_synced(synced_end)], 0)

    def _pulled_durable(self) -> None:
        self._pulled_syncing = 0
