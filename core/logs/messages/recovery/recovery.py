"""One replay of the message log, from the segment where it begins to the log that can be written to.

opening.py says what counts as a tear, as corruption and as unreadable, and decides where a replay begins.
Here are the steps: look for the border, replay frame by frame, cut off a tear, step over damage, and hand
the state over.
"""

from __future__ import annotations

import logging
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.local_commit import rewrite_unsynced
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.disk.segment_file import MISSING
from kumquat.core.logs.messages.delayed import DelayListener
from kumquat.core.logs.messages.format import (
    HEADER_SIZE,
    JOINED,
    PREAMBLE_END,
    FrameHeader,
)
from kumquat.core.logs.messages.index import IndexDamaged, load_head, write_index
from kumquat.core.logs.messages.log import MessageLog
from kumquat.core.logs.messages.recovery import checkpoint as checkpoints
from kumquat.core.logs.messages.recovery.checkpoint import Checkpoint, CheckpointWriter, Row
from kumquat.core.logs.messages.recovery.missing import noted_end, noted_rows
from kumquat.core.logs.messages.recovery.replay import Replay, row_of
from kumquat.core.logs.messages.recovery.scan import Frames, frame_damage, payload_damage
from kumquat.core.logs.messages.segment import OpenFiles, Segment
from kumquat.core.logs.messages.settles import SettleListener
from kumquat.core.logs.messages.state import LogState
from kumquat.core.logs.messages.subject import SubjectConfig

log = logging.getLogger("kumquat.log")

_LEAP = 1 << 20
"""Frames that cannot be reached may have used up ids: this many are left out, to give none twice."""
_MOST_RECORDS_PER_BYTE = 100
"""In batches that are compressed as well as can be, small messages all alike."""


