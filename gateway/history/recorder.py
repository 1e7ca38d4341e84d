"""Makes events: is told by the logs what has happened, and puts it into the buffer (buffer.py).

It is the observer of both logs, of the delay service and of dead letters, and is told in the same step of
the event loop in which something was written. So it is quick, never waits and never raises: an event that
it cannot make is counted as missed.

    told by                           events
    message log, a write              produced, scheduled, cancelled, moved
    delay service, a delivery         delivered
    action log, before it applies     pulled, acked, released, retried, died, rewound
    dead letters, known to both logs  buried, redriven

A sample (`history.sample` = N): messages are chosen by their sequences, in runs of RUN, so each chosen one
has all its events, in all groups. Messages for later have no sequence until they are delivered; they are
chosen by their schedule ids as well.

Who produced is the client for whom the task works (SERVING). What the broker writes itself (a letter that
is sent back) has `origin` instead: the subject that it comes from.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kumquat.core.complaints import Complaints
from kumquat.core.delivery.actions import Left, Release, Retry
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.core.delivery.history import TELLING, Circumstances, events_of
from kumquat.core.logs.messages.format import CANCEL, HEADER_SIZE, MESSAGES, PARKED, SETTLES
from kumquat.core.logs.messages.format import DELIVERED as DELIVERY
from kumquat.core.logs.messages.parked import CANCELLED as WAS_CANCELLED
from kumquat.core.logs.messages.parked import MOVED as WAS_MOVED
from kumquat.core.logs.messages.parked import cancels_of, delay_id_of, heads_of
from kumquat.gateway.history.events import (
    BURIED,
    CANCELLED,
    DELIVERED,
    MOST_RANGES,
    MOVED,
    PRODUCED,
    REDRIVEN,
    SCHEDULED,
)
from kumquat.gateway.net.dispatch import SERVING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.dead_letters.settling import Settlement
    from kumquat.core.delivery.state import Groups
    from kumquat.core.logs.messages.observer import WrittenFrame
    from kumquat.core.logs.messages.parked import ParkedHead
    from kumquat.core.logs.messages.subject import Subject, Subjects
    from kumquat.gateway.history.buffer import Buffer

RUN = 16
"""Messages with neighbouring sequences that are in a sample together."""
MOST_SAMPLED = 5_000
"""Ranges of one event."""
_SPREAD = 0x9E3779B97F4A7C15
"""A schedule id is a place in the log: multiplied by this, it is as good as random."""

logger = logging.getLogger(__name__)


class Recorder:
    def __init__(
        self, groups: Groups, subjects: Subjects, now_ms: Callable[[], int], buffer: Buffer
    ) -> None:
        self._groups = groups
        self._subjects = subjects
        self._now_ms = now_ms
        self.buffer = buffer
        self._complaints = Complaints(logger)
        self._beside: Sequence[Action] = ()
        self._left: set[tuple[int, str]] = set()
        """Who leaves in the actions `_beside`."""

    # --- observers -------------------------------------------------------------------------------

    def written(self, frames: Sequence[WrittenFrame]) -> None:
        try:
            if frames:
                self._written(frames)
        except Exception as error:
            self._failed(error, frames[0].subject.name)

    def applying(self, action: Action, beside: Sequence[Action]) -> None:
        if type(action) not in TELLING:
            return
        subject = self._subjects.by_id.get(action[1])  # type: ignore[arg-type,misc]
        if subject is None or not subject.config.history:
            return
        try:
            self._applying(subject, action, beside)
        except Exception as error:
            self._failed(error, subject.name)

    def delivered(
        self, subject: Subject, first: int, schedule_ids: Sequence[int], dues: Mapping[int, int]
    ) -> None:
        try:
            self._delivered(
                subject, first, [(schedule_id, dues[schedule_id]) for schedule_id in schedule_ids]
            )
        except Exception as error:
            self._failed(error, subject.name)

    def settled(self, settlement: Settlement) -> None:
        try:
            self._settled(settlement)
        except Exception as error:
            self._failed(error, settlement.subject.name)

    # --- messages --------------------------------------------------------------------------------

    def _written(self, frames: Sequence[WrittenFrame]) -> None:
        now, session = self._now_ms(), SERVING.get()
        who: dict[str, Any] = {"producer": None, "address": None}
        if session is not None:
            who = {"producer": session.client_id, "address": session.peer}
        before, parked = 0, list[tuple[int, int, bytes]]()
        for frame in frames:
            kind, subject = frame.kind, frame.subject
            if kind == MESSAGES:
                # Behind one of these they are told as delivered, or settled.
                if before not in (DELIVERY, SETTLES) and _touches(frame, subject.config.history):
                    self._add(now, PRODUCED, subject, [[frame.base, frame.sequences]], who)
            elif kind == PARKED:
                parked = self._parked(now, frame)
            elif kind == CANCEL:
                self._cancelled(now, frame, parked)
            before = kind

    def _parked(self, now: int, frame: WrittenFrame) -> list[tuple[int, int, bytes]]:
        """Gives schedule id, due time and delay id of each."""
        payload, every, found = frame.payload, frame.subject.config.history, []
        assert payload is not None
        start = frame.position + HEADER_SIZE
        for at, head in heads_of(payload):
            schedule_id, delay_id = start + at, _id_of(payload, at, head)
            found.append((schedule_id, head.due, delay_id))
            if _is_chosen(schedule_id, every):
                fields = {"schedule_id": schedule_id, "delay_id": _text(delay_id), "due": head.due}
                self._add(now, SCHEDULED, frame.subject, None, fields)
        return found

    def _cancelled(
        self, now: int, frame: WrittenFrame, parked: Sequence[tuple[int, int, bytes]]
    ) -> None:
        assert frame.payload is not None
        # Backwards, so that the first counts. A batch may move thousands, all to the same time.
        by_due = {due: schedule_id for schedule_id, due, _ in reversed(parked)}
        by_name = {(due, name): schedule_id for schedule_id, due, name in reversed(parked)}
        for item in cancels_of(frame.payload):
            fields: dict[str, Any] = {
                "schedule_id": item.schedule_id,
                "delay_id": _text(item.delay_id),
            }
            if not _is_chosen(item.schedule_id, frame.subject.config.history):
                continue
            if item.outcome == WAS_CANCELLED:
                self._add(now, CANCELLED, frame.subject, None, fields)
            elif item.outcome == WAS_MOVED:
                # It is parked again, in the same write, under a new schedule id.
                fields["due"] = item.until
                found = by_name.get((item.until, item.delay_id))
                fields["to"] = by_due.get(item.until) if found is None else found
                self._add(now, MOVED, frame.subject, None, fields)

    def _delivered(self, subject: Subject, first: int, entries: Sequence[tuple[int, int]]) -> None:
        now, every = self._now_ms(), subject.config.history
        for start in range(0, len(entries), MOST_RANGES):
            chosen = [
                (sequence, schedule_id, due)
                for sequence, (schedule_id, due) in enumerate(
                    entries[start : start + MOST_RANGES], first + start
                )
                if every == 1 or sequence // RUN % every == 0 or _is_chosen(schedule_id, every)
            ]
            if not chosen:
                continue
            dues = [due for _, _, due in chosen]
            fields: dict[str, Any] = {
                "schedule_id": [schedule_id for _, schedule_id, _ in chosen],
                "due": min(dues),
                "late_ms": now - min(dues),
            }
            if min(dues) != max(dues):
                fields["dues"] = dues
            ranges = _runs([sequence for sequence, _, _ in chosen])
            self.buffer.add(now, DELIVERED, subject.name, ranges, fields, len(chosen))

    # --- groups ----------------------------------------------------------------------------------

    def _applying(self, subject: Subject, action: Any, beside: Sequence[Action]) -> None:
        group = self._groups.by_id[action.gid]
        if group.name == INTERNAL_GROUP:
            return
        session = SERVING.get()
        around = Circumstances(self._leaving(action, beside), session is not None, subject.earliest)
        now = self._now_ms()
        for event, ranges, member_id, fields in events_of(self._groups, action, around):
            client = None
            if not member_id and session is not None:  # a plain commit
                member_id, client = session.members.get(group.name, ""), session.client_id
            member = group.members.get(member_id)
            told = {
                "group": group.name,
                "member": member_id or None,
                "client": client if member is None else member.client_id,
                **fields,
            }
            self._add(now, event, subject, ranges, told)

    def _leaving(self, action: Action, beside: Sequence[Action]) -> Collection[tuple[int, str]]:
        """Who leaves in the same write, where that is a reason. Found once: it may be of many actions."""
        if type(action) not in (Release, Retry):
            return ()
        if beside is not self._beside:
            self._beside = beside
            self._left = {(each.gid, each.member_id) for each in beside if type(each) is Left}
        return self._left

    def _settled(self, settlement: Settlement) -> None:
        now, target = self._now_ms(), settlement.subject
        by_source: dict[tuple[int, int], list[list[int]]] = {}
        for gid, subject_id, first, size in settlement.items:
            by_source.setdefault((gid, subject_id), []).append([first, size])
        for (gid, subject_id), ranges in by_source.items():
            source, group = self._subjects.by_id.get(subject_id), self._groups.by_id.get(gid)
            if source is None or group is None:
                continue
            if group.name == INTERNAL_GROUP:
                if source.config.history or target.config.history:
                    told = {"letters": source.name, "to": target.name, "offset": settlement.first}
                    self.buffer.add(now, REDRIVEN, source.name, ranges, told)  # all: they are few
            elif source.config.history:
                self._add(
                    now, BURIED, source, ranges, {"group": group.name, "letters": target.name}
                )
            if target.config.history:
                made = {"producer": None, "address": None, "origin": source.name}
                self._add(now, PRODUCED, target, [[settlement.first, settlement.records]], made)

    def _add(
        self,
        at: int,
        event: str,
        subject: Subject,
        ranges: list[list[int]] | None,
        fields: Mapping[str, Any],
    ) -> None:
        every = subject.config.history
        if ranges is not None and every > 1:
            ranges, whole = sampled(ranges, every)
            if not whole:
                self.buffer.miss(subject.name, 1)
            if not ranges:
                return
        self.buffer.add(at, event, subject.name, ranges, fields)

    def _failed(self, error: Exception, subject: str) -> None:
        """A fault of ours must not reach a client."""
        self.buffer.miss(subject, 1)
        text = f"an event of {subject} could not be recorded: {type(error).__name__}: {error}"
        self._complaints.error("failed", text)


def sampled(ranges: list[list[int]], every: int) -> tuple[list[list[int]], bool]:
    """What of these sequences is in the sample; False: only the first of it, as it is very much (a first
    commit may pass over a billion messages)."""
    found, period = list[list[int]](), RUN * every
    for first, size in ranges:
        end = first + size
        run = first // period * period
        while run < end:
            low, high = max(first, run), min(end, run + RUN)
            if low < high:
                found.append([low, high - low])
            run += period
            if len(found) >= MOST_SAMPLED:
                return found, False
    return found, True


def _touches(frame: WrittenFrame, every: int) -> bool:
    """Whether any message of a batch is in the sample. Mostly none is, and there are many batches."""
    past = frame.base % (RUN * every)
    return past < RUN or past + frame.sequences > RUN * every


def _is_chosen(schedule_id: int, every: int) -> bool:
    return every == 1 or (schedule_id * _SPREAD >> 32) % every == 0


def _runs(sequences: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for sequence in sequences:
        if found and sum(found[-1]) == sequence:
            found[-1][1] += 1
        else:
            found.append([sequence, 1])
    return found


def _id_of(payload: Any, at: int, head: ParkedHead) -> bytes:
    return delay_id_of(payload, at, head) if head.id_length else b""


def _text(delay_id: bytes) -> str | None:
    return delay_id.decode(errors="replace") if delay_id else None
