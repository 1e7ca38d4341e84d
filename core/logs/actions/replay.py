"""Reading the action log back: replay, and telling a tear from corruption.

Every action goes through `Groups.apply`, as when it was done. The *border* is the highest synced end that
any valid frame or the file `synced` names: all below it was on disk once. It decides, as in the message
log (messages/recovery/opening.py):

- Bad and not below the border: a tear, the end of a write that was cut off. It is cut off with all that
  follows, segments included.
- Bad and below it: corruption. It is reported with file, position, expected and found, and the groups and
  subjects that it names. One wrong bit is put right (mending.py). Otherwise the actions in that frame are
  lost and all others count. An action that no longer fits the state is skipped, with an error in the log.
  Messages in doubt are delivered once more: all that were leased at that point, since one of them may have
  been given back to be retried (core/delivery/progress.py).
- What the disk cannot read (EIO, also when asked again) and lies below the border is a bad frame like any
  other. If it does not lie below, it is no tear: it may have been synced. So the log is not opened, and
  one line says how to give up what cannot be read (unreadable.py).
- Any other error says nothing about the data: the log is not opened.
- A segment of which nothing can be read is not damage but a dead disk: the log is not opened, rather than
  opened with no groups.
- A segment with damage is left as it is, and a new one is begun. Once its snapshot is complete, no start
  reads the damaged one again.

Nothing is changed on disk until it is clear from which segment to read: `run` reads, `cut` cuts.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

from kumquat.core.delivery import actions as kinds
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.state import Groups
from kumquat.core.errors import StartError
from kumquat.core.logs.actions.format import (
    ACTIONS,
    HEADER,
    HEADER_SIZE,
    KIND_NAMES,
    MAGIC,
    SNAPSHOT,
    SNAPSHOT_END,
    SYNCED_NAME,
    SYNCED_SIZE,
    VERSION,
    FrameHeader,
    parse_actions,
    parse_synced,
    payload_damage,
)
from kumquat.core.logs.actions.mending import mended
from kumquat.core.logs.actions.scan import ActionFrames
from kumquat.core.logs.actions.segment import ActionSegment
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.local_commit import rewrite_unsynced
from kumquat.core.logs.disk.segment_file import MISSING
from kumquat.core.logs.disk.unreadable import read_around

log = logging.getLogger("kumquat.actions")

_NAMED = re.compile(rb'\["[a-z]+",(\d+)(?:,(\d+))?')
"""The beginning of an action: the ids of its group and, as a rule, of its subject."""
_MOST_NAMED = 5


class Replay:
    """One reading of the log from segment number `start` on. It changes no file."""

    def __init__(
        self, files: Files, directory: Path, segments: list[ActionSegment], start: int
    ) -> None:
        self.groups = Groups()
        self.reports: list[str] = []
        self.damages = 0
        self.doubted: dict[tuple[str, int], int] = {}
        """Group and subject id → messages that are delivered once more, since actions are lost."""
        self.needs_older = False
        """The first segment's snapshot is not there, or not whole."""
        self._files = files
        self._directory = directory
        self._segments = segments
        self._start = start
        self._border = self._synced_file()
        self._all_looked_at = False
        self._unseen: StartError | None = None
        """What the look behind a bad frame could not read of later segments."""
        self._torn: tuple[int, int, str] | None = None
        """The number of the segment that is torn, the position, and what is wrong there."""
        self._end = self._border
        self._unreachable = False

    def _synced_file(self) -> int:
        try:
            fd = self._files.open(self._directory / SYNCED_NAME, readonly=True)
        except FileNotFoundError:
            return 0
        try:
            return parse_synced(read_around(self._files, fd, SYNCED_SIZE, 0)[0])
        finally:
            self._files.close(fd)

    def run(self) -> None:
        if not self._segments and self._border:
            self._damaged(f"{self._directory}: the segments are gone: what groups did is not known")
        for i in range(self._start, len(self._segments)):
            if not self._run_segment(i):
                break
        if self._segments and not self._segments[self._start].snapshot_complete:
            self.needs_older = True

    def _run_segment(self, i: int) -> bool:
        """False: the log is torn in this segment."""
        segment = self._segments[i]
        segment.snapshot_complete = False
        following = self._segments[i + 1].base if i + 1 < len(self._segments) else None
        with ActionFrames(self._files, segment, readonly=True) as frames:
            frames.check_readable()
            position = segment.base
            while position != following:
                position = self._run_window(segment, frames, position)
                if position == following:
                    break
                header = frames.header_at(position)
                bad = header if isinstance(header, str) else self._frame(segment, frames, header)
                if bad is None:
                    assert isinstance(header, FrameHeader)
                    position = header.end
                elif position < self._final_border(frames, i, position):
                    after = self._mend(segment, frames, position)
                    if after is not None:
                        position = after
                        continue
                    position = self._step_over(segment, frames, position, header, bad, following)
                    if self._unreachable:
                        break
                else:
                    self._check_cut(i, frames, position)
                    blank = following is None and frames.is_blank_from(position)
                    self._torn = (i, position, "" if blank else bad)
                    segment.end = self._end = position
                    return False
        segment.end = self._end = position
        return True

    def _run_window(self, segment: ActionSegment, frames: ActionFrames, position: int) -> int:
        """Apply frames as long as nothing is out of the ordinary, and give the position of the first that
        deserves a closer look. The same as `_frame` on each, in one loop: there may be a million."""
        window, at = frames.window(position)
        unpack, apply, border = HEADER.unpack_from, self._apply, self._border
        while at + HEADER_SIZE <= len(window):
            magic, version, kind, _, length, payload_crc, where, synced, time, crc = unpack(
                window, at
            )
            end = at + HEADER_SIZE + length
            if (
                (magic, version, where) != (MAGIC, VERSION, position)
                or kind not in (ACTIONS, SNAPSHOT)
                or end > len(window)
                or crc32c(window[at : at + HEADER_SIZE - 4]) != crc
            ):
                break
            payload = window[at + HEADER_SIZE : end]
            if crc32c(payload) != payload_crc:
                break
            try:
                actions = parse_actions(payload)
            except ValueError:
                break
            self.groups.now_ms = time
            for action in actions:
                apply(segment, position, action)
            border = max(border, synced)
            position += end - at
            at = end
        self._border = border
        return position

    def _frame(
        self, segment: ActionSegment, frames: ActionFrames, header: FrameHeader
    ) -> str | None:
        """Apply a frame; or say why it cannot be."""
        if header.version > VERSION or header.kind not in KIND_NAMES:
            raise StartError(
                f"{segment.path}: the frame at position {header.position} has format version "
                f"{header.version}, kind {header.kind}: it was written by a newer Kumquat"
            )
        payload = frames.payload_of(header)
        bad = frames.unreadable(header.position, header.end) or payload_damage(header, payload)
        if bad is not None:
            return bad
        try:
            actions = parse_actions(payload)
        except ValueError as error:
            return f"no JSON: {error}"
        self._take(segment, header, actions)
        return None

    def _take(self, segment: ActionSegment, header: FrameHeader, actions: list[Action]) -> None:
        self._border = max(self._border, header.synced_end)
        self.groups.now_ms = header.time
        for action in actions:
            self._apply(segment, header.position, action)
        if header.kind == SNAPSHOT_END:
            segment.snapshot_complete = True
            segment.snapshot_end = header.end

    def _apply(self, segment: ActionSegment, position: int, action: Action) -> None:
        try:
            self.groups.apply(action)
        except Exception as error:
            self.reports.append(
                f"{segment.path}: the action {action} at position {position} does not fit what is "
                f"known and is passed over ({type(error).__name__}: {error})"
            )
        else:
            if type(action) is kinds.Group:
                self.groups.by_id[action.gid].snapshot = segment.base

    # --- damage ------------------------------------------------------------------------------------

    def _final_border(self, frames: ActionFrames, i: int, position: int) -> int:
        """The border after a look at all that lies behind a bad frame."""
        if position >= self._border and not self._all_looked_at:
            self._all_looked_at = True
            self._look_through(frames, position + 1)
            for later in self._segments[i + 1 :]:
                with ActionFrames(self._files, later, readonly=True) as its_frames:
                    self._look_through(its_frames, later.base)
                    self._unseen = self._unseen or its_frames.refused(later.base)
        return self._border

    def _check_cut(self, i: int, frames: ActionFrames, position: int) -> None:
        """StartError: a part of what is to be cut off cannot be read. It may have been synced."""
        if self._unseen is not None:
            raise self._unseen
        frames.check_readable_from(position)
        for later in self._segments[i + 1 :]:
            with ActionFrames(self._files, later, readonly=True) as its_frames:
                its_frames.check_readable_from(later.base)

    def _look_through(self, frames: ActionFrames, position: int) -> None:
        while (header := frames.next_header(position)) is not None:
            self._border = max(self._border, header.synced_end)
            position = header.end

    def _mend(self, segment: ActionSegment, frames: ActionFrames, position: int) -> int | None:
        """Apply a frame of which one bit is wrong, and give where the next one begins; None when more is
        wrong with it."""
        found = mended(frames, position)
        if found is None or found[0].version > VERSION or found[0].kind not in KIND_NAMES:
            return None
        header, payload, byte = found
        actions = parse_actions(payload)
        self._damaged(
            f"{segment.path}: one bit of the frame at position {position} ({KIND_NAMES[header.kind]}"
            f"{self._concerns(payload)}) is wrong, in byte {byte - segment.base} of the file. Its checksum "
            "tells which: it is put right, and nothing is lost. Check the disk and the memory"
        )
        self._take(segment, header, actions)
        return header.end

    def _concerns(self, payload: bytes) -> str:
        """Groups and subjects that a frame names, as far as that can be read."""
        pairs = dict.fromkeys((int(g), int(s or 0)) for g, s in _NAMED.findall(payload))
        names = []
        for gid, subject_id in [pair for pair in pairs if pair[0] in self.groups.by_id][
            :_MOST_NAMED
        ]:
            name = f"group {self.groups.by_id[gid].name!r}"
            names.append(f"{name}, subject {subject_id}" if subject_id else name)
        return f": {'; '.join(names)}" if names else ""

    def _doubt(self) -> None:
        """Actions are lost, and nothing tells of which group. One may have said that a message is to be
        delivered again: a later ack of its member must not count for it."""
        for group in self.groups.by_id.values():
            for subject_id, progress in group.progress.items():
                count = progress.doubt()
                if count:
                    self.doubted[group.name, subject_id] = (
                        self.doubted.get((group.name, subject_id), 0) + count
                    )

    def _step_over(
        self,
        segment: ActionSegment,
        frames: ActionFrames,
        position: int,
        header: FrameHeader | str,
        bad: str,
        following: int | None,
    ) -> int:
        """Report the damaged frame, and give the place of the next one."""
        kind = ""
        if isinstance(header, FrameHeader):
            kind = f" ({KIND_NAMES[header.kind]}{self._concerns(frames.payload_of(header))})"
        if isinstance(header, str) and following is None and frames.is_blank_from(position):
            bad = MISSING.format(end=self._border)
        self._damaged(
            f"{segment.path}: corruption at position {position}{kind} (byte {position - segment.base} of "
            f"the file): {bad}"
        )
        if isinstance(header, str) or header.kind != ACTIONS:
            self._lost_snapshot(segment, header)
        if isinstance(header, FrameHeader):
            if header.kind == ACTIONS:
                self._doubt()
            return header.end
        found = frames.next_header(position + 1)
        behind = following if found is None else found.position
        if behind is not None:
            self._doubt()
            return behind
        self._unreachable = True
        return max(frames.end, self._border)

    def _lost_snapshot(self, segment: ActionSegment, header: FrameHeader | str) -> None:
        if segment is self._segments[self._start] and not segment.snapshot_complete:
            self.needs_older = True
        if isinstance(header, FrameHeader) and header.kind == SNAPSHOT_END:
            segment.snapshot_complete = True
            segment.snapshot_end = header.end

    def _damaged(self, line: str) -> None:
        self.damages += 1
        self.reports.append(line)

    def report(self) -> None:
        """Log what is wrong, as errors. The state is what the rest makes."""
        for line in self.reports:
            log.error("%s", line)
        first = self._segments[self._start] if self._segments else None
        if self.needs_older and first is not None and (first.base or self.damages):
            log.error(
                "%s: its snapshot is not whole, and there is no older segment that is: groups that are not "
                "in it begin again",
                first.path,
            )

    # --- ready to write ------------------------------------------------------------------------------

    def cut(self) -> tuple[list[ActionSegment], int, bool]:
        """Cut off the tear and sync the rest, written once more above the border as in the message log: the
        segments, where the log ends, and whether a new segment must be begun there."""
        segments = self._segments
        if self._torn is not None:
            i, position, bad = self._torn
            if bad:
                log.warning(
                    "%s: the last write was cut off at position %d (%s); what follows was never answered "
                    "for and is dropped",
                    segments[i].path,
                    position,
                    bad,
                )
            kept = i + 1 if position > segments[i].base else i
            for dropped in segments[kept:]:
                with suppress(FileNotFoundError):
                    self._files.unlink(dropped.path)
            segments = segments[:kept]
        for segment in segments[self._start :]:
            with ActionFrames(self._files, segment) as frames:
                if self._torn is not None and segment is segments[-1]:
                    frames.truncate(self._end)
                rewrite_unsynced(frames, self._border, segment.end)
        self._files.fsync_dir(self._directory)
        return segments, self._end, bool(self.damages)