class Recovery:
    def __init__(
        self,
        files: Files,
        options: LogOptions,
        directory: Path,
        bases: list[int],
        listener: DelayListener | None = None,
        settles: SettleListener | None = None,
        *,
        forgiving: bool = False,
    ) -> None:
        self._files = files
        self._options = options
        self._directory = directory
        self._segments = [Segment(directory, base) for base in bases]
        defaults = SubjectConfig(
            options.max_message_bytes, options.retention_ms, options.retention_bytes
        )
        self._state = LogState(directory, defaults)
        self._listener = listener
        self._settles = settles
        self._replay = Replay(self._state, forgiving=forgiving, listener=listener, settles=settles)
        self._border = 0
        self._checkpoints: dict[int, Checkpoint] = {}
        self._end = 0
        self._stuck = False
        """Frames of the last segment cannot be reached: it is left as it is, a new one begins."""
        self._replayed: list[Segment] = []
        self._cut_short: list[Segment] = []
        """Sealed segments whose end is missing."""
        self._unseen: StartError | None = None
        """What the last look behind a bad frame could not read."""
        self.met_unreadable = False
        """Whether there was something that the disk does not give."""
        self._rebuilding = False
        """An index is being made, and stays: what cannot be read now is an OSError, and is tried again."""

    # --- where to begin ------------------------------------------------------------------------

    def choose_start(self) -> int:
        """The index of the segment to replay from."""
        newest = len(self._segments) - 1
        if newest < 1:
            return 0
        segment = self._segments[newest]
        saved = self._checkpoint(segment)
        if saved.preamble_complete and saved.synced_end >= segment.base:
            return newest
        complete, synced_end = self._look_through(segment, segment.base)
        return newest if complete and synced_end >= segment.base else newest - 1

    def whole_before(self, start: int) -> int | None:
        """The newest segment before this one whose preamble is whole."""
        for i in range(start - 1, -1, -1):
            if self._look_through(self._segments[i], self._segments[i].base)[0]:
                return i
        return None

    def _checkpoint(self, segment: Segment) -> Checkpoint:
        if segment.base not in self._checkpoints:
            saved = checkpoints.load(self._files, segment.checkpoint_path)
            self._checkpoints[segment.base] = saved
            noted = noted_end(self._files, segment)
            self._border = max(self._border, saved.synced_end, noted)
        return self._checkpoints[segment.base]

    def _look_through(self, segment: Segment, position: int) -> tuple[bool, int]:
        """Whether a preamble ends behind `position`, with nothing bad before that, and the highest
        synced end that a frame there names."""
        complete, synced_end, bad = False, 0, False
        with Frames(self._files, segment, around=True) as frames:
            header = frames.header_at(position)
            while isinstance(header, FrameHeader):
                if payload_damage(header, frames.payload_of(header)) is None:
                    complete = complete or (header.kind == PREAMBLE_END and not bad)
                    synced_end = max(synced_end, header.synced_end)
                else:
                    bad = True
                header = frames.header_at(header.end)
            self._unseen = self._unseen or frames.refused(position)
        return complete, synced_end

    # --- replay --------------------------------------------------------------------------------

    @property
    def preamble_complete(self) -> bool:
        """Whether the last segment holds the state of all subjects, now that a tear is cut off."""
        return bool(self._state.segments) and self._state.active.preamble_complete

    def replay(self, start: int) -> None:
        if self._listener is not None:
            self._listener.begin_replay()
        if self._settles is not None:
            self._settles.begin_replay()
        for segment in self._segments[:start]:
            self._adopt(segment)
        for i in range(start, len(self._segments)):
            self._checkpoint(self._segments[i])
        for i in range(start, len(self._segments)):
            if not self._replay_segment(i):
                self._drop(self._segments[i + 1 :])
                break

    def _adopt(self, segment: Segment) -> None:
        """A sealed segment that is not replayed: its index file speaks for it."""
        following = self._segments[self._segments.index(segment) + 1]
        segment.end = following.base
        segment.preamble_complete = True
        segment.unindexed = None
        self._check_size(segment)
        try:
            segment.newest_store_time = load_head(self._files, segment).newest_store_time
        except IndexDamaged as damage:
            log.error("%s: %s; it is made again", segment.index_path, damage)
            segment.newest_store_time = -1
        self._state.segments.append(segment)

    def _check_size(self, segment: Segment) -> None:
        """Tell of a sealed segment whose end is missing; once: `finish` gives it its size back."""
        try:
            fd = self._files.open(segment.path, readonly=True)
        except FileNotFoundError:
            return
        try:
            size = self._files.size(fd)
        finally:
            self._files.close(fd)
        if size < segment.size:
            self._replay.report.add(segment, segment.base + size, "", missing=True)
            self._replay.report.reaches(segment.end)
            self._cut_short.append(segment)

    def _replay_segment(self, i: int) -> bool:
        """False: the log is cut in or before this segment."""
        segment = self._segments[i]
        following = self._segments[i + 1].base if i + 1 < len(self._segments) else None
        self._replay.begin(segment, self._checkpoint(segment).synced_end)
        with Frames(self._files, segment, around=not self._rebuilding) as frames:
            position = segment.base
            while position != following and not self._stuck:
                position = self._replay.run(segment, frames, position, following)
                if position == following:
                    break
                header = frames.header_at(position)
                bad = header if isinstance(header, str) else None
                if isinstance(header, FrameHeader):
                    payload = frames.payload_of(header)
                    bad = frame_damage(frames, header, payload)
                    if bad is None:
                        bad = self._replay.misfit(header) or self._unjoined(frames, header)
                        if bad is None or self._is_corruption(i, position, header):
                            self._replay.apply(segment, header, payload)
                            position = header.end
                            continue
                if not self._is_corruption(i, position, header):
                    self._check_cut(i, frames, position)
                    self._cut(segment, frames, position, bad or "")
                    return False
                position = self._step_over(segment, position, header, bad or "", frames, following)
            segment.end = self._end = position
        self._replayed.append(segment)
        return True

    def _unjoined(self, frames: Frames, header: FrameHeader) -> str | None:
        """Why a frame that stands only with the one behind it does not stand; None when it does."""
        while header.flags & JOINED:
            following = frames.header_at(header.end)
            if isinstance(following, str):
                return f"the frame that belongs to it is missing: {following}"
            bad = payload_damage(following, frames.payload_of(following))
            bad = bad or self._replay.misfit(following)
            if bad is not None:
                return f"the frame that belongs to it is bad: {bad}"
            header = following
        return None

    def _is_corruption(self, i: int, position: int, header: FrameHeader | str) -> bool:
        """Whether a bad frame lies below the border, after a look at all that lies behind it."""
        if position < self._border:
            return True
        self._unseen = None
        if isinstance(header, FrameHeader):
            self._border = max(self._border, self._look_through(self._segments[i], header.end)[1])
        for later in self._segments[i + 1 :]:
            self._border = max(self._border, self._look_through(later, later.base)[1])
        return position < self._border

    def _check_cut(self, i: int, frames: Frames, position: int) -> None:
        """StartError: a part of what is to be cut off cannot be read. It may have been acked."""
        if self._unseen is not None:
            raise self._unseen
        frames.check_readable_from(position)
        for later in self._segments[i + 1 :]:
            with Frames(self._files, later, around=True) as its_frames:
                its_frames.check_readable_from(later.base)

    def _cut(self, segment: Segment, frames: Frames, position: int, bad: str) -> None:
        if not frames.is_blank_from(position):
            log.warning(
                "%s: the last write was cut off at position %d (%s). No sync is known to have covered "
                "what follows: it is dropped, and kept aside in %s",
                segment.path,
                position,
                bad,
                self._set_aside(segment, frames, position),
            )
        if position == segment.base:
            self._drop([segment])
            return
        frames.truncate(position)
        frames.sync()
        segment.end = self._end = position
        self._replayed.append(segment)

    def _set_aside(self, segment: Segment, frames: Frames, position: int) -> str:
        """Keep what is cut off, for whoever doubts: a damaged header looks like a tear when the
        checkpoint, which would show it, is lost as well. If that fails, the start goes on."""
        path = self._directory / f"{segment.path.stem}.cut-{position}"
        try:
            fd = self._files.open(path, create=True)
            try:
                frames.copy(position, fd)
            finally:
                self._files.close(fd)
        except OSError as error:
            return f"no file ({error})"
        return path.name

    def _drop(self, segments: list[Segment]) -> None:
        for segment in segments:
            # The log itself last: without it, the others would tell of a segment that was lost.
            derived = segment.keys_path, segment.index_path, segment.checkpoint_path
            for path in (*derived, segment.path):
                with suppress(FileNotFoundError):
                    self._files.unlink(path)
            self._checkpoints.pop(segment.base, None)
        self._files.fsync_dir(self._directory)

    # --- damage --------------------------------------------------------------------------------

    def _step_over(
        self,
        segment: Segment,
        position: int,
        header: FrameHeader | str,
        bad: str,
        frames: Frames,
        following: int | None,
    ) -> int:
        """Report the damaged frame, mark its sequences as lost, and give the position of the next one."""
        report = self._replay.report
        fresh = not report.continues(segment, position)
        missing = fresh and self._is_missing(position, header, frames)
        report.add(segment, position, bad, missing=missing)
        end = header.end if isinstance(header, FrameHeader) else position + HEADER_SIZE
        if frames.unreadable(position, end):
            self.met_unreadable = True
        if isinstance(header, FrameHeader):
            frame = row_of(header)
        else:
            row = self._checkpoints[segment.base].row_at(position)
            if row is None or row.position != position:
                end = self._leap(segment, row, frames, following)
                report.reaches(end)
                return end
            frame = row
        payload, end = frames.payload(position + HEADER_SIZE, frame.length), frame.end
        if frames.unreadable(position, end):
            self._replay.unreadable(segment, frame, payload)
        else:
            self._replay.damaged(segment, frame, payload)
        report.reaches(end)
        return end

    def _is_missing(self, position: int, header: FrameHeader | str, frames: Frames) -> bool:
        """Whether the file has nothing where there was something, except for a part of the first frame."""
        end = header.end if isinstance(header, FrameHeader) else position + HEADER_SIZE
        return end < self._border and frames.is_blank_from(end)

    def _leap(
        self,
        segment: Segment,
        row: Row | None,
        frames: Frames,
        following: int | None,
    ) -> int:
        """On to the next place where a frame is known to begin. What was between shows as jumps in the
        sequences of its subjects."""
        self._replay.needs_state(segment, "unknown")
        self._replay.start_unread(segment)
        if row is None:
            self._replay.noted(noted_rows(self._files, segment))
        self._state.producer_ceiling += _LEAP
        self._state.subjects.next_id += _LEAP
        if row is not None:
            return row.position
        if following is not None:
            return following
        self._stuck = True
        return max(frames.end, self._border)

    def go_on_behind(self, noted: int) -> None:
        """The log was synced up to `noted`, as somebody has noted who reads it. Where it ends before that,
        nothing tells what lay between: positions and sequences are left out that may have been given."""
        if noted <= self._end or not self._state.segments:
            return
        active, missing = self._state.active, noted - self._end
        sequences = max(_LEAP, _MOST_RECORDS_PER_BYTE * missing)
        bad = (
            f"{MISSING.format(end=noted)}. Nothing tells which messages lay there: each subject goes on "
            f"with an offset that is {sequences} higher"
        )
        self._replay.report.add(active, self._end, bad)
        self._replay.report.reaches(noted)
        for subject in self._state.subjects:
            self._state.lost(subject, subject.next_sequence + sequences)
        self._state.producer_ceiling += _LEAP
        self._state.subjects.next_id += _LEAP
        active.end = self._end = noted
        self._stuck = True

    def indexed(self, end: int) -> tuple[Segment, bool]:
        """The one segment that was given, all of it synced long ago, with the entries to index; and whether
        it is damaged."""
        segment = self._segments[0]
        self._border = end
        self._rebuilding = self._replay.indexing = True
        self._checkpoint(segment)
        self._segments.append(Segment(self._directory, end))
        self._replay_segment(0)
        damaged = bool(self._replay.report)
        self._replay.report.write()
        self._give_entries(segment)
        return segment, damaged

    # --- ready to write ------------------------------------------------------------------------

    def finish(self, now_ms: Callable[[], int]) -> MessageLog:
        damaged = bool(self._replay.report)
        self._replay.report.write()
        border = max(self._border, self._replay.known_synced)
        for segment in self._cut_short:
            with Frames(self._files, segment) as frames:
                frames.truncate(segment.end)
        for segment in self._replayed:
            with Frames(self._files, segment, around=True) as frames:
                if frames.end < segment.end or segment is self._state.active:
                    frames.truncate(segment.end)  # where its end is missing, that is zeros
                rewrite_unsynced(frames, border, segment.end)
        self._files.fsync_dir(self._directory)
        for subject in self._state.subjects:
            subject.next_sequence = max(subject.next_sequence, subject.earliest)
            subject.readable_end = subject.next_sequence
        message_log = MessageLog(self._state, OpenFiles(self._files), self._options, now_ms)
        if self._listener is not None:
            message_log.listener = self._listener
        message_log.settle_listener = self._settles
        if not self._state.segments:
            message_log.begin(new_cluster_id())
            return message_log
        self._state.cluster_id = self._state.cluster_id or new_cluster_id()
        active = self._state.active
        saved = self._checkpoints.get(active.base, checkpoints.NONE)
        writer = CheckpointWriter(self._files, active.checkpoint_path, saved.size)
        message_log.resume(self._end, writer, self._replay.rows_of(active))
        if self._stuck:
            self._index(active)
            active.preamble_complete = True
            message_log.roll()
        elif damaged and active.preamble_complete and self._index(active):
            message_log.roll_when_ready()
        return message_log

    def _index(self, active: Segment) -> bool:
        """Write the index of a damaged segment before another one follows it. Made from the segment alone
        it would know less: the frame that holds a subject's state may be the damaged one."""
        before = active.unindexed, active.rows
        self._give_entries(active)
        try:
            write_index(self._files, active)
        except OSError as error:
            log.error("%s cannot be written: %s; it goes on as it is", active.index_path, error)
            return False
        finally:
            active.unindexed, active.rows = before
        return True

    def _give_entries(self, segment: Segment) -> None:
        """What its index is made of."""
        subjects = self._state.subjects
        segment.rows = {subject.id: subject.next_sequence for subject in subjects}
        segment.unindexed = {s.id: s.entries for s in subjects if s.entries is not None}


def new_cluster_id() -> str:
    """In Kafka's form: a random UUID, URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
