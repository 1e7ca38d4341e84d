"""The action log: appending, group commit, rolling. Synchronous: no clock of its own, no Trio.

`append` writes one frame with one pwrite and then applies its actions to the groups; a write that fails
changes nothing. A sync covers all that is written when it begins: `begin_sync` gives a job, whose `run`
blocks and belongs in another thread, and `finish_sync` takes it back. A failed sync fences the log.

Handing out messages need not be synced before they are sent. But no more than one JUMP of them may be
unsynced at a time: that is how far pull logs leap after an unclean start, so that no pull offset ever names
two messages. Beyond it `append` refuses.

A new segment is begun at once, and its snapshot is written little by little (`snapshot_step`): see
actions/format.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.actions import OF_NO_GROUP, Action
from kumquat.core.delivery.progress import JUMP
from kumquat.core.delivery.state import Group, Groups
from kumquat.core.errors import KumquatError, StorageError
from kumquat.core.logs.actions.format import (
    ACTIONS,
    SEGMENT_START,
    SNAPSHOT,
    SNAPSHOT_END,
    SYNCED_NAME,
    UNNAMED,
    pack_frame,
)
from kumquat.core.logs.actions.sync import ActionSegment, ActionSyncJob
from kumquat.core.logs.disk.files import Files

log = logging.getLogger("kumquat.actions")

Callback = Callable[[KumquatError | None], None]

SEGMENT_BYTES = 16 << 20
"""A start reads one segment, in about a second."""
RESERVE_BYTES = 4 << 20
ROLL_RETRY_MS = 1_000
"""How long a segment that could not be begun is not tried again."""
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
        self.synced_end = 0
        self.written_end = 0
        self.fenced: StorageError | None = None
        self.now_ms = now_ms
        self._segment_bytes = segment_bytes
        self._reserve_bytes = reserve_bytes
        self._fd = -1
        self._synced_file: int | None = None
        self._reserved = 0
        self._failing = False
        self._rolled: list[tuple[int, int]] = []
        self._folder = files.open_dir(directory)
        self._directory_dirty = False
        self._no_roll_before = 0
        self._job: ActionSyncJob | None = None
        self._waiting: deque[tuple[int, Callback]] = deque()
        self._pulled = self._pulled_syncing = 0
        """Messages handed out in frames that no sync covers yet, and that the one under way does."""
        self._groups_left: deque[Group] = deque()
        self._subjects_left: deque[int] = deque()
        """What the snapshot of the active segment still lacks."""

    @property
    def active(self) -> ActionSegment:
        return self.segments[-1]

    @property
    def unsynced_bytes(self) -> int:
        return self.written_end - self.synced_end

    # --- opening and closing -----------------------------------------------------------------------

    def resume(self, segments: list[ActionSegment], end: int, again: bool) -> None:
        """Go on behind `end`, all below which is synced; in a new segment if there is none, or `again`."""
        self.segments = segments
        self.synced_end = self.written_end = end
        self._synced_file = self.files.open(self.directory / SYNCED_NAME, create=True)
        if again or not segments:
            self.roll()
            return
        self._fd = self.files.open(self.active.path)
        self._reserved = end - self.active.base
        if not self.active.snapshot_complete:
            self._plan_snapshot()

    def close(self) -> None:
        """Blocks: say that the log was stopped, sync it, and close the files. No job may be under way."""
        with suppress(OSError, StorageError):
            if self.fenced is None:
                self.append([kinds.Stopped()])
                self.sync()
                self.files.truncate(self._fd, self.active.end - self.active.base)
        for fd in [fd for fd, _ in self._rolled] + [self._fd, self._synced_file, self._folder]:
            if fd is not None and fd >= 0:
                with suppress(OSError):
                    self.files.close(fd)
        self.fenced = self.fenced or StorageError("the action log is closed: the broker stops")
        self._call_waiting(self.fenced)

    # --- writing -----------------------------------------------------------------------------------

    def append(self, actions: Sequence[Action]) -> int:
        """Write the actions and apply them; they are durable when the log is synced up to the position
        that is given. StorageError: nothing has happened."""
        if self.fenced is not None:
            raise self.fenced
        pulled = self._count_pulled(actions)
        fresh = self._groups_to_tell(actions)
        frames = [(SNAPSHOT, self.groups.snapshot(group)) for group in fresh]
        self._write([*frames, (ACTIONS, actions)])
        self._pulled += pulled
        for group in fresh:
            group.snapshot = self.active.base
        self._apply(actions)
        end = self.written_end
        self._roll_if_full()
        return end

    def _count_pulled(self, actions: Sequence[Action]) -> int:
        pulled = sum(sum(part[1] for part in a.ranges) for a in actions if type(a) is kinds.Pull)
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
        for action in actions:
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
        at = self.written_end
        now = self.groups.now_ms = self.now_ms()
        packed = []
        for kind, actions in frames:
            packed.append(pack_frame(kind, actions, at, self.synced_end, now))
            at += len(packed[-1])
        base = self.active.base
        try:
            if self._failing:
                self.files.truncate(self._fd, self.written_end - base)
                self._reserved = self.written_end - base
            if at - base > self._reserved:
                self._reserve(at - base)
            self.files.pwritev(self._fd, packed, self.written_end - base)
        except OSError as error:
            if not self._failing:
                log.error("cannot write to %s: %s", self.active.path, error)
            self._failing = True
            reason = error.strerror or error
            raise StorageError(f"the action log cannot be written: {reason}") from error
        if self._failing:
            self._failing = False
            log.warning("%s can be written again", self.active.path)
        self.active.end = self.written_end = at

    def _reserve(self, need: int) -> None:
        """Make room on disk up to `need`; and for a while to come, if there is so much."""
        for upto in (max(need, self._reserved + self._reserve_bytes), need):
            try:
                self.files.reserve(self._fd, self._reserved, upto - self._reserved)
            except OSError:
                if upto == need:
                    raise
            else:
                self._reserved = upto
                return

    # --- rolling and snapshots -----------------------------------------------------------------------

    def _roll_if_full(self) -> None:
        active = self.active
        if (
            self.written_end - active.snapshot_end < self._segment_bytes
            or not active.snapshot_complete
            or self.synced_end < active.snapshot_end
            or self.now_ms() < self._no_roll_before
        ):
            return
        try:
            self.roll()
        except OSError as error:
            log.error("no new segment: %s; going on in %s", error, active.path)
            self._no_roll_before = self.now_ms() + ROLL_RETRY_MS

    def roll(self) -> None:
        """Begin a new segment. OSError leaves all as it was: its name is given to the file last, so that
        a segment that came to nothing is never taken for one."""
        new = ActionSegment(self.directory, self.written_end)
        numbers = kinds.Numbers(self.groups.next_id, self.groups.floor)
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
        if self._fd >= 0:
            self._rolled.append((self._fd, self.active.end - self.active.base))
        self._fd, self._reserved, self._failing = fd, len(frame), False
        self._directory_dirty = True
        self.segments.append(new)
        new.end = self.written_end = new.base + len(frame)
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
        slots = [self.groups.snapshot_slots(sid) for sid in subjects if sid in numbers]
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
        """Segments that nothing hangs on any more: to be deleted by the caller."""
        obsolete = self._obsolete()
        del self.segments[: len(obsolete)]
        return obsolete

    # --- syncing -----------------------------------------------------------------------------------

    def begin_sync(self) -> ActionSyncJob | None:
        """What is to be synced now; None when all is, when a sync runs, or when the log is fenced."""
        if self._job is not None or self.fenced is not None or not self.unsynced_bytes:
            return None
        folder = self._folder if self._directory_dirty else None
        self._job = ActionSyncJob(
            self.files,
            self.written_end,
            self._pulled,
            self._rolled,
            self._fd,
            folder,
            self._synced_file,
        )
        self._pulled_syncing, self._pulled = self._pulled, 0
        self._rolled = []
        self._directory_dirty = False
        return self._job

    def finish_sync(self, job: ActionSyncJob, error: OSError | None = None) -> None:
        """The job was run: those who wait for what it covers are called."""
        assert job is self._job
        self._job = None
        if error is not None:
            self._fence(error)
            return
        self._pulled_syncing = 0
        self.synced_end = job.target
        self._call_waiting(None)

    def sync(self) -> None:
        """Blocks: all of a round at once, where there is no flusher (yet or any more)."""
        job = self.begin_sync()
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            self.finish_sync(job, error)
            assert self.fenced is not None
            raise self.fenced from error
        self.finish_sync(job)

    def call_when_synced(self, position: int, callback: Callback) -> None:
        """Calls back when the log is synced up to `position` (at once if it is), or is fenced."""
        if position <= self.synced_end:
            callback(None)
        elif self.fenced is not None:
            callback(self.fenced)
        else:
            self._waiting.append((position, callback))

    def _call_waiting(self, error: KumquatError | None) -> None:
        waiting = self._waiting
        while waiting and (error is not None or waiting[0][0] <= self.synced_end):
            _, callback = waiting.popleft()
            try:
                callback(error)
            except Exception:
                log.exception("a callback after a sync failed")

    def _fence(self, error: OSError) -> None:
        log.critical(
            "sync of %s failed: %s. What was not synced may be lost, and no retry can tell: no group can "
            "commit any more. Check the disk, then restart",
            self.active.path,
            error,
        )
        self.fenced = StorageError(f"the action log is fenced: a sync failed ({error.strerror})")
        self._call_waiting(self.fenced)
