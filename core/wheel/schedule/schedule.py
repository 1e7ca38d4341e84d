"""What the delay service knows, apart from the disk: it changes in `apply` and only there.

The message log calls `apply` for each PARKED, CANCEL and DELIVERED frame, when it is written and when it is
read back. What was parked lives in one of three places, by the position F (`filled`) up to which schedule
files hold all that there is, and by the *border*, the due time up to which the wheel holds all:

    schedule files         parked below F
    the message log        parked from F on; only the places of its frames are kept here (`recent`)
    the wheel (memory)     due below the border, wherever it was parked

Two things move these lines, each in two steps with the blocking part between them:

    fill    begin_fill takes [F, F') with all that a schedule file needs to know; finish_fill sets F = F'
    load    begin_load raises the border: what arrives from then on goes into the wheel by itself. After a
            fill all older messages are in files, and their entries below the border go into the wheel
            (`admit` leaves out what is delivered, cancelled or there already); finish_load

Fills and loads never overlap; the service runs them in one task. Until a load is finished, nothing beyond
the line before it is delivered.

Exactly once. W (`delivered_until`) is the (due, sid) of the last message delivered in order: every entry
of a file up to there is done with. The wheel gives in order of (due, sid), so this one pair says it all,
but for two sorts:

- messages that were parked when their time had passed W already: by a moment, or by hours when the clock
  ran ahead and was set back. If one is still there at a fill it is filed under W + 1 ms (`_refiled`), and
  gets a tombstone when it is delivered. That is where it is found, not when it is due: its record says
  that, and the wheel has it under its own time;
- deliveries after the last fill, known after a restart from the frames behind F (`done`): an entry that the
  files bring up again is left out by its sid, and gets a tombstone at the next fill.

What the disk does not give at the moment waits while all else is delivered past it: a record (`held_back`),
or a part of a schedule file that could not be loaded (`unloaded`). Meanwhile W stays where it is, and what
is delivered of the files gets tombstones. A frame that could not be read at the start (`unreadable`) is
asked for by the next load and fill, which find out its delay ids; until then no id of its subject counts as
unknown.

A tombstone (due, sid, subject) in a schedule file takes an entry of an older file out.

Names: a delay id names the newest message of its subject that was parked with it. Those since F are in
`names`; older ones are found in the files. `remembered` holds cancels and moves that came before their
message: for a while, and no more than MOST_REMEMBERED.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping

from kumquat.core.errors import StorageError
from kumquat.core.logs.messages.format import CANCEL, HEADER_SIZE, KIND_NAMES, PARKED
from kumquat.core.logs.messages.parked import (
    CANCELLED,
    DELIVERED,
    MOVE_REMEMBERED,
    MOVED,
    ORIGIN_SIZE,
    RECORD_HEAD,
    RECORD_HEAD_SIZE,
    REMEMBERED,
    CancelItem,
    cancels_of,
    schedule_ids_of,
)
from kumquat.core.wheel.format import ENTRY, LONGEST_ID, PENDING, Tombstone
from kumquat.core.wheel.schedule.model import (
    FRAME,
    Counters,
    Fill,
    Key,
    Named,
    NameKey,
    Refiled,
    Remembered,
    Unfiled,
)
from kumquat.core.wheel.schedule.wheel import Wheel

log = logging.getLogger("kumquat.delay")

MOST_REMEMBERED = 100_000
"""Cancels and moves that wait for their messages."""


class Schedule:
    """Is the DelayListener of the message log."""

    def __init__(
        self,
        filled: int,
        delivered_until: Key,
        pending: dict[int, int],
        remembered: dict[NameKey, Remembered],
        done: set[int],
        done_until: int = -1,
    ) -> None:
        self.filled = filled
        self.done_until = done_until
        """None of those in `done` is due later."""
        self.wheel = Wheel()
        self.counters = Counters()
        self._start = (delivered_until, pending, remembered, done)
        self.begin_replay()

    def begin_replay(self) -> None:
        until, pending, remembered, done = self._start
        self.delivered_until = until
        self.pending = dict(pending)
        """Messages parked and not delivered, by subject id."""
        self.remembered = dict(remembered)
        """In the order in which they came."""
        self.forgot_some = False
        self.done = set(done)
        """In files, delivered, and above `delivered_until`: known by sid alone."""
        self.recent: array[int] = array("q")
        self.recent_bytes = 0
        self._unknown: dict[range, int] = {}
        """Frames in `recent` that could not be read at the start, with their subjects: what they hold is
        known when they are filed."""
        self._uncounted: set[int] = set()
        """What those held that is delivered or cancelled: `pending` never knew of it."""
        self.gone: set[int] = set()
        """Parked since F, and delivered or cancelled since."""
        self.tombstones: list[Tombstone] = []
        self.names: dict[NameKey, Named] = {}
        self.border = -1
        """What is parked with an earlier due time goes into the wheel; -1: nothing is loaded yet."""
        self.loaded_until = -1
        """All with an earlier due time is in the wheel, or done with."""
        self._mark = 0
        """Where the log ended when the border was last raised."""
        self.held_back: set[int] = set()
        """Sids of what is due, and cannot be read at the moment."""
        self.unloaded = False
        """Whether something with a due time before `loaded_until` could not be loaded yet."""
        self._refiled: dict[int, Refiled] = {}
        self._filling: Fill | None = None
        self._meanwhile: dict[int, Tombstone | None] = {}
        """What the fill under way takes along although it was delivered since; with a tombstone for it, if
        W did not pass it."""
        self._replaying = True
        self._live_from = 0
        """Where the log ended at the first load: what was parked behind is in the wheel if due before
        the border."""

    def end_replay(self) -> None:
        """The log is open: from here on frames are new."""
        self._replaying = False
        self.counters = Counters()

    # --- the listener of the log ---------------------------------------------------------------

    @property
    def replay_from(self) -> int:
        return self.filled

    def keep_from(self) -> int:
        floor = self.wheel.log_floor()
        return self.filled if floor is None else min(floor, self.filled)

    def apply(self, kind: int, subject_id: int, position: int, payload: bytes | memoryview) -> None:
        if kind == PARKED:
            self._parked(subject_id, position, payload)
        elif kind == CANCEL:
            for item in cancels_of(payload):
                if item.outcome in (CANCELLED, MOVED) and item.sid >= 0:
                    self._withdrawn(subject_id, item.sid, item.due, item.outcome)
                if len(item.delay_id) > LONGEST_ID:
                    _set_aside(subject_id, position, item.delay_id, "the cancel is not remembered")
                elif item.delay_id:
                    self._cancelled(subject_id, item)
        else:
            self._delivered(subject_id, schedule_ids_of(payload))

    def _cancelled(self, subject_id: int, item: CancelItem) -> None:
        """What a cancel or a move says of its delay id."""
        key = (subject_id, item.delay_id)
        self.remembered.pop(key, None)
        if item.outcome in (REMEMBERED, MOVE_REMEMBERED):
            new_due = item.due if item.outcome == MOVE_REMEMBERED else None
            self._remember(key, Remembered(item.until, new_due))
        else:
            self._outcome(key, item.outcome, item.sid, item.due)

    def _remember(self, key: NameKey, remembered: Remembered) -> None:
        self.remembered[key] = remembered
        self.names[key] = Named(-1, remembered.until, REMEMBERED)
        if len(self.remembered) > MOST_REMEMBERED:
            subject_id, delay_id = oldest = next(iter(self.remembered))
            del self.remembered[oldest]
            if not self.forgot_some:
                log.warning(
                    "more than %d cancels and moves wait for their messages; the oldest are forgotten, "
                    "first that of %r of subject %d",
                    MOST_REMEMBERED,
                    delay_id,
                    subject_id,
                )
            self.forgot_some = True

    def subject_deleted(self, subject_id: int, position: int) -> None:
        dropped = self.pending.pop(subject_id, 0)
        self.counters.dropped += dropped
        if dropped and not self._replaying:
            log.warning("subject %d is deleted: %d parked messages go with it", subject_id, dropped)

    def unreadable(self, kind: int, subject_id: int, position: int, length: int) -> None:
        self._unknown[range(position, position + HEADER_SIZE + length)] = subject_id
        self.recent.extend((position, length, subject_id))
        self.recent_bytes += length - ORIGIN_SIZE

    def damaged(self, kind: int, subject_id: int, position: int, length: int) -> None:
        self.counters.damaged += 1
        what = {
            PARKED: "the messages in it are lost",
            CANCEL: "what it cancelled will be delivered",
        }.get(kind, "what it delivered may be delivered again")
        log.error(
            "the frame (%s) of subject %d at position %d of the message log is damaged: %s",
            KIND_NAMES[kind],
            subject_id,
            position,
            what,
        )

    def _parked(self, subject_id: int, position: int, payload: bytes | memoryview) -> None:
        at_zero, border, add = position + HEADER_SIZE, self.border, self.wheel.add
        at, end, count, unpack = ORIGIN_SIZE, len(payload), 0, RECORD_HEAD.unpack_from
        while at < end:  # as heads_of, in a third of the time
            length, _, due, _, id_length = unpack(payload, at)
            if id_length:
                begin = at + RECORD_HEAD_SIZE
                key = (subject_id, bytes(payload[begin : begin + id_length]))
                if id_length > LONGEST_ID:
                    _set_aside(subject_id, position, key[1], "the message has no name")
                else:
                    self.names[key] = Named(at_zero + at, due, PENDING)
                    self.remembered.pop(key, None)
            if due < border:
                add(due, at_zero + at, length, subject_id, id_length > 0)
            at += length
            count += 1
        self.recent.extend((position, len(payload), subject_id))
        self.recent_bytes += len(payload) - ORIGIN_SIZE
        self.pending[subject_id] = self.pending.get(subject_id, 0) + count
        self.counters.scheduled += count

    def _withdrawn(self, subject_id: int, sid: int, due: int, outcome: int) -> None:
        """A message was cancelled or moved."""
        self.wheel.cancel(sid, self.due_of(sid, due))
        self._take_out(subject_id, sid, due)
        self._count_down(subject_id, self._counted([sid]))
        if outcome == MOVED:
            self.counters.moved += 1
            self.counters.scheduled -= 1
        else:
            self.counters.cancelled += 1

    def _take_out(self, subject_id: int, sid: int, due: int) -> None:
        """The message is to be left out of the next file, or struck from the one that holds it."""
        filed = self._filling.end if self._filling is not None else self.filled
        if sid >= filed:
            self.gone.add(sid)
        elif sid in self.done:
            self.done.discard(sid)
        else:
            refiled = self._refiled.pop(sid, None)
            filed_due = due if refiled is None else refiled.filed
            self.tombstones.append(Tombstone(filed_due, sid, subject_id))

    def _outcome(self, key: NameKey, outcome: int, sid: int, due: int) -> None:
        named = self.names.get(key)
        if outcome == MOVED and named is not None:
            self.names[key] = named._replace(status=MOVED)
        elif outcome != DELIVERED or named is None:
            self.names[key] = Named(sid, due, outcome)

    def _delivered(self, subject_id: int, sids: list[int]) -> None:
        filed = self._filling.end if self._filling is not None else self.filled
        for sid in sids:
            if sid >= filed:
                self.gone.add(sid)
            elif sid >= self.filled:
                self._meanwhile[sid] = self._tombstone(subject_id, sid)
            elif self._replaying:
                self.done.add(sid)
            elif self._refiled and sid in self._refiled:
                self.tombstones.append(Tombstone(self._refiled.pop(sid).filed, sid, subject_id))
            elif (dead := self._tombstone(subject_id, sid)) is not None:
                self.tombstones.append(dead)
        self._count_down(subject_id, self._counted(sids))
        self.counters.delivered += len(sids)

    def _tombstone(self, subject_id: int, sid: int) -> Tombstone | None:
        """For a message that is delivered while W stays where it is."""
        slot = self.wheel.at_hand(sid) if self.w_stays else None
        return None if slot is None else Tombstone(slot.due, sid, subject_id)

    def _counted(self, sids: list[int]) -> int:
        """How many of these `pending` knows of."""
        if not self._unknown:
            return len(sids)
        unknown = {sid for sid in sids if any(sid in frame for frame in self._unknown)}
        self._uncounted |= unknown
        return len(sids) - len(unknown)

    def _count_down(self, subject_id: int, by: int) -> None:
        left = self.pending.get(subject_id, 0) - by
        if left > 0:
            self.pending[subject_id] = left
        else:
            self.pending.pop(subject_id, None)

    # --- delivering ----------------------------------------------------------------------------

    def may_deliver_until(self, now: int) -> int:
        """What the wheel gives below this due time may be delivered. Nothing that an unfinished load may
        have something to come before: W would pass that."""
        return min(now + 1, self.loaded_until)

    def passed(self, key: Key) -> None:
        """All that the wheel gave up to this one is delivered or given up, and that is written."""
        if not self.w_stays:
            self.delivered_until = max(self.delivered_until, key)

    @property
    def w_stays(self) -> bool:
        """Whether something is left behind that comes before what is delivered now."""
        return self.unloaded or bool(self.held_back)

    def is_pending(self, sid: int, due: int) -> bool:
        """Whether a message with a delay id, not known to be cancelled, has yet to be delivered.
        StorageError: that cannot be told, since not all could be loaded."""
        if sid >= self.filled:
            filling = self._filling.gone if self._filling is not None else ()
            return not (sid in self.gone or sid in self._meanwhile or sid in filling)
        if due < self.loaded_until:
            holds = self.wheel.holds(sid)
            if self.unloaded and not holds and (due, sid) > self.delivered_until:
                raise StorageError(
                    f"a schedule file cannot be read at the moment: whether the message with schedule id "
                    f"{sid} is still pending cannot be told; try again"
                )
            return holds
        return (due, sid) > self.delivered_until and sid not in self.done

    def settled_until(self, now: int) -> int:
        """Every entry of a file with an earlier due time is delivered or cancelled, as far as is written;
        also where nothing was delivered for long, and W with it stands still."""
        if self.w_stays:
            return self.delivered_until[0]
        lowest = min(now, self.loaded_until, self.wheel.lowest_due())
        return max(self.delivered_until[0], lowest)

    # --- fills ---------------------------------------------------------------------------------

    @property
    def recent_frames(self) -> int:
        return len(self.recent) // FRAME

    def begin_fill(self, end: int) -> Fill:
        """All from F to `end`, where the log is written up to, is to go into a file."""
        assert self._filling is None
        self._filling = fill = Fill(
            self.filled,
            end,
            self.delivered_until,
            self.recent,
            self.gone,
            self.tombstones,
            self.names,
            dict(self.pending),
            dict(self.remembered),
            set(self.done),
            self.done_until,
            unknown={frame.start for frame in self._unknown},
        )
        self.recent, self.recent_bytes = array("q"), 0
        self.gone, self.tombstones, self.names = set(), [], {}
        return fill

    def finish_fill(self, fill: Fill) -> None:
        """The file and the manifest are on disk."""
        assert fill is self._filling
        self._filling = None
        self.filled = fill.end
        for sid, key in fill.found:
            self.remembered.pop(key, None)
            if sid not in self._uncounted:
                self.pending[key[0]] = self.pending.get(key[0], 0) + 1
        self._unknown, self._uncounted = {}, set()
        for sid, refiled in fill.refiled.items():
            if sid in self._meanwhile:
                self._meanwhile[sid] = Tombstone(refiled.filed, sid, refiled.subject_id)
            else:
                self._refiled[sid] = refiled
        for i, dead in enumerate(self.tombstones if fill.refiled else ()):
            if dead.sid in fill.refiled:  # cancelled meanwhile
                self.tombstones[i] = dead._replace(due=self._refiled.pop(dead.sid).filed)
        self.tombstones += [dead for dead in self._meanwhile.values() if dead is not None]
        self._meanwhile = {}
        for due, sid, subject_id in fill.lost:
            if not self.wheel.has(sid, due):  # else it is given up when its time comes
                self._count_down(subject_id, 1)
                self.counters.damaged += 1

    def abandon_fill(self, fill: Fill) -> None:
        """It could not be written: all is as if it had never begun."""
        assert fill is self._filling
        self._filling = None
        self.recent = fill.frames + self.recent
        self.recent_bytes = sum(self.recent[1::FRAME])
        self.gone |= fill.gone | self._meanwhile.keys()
        self._meanwhile = {}
        self.names = {**fill.names, **self.names}
        late = [t for t in self.tombstones if t.sid >= fill.start]
        self.gone.update(t.sid for t in late)
        self.tombstones = fill.tombstones + [t for t in self.tombstones if t.sid < fill.start]

    def look_up(self, key: NameKey) -> Named | None:
        """What a delay id stands for, if that has come up since the last fill. StorageError: that cannot be
        told, since not all could be read."""
        found = self.names.get(key)
        if found is None and self._filling is not None:
            found = self._filling.names.get(key)
        if found is None and key[0] in self._unknown.values():
            raise StorageError(
                "messages for later cannot be read at the moment: whether the delay id "
                f"{key[1]!r} names one of them cannot be told; try again"
            )
        return found

    def remembers(self, key: NameKey, now: int) -> Remembered | None:
        """The cancel or the move that waits for the message with this id."""
        found = self.remembered.get(key)
        if found is not None and found.until <= now:
            del self.remembered[key]
            return None
        return found

    def forget_remembered(self, now: int) -> None:
        """Cancels and moves that have waited for long enough."""
        late = [key for key, remembered in self.remembered.items() if remembered.until <= now]
        for key in late:
            del self.remembered[key]
        self.forgot_some = self.forgot_some and len(self.remembered) > MOST_REMEMBERED // 2

    # --- loads ---------------------------------------------------------------------------------

    def begin_load(self, until: int, log_end: int) -> None:
        """What is parked from here on, at `log_end` or behind, goes into the wheel if it is due earlier.
        A load that was begun and not finished is gone on with: its border stays."""
        if self.border < 0:
            self._live_from = log_end
        if self.border == self.loaded_until:
            # Never below W, wherever the clock is: what is filed under W + 1 ms must be within it.
            self.border, self._mark = max(until, self.delivered_until[0] + 2), log_end

    @property
    def mark(self) -> int:
        """What is parked from there on goes into the wheel by itself, if it is due before the border."""
        return self._mark

    def due_of(self, sid: int, filed: int) -> int:
        """When a message is due that is filed under some time."""
        refiled = self._refiled.get(sid)
        return filed if refiled is None else refiled.due

    def admit(
        self,
        source: int,
        table: bytes,
        struck: set[int],
        mark: int | None = None,
        dues: Mapping[int, int] | None = None,
    ) -> int:
        """Put entries of a schedule file into the wheel, without those that were struck by tombstones, are
        done with, or are there already; gives how many. `mark`: that of the load that they belong to;
        `dues`: when those are due that are filed under another time."""
        until, done, mark = self.delivered_until, self.done, self._mark if mark is None else mark
        refiled = {sid for sid in self._refiled if sid >= self._live_from}
        kept = []
        for entry in ENTRY.iter_unpack(table):
            due, sid = entry[0], entry[1]
            if sid in done:
                done.discard(sid)
                if (due, sid) > until:
                    self.tombstones.append(Tombstone(due, sid, entry[4]))
            elif (due, sid) > until and sid < mark and sid not in struck and sid not in refiled:
                kept.append(entry)
        if len(kept) * ENTRY.size != len(table) or dues:
            kept = sorted(self._at_their_time(kept, dues or {}))
            table = b"".join(ENTRY.pack(*entry) for entry in kept)
        if table:
            self.wheel.add_table(source, table)
        return len(kept)

    def _at_their_time(
        self, entries: Iterable[tuple[int, int, int, int, int]], dues: Mapping[int, int]
    ) -> Iterator[tuple[int, int, int, int, int]]:
        """Entries of a file with the due times that their records have."""
        for entry in entries:
            sid, due = entry[1], dues.get(entry[1])
            if due is not None:
                self._refiled[sid] = Refiled(entry[0], due, entry[4])
                entry = (due, *entry[1:])
            yield entry

    def admit_unfiled(self, heads: Iterable[Unfiled], due_from: int, until: int) -> None:
        """Put messages into the wheel that no file holds yet and that are not there: due in between."""
        for due, sid, length, subject_id, named in heads:
            if due_from <= due < until and sid not in self.gone and sid >= self.filled:
                self.wheel.add(due, sid, length, subject_id, named)

    def struck_recently(self) -> set[int]:
        """The sids that tombstones since the last fill take out."""
        return {tombstone.sid for tombstone in self.tombstones}

    def finish_load(self) -> None:
        self.loaded_until = self.border
        if not self.unloaded and self.loaded_until > self.done_until:
            # No file brought up what is left: it was merged away.
            self.done.clear()


def _set_aside(subject_id: int, position: int, delay_id: bytes, what: str) -> None:
    log.error(
        "position %d of the message log, subject %d: the delay id %r… has %d bytes, at most %d can be "
        "filed; it is set aside: %s",
        position,
        subject_id,
        delay_id[:40],
        len(delay_id),
        LONGEST_ID,
        what,
    )
