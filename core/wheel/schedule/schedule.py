"""What the delay service knows, in memory. Frames of the log change it in `apply`, and only there.

The message log calls `apply` for each PARKED, CANCEL and DELIVERED frame, when it is written and when it is
read back at a start. Two lines say where a parked message is found: F (`filled`), the position of the log
up to which schedule files hold all that was parked, and the *border*, the due time up to which the wheel
holds all that is pending:

    schedule files         parked below F
    the message log        parked from F on; only the places of its frames are kept here (`recent`)
    the wheel (memory)     due before the border, wherever it was parked

Two operations move these lines. Each has two steps, and what blocks runs between them:

    fill    begin_fill takes all of [F, F') that a schedule file needs; finish_fill sets F = F',
            abandon_fill puts it back
    load    begin_load raises the border: what is parked from then on goes into the wheel by itself. After a
            fill all older messages are in files, and their entries due before the border go into the wheel
            (`admit` leaves out what is finished or there already); finish_load

A fill and a load never overlap, the tasks see to that. Until a load is finished, nothing beyond the border
before it is delivered.

Exactly once. W (`delivered_until`) is the (due, schedule id) of the last message that was delivered in
order: every entry of a file up to W is finished. The wheel gives out entries in order of (due, schedule
id), so this one pair says it for nearly all messages. Two kinds are different:

- Messages that were parked when their due time had already passed W: by a moment, or by hours when the
  clock was ahead and was set back. If such a message is still there at a fill, it is filed under W + 1 ms,
  and gets a tombstone when it is delivered. That time only says where its entry is found. When it is due is
  in its record, and the wheel has it under that time.
- Deliveries after the last fill, known after a restart from the frames behind F (finished.py: `done`).

A message that the disk cannot give at the moment waits while all others are delivered past it: its record
cannot be read (`held_back`), or its part of a schedule file could not be loaded (`unloaded`). Meanwhile W
does not move, and each message of a file that is delivered gets a tombstone.

A PARKED frame that could not be read at the start (`unreadable`) is read by the next load and fill, which
learn its delay ids. Until then a delay id of its subject that is not found counts as an error, not as
unknown.

A tombstone (due, schedule id, subject) in a schedule file takes out an entry of an older file.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping

from kumquat.core.errors import StorageError
from kumquat.core.logs.messages.format import CANCEL, HEADER_SIZE, KIND_NAMES, PARKED
from kumquat.core.logs.messages.parked import (
    CANCELLED,
    MOVED,
    ORIGIN_SIZE,
    RECORD_HEAD,
    RECORD_HEAD_SIZE,
    cancels_of,
    schedule_ids_of,
)
from kumquat.core.wheel.format import ENTRY, LONGEST_ID, PENDING, Tombstone
from kumquat.core.wheel.schedule.delay_ids import DelayIds
from kumquat.core.wheel.schedule.effects import Delivery
from kumquat.core.wheel.schedule.finished import Finished
from kumquat.core.wheel.schedule.model import (
    FRAME,
    Counters,
    Fill,
    Key,
    Named,
    NameKey,
    Packed,
    Refiled,
    Remembered,
    Unfiled,
)
from kumquat.core.wheel.schedule.wheel import Wheel

log = logging.getLogger("kumquat.delay")


class Schedule:
    """The DelayListener of the message log."""

    def __init__(
        self,
        filled: int,
        delivered_until: Key,
        pending: dict[int, int],
        remembered: dict[NameKey, Remembered],
        done: set[int],
        done_until: int = -1,
    ) -> None:
        self.wheel = Wheel()
        self.counters = Counters()
        self._start = (filled, delivered_until, pending, remembered, done, done_until)
        self.begin_replay()

    def begin_replay(self) -> None:
        filled, delivered_until, pending, remembered, done, done_until = self._start
        self.delivered_until = delivered_until
        self.finished = Finished(filled, done, done_until)
        self.ids = DelayIds(remembered)
        self.pending = dict(pending)
        """How many messages are parked and not delivered, by subject id."""
        self.recent: array[int] = array("q")
        """The PARKED frames since F: position, payload length and subject id of each."""
        self.recent_bytes = 0
        """Bytes of the records in them."""
        self._unknown: dict[range, int] = {}
        """Frames in `recent` that could not be read at the start, with their subjects: what they hold is
        known when they are filed."""
        self._uncounted: set[int] = set()
        """Messages of those frames that are finished: `pending` never counted them."""
        self.border = -1
        """What is parked with an earlier due time goes into the wheel; -1: nothing is loaded yet."""
        self.loaded_until = -1
        """All with an earlier due time is in the wheel, or finished."""
        self._mark = 0
        """Where the log ended when the border was last raised."""
        self._live_from = 0
        """Where the log ended at the first load: what was parked behind it went into the wheel by itself,
        if it was due before the border."""
        self.held_back: set[int] = set()
        """Schedule ids of messages that are due, and whose records cannot be read at the moment."""
        self.unloaded = False
        """Whether something with a due time before `loaded_until` could not be loaded yet."""
        self._replaying = True

    def end_replay(self) -> None:
        """The log is open: from here on frames are new."""
        self._replaying = False
        self.counters = Counters()

    @property
    def filled(self) -> int:
        """F: schedule files hold all that was parked below this position of the log."""
        return self.finished.filled

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
                if item.outcome in (CANCELLED, MOVED) and item.schedule_id >= 0:
                    self._withdrawn(subject_id, item.schedule_id, item.due, item.outcome)
                if len(item.delay_id) > LONGEST_ID:
                    _ignore_id(subject_id, position, item.delay_id, "the cancel is not remembered")
                elif item.delay_id:
                    self.ids.cancelled(subject_id, item)
        else:
            self._delivered(subject_id, schedule_ids_of(payload))

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
        names, remembered = self.ids.names, self.ids.remembered
        while at < end:  # as heads_of, in a third of the time
            length, _, due, _, id_length = unpack(payload, at)
            if id_length:
                begin = at + RECORD_HEAD_SIZE
                key = (subject_id, bytes(payload[begin : begin + id_length]))
                if id_length > LONGEST_ID:
                    _ignore_id(subject_id, position, key[1], "the message has no name")
                else:
                    names[key] = Named(at_zero + at, due, PENDING)
                    remembered.pop(key, None)
            if due < border:
                add(due, at_zero + at, length, subject_id, id_length > 0)
            at += length
            count += 1
        self.recent.extend((position, len(payload), subject_id))
        self.recent_bytes += len(payload) - ORIGIN_SIZE
        self.pending[subject_id] = self.pending.get(subject_id, 0) + count
        self.counters.scheduled += count

    def _withdrawn(self, subject_id: int, schedule_id: int, due: int, outcome: int) -> None:
        """A message was cancelled or moved."""
        if (
            self._replaying
            and schedule_id < self.filled
            and (due, schedule_id) <= self.delivered_until
        ):
            # It was pending although W had passed it, so the last fill filed it under W + 1 ms. The cancel
            # came while that fill was under way, and has the due time of before.
            due = self.delivered_until[0] + 1
        self.wheel.cancel(schedule_id, self.due_of(schedule_id, due))
        self.finished.withdrawn(subject_id, schedule_id, due)
        self._count_down(subject_id, self._counted([schedule_id]))
        if outcome == MOVED:
            self.counters.moved += 1
            self.counters.scheduled -= 1
        else:
            self.counters.cancelled += 1

    def _delivered(self, subject_id: int, schedule_ids: list[int]) -> None:
        at_hand = self.wheel.at_hand if self.w_stays else None
        self.finished.delivered(subject_id, schedule_ids, self._replaying, at_hand)
        self._count_down(subject_id, self._counted(schedule_ids))
        self.counters.delivered += len(schedule_ids)

    def _counted(self, schedule_ids: list[int]) -> int:
        """How many of these `pending` has counted."""
        if not self._unknown:
            return len(schedule_ids)
        unknown = {
            schedule_id
            for schedule_id in schedule_ids
            if any(schedule_id in frame for frame in self._unknown)
        }
        self._uncounted |= unknown
        return len(schedule_ids) - len(unknown)

    def _count_down(self, subject_id: int, by: int) -> None:
        left = self.pending.get(subject_id, 0) - by
        if left > 0:
            self.pending[subject_id] = left
        else:
            self.pending.pop(subject_id, None)

    # --- delivering ----------------------------------------------------------------------------

    def finish_delivery(self, delivery: Delivery) -> None:
        """A delivery is written, and its frames are applied."""
        self.wheel.delivered([entry.schedule_id for entry in delivery.entries])
        self.passed(delivery.entries[-1][:2])
        self.counters.delivered -= len(delivery.damaged)
        self.counters.damaged += len(delivery.damaged)

    def passed(self, key: Key) -> None:
        """All that the wheel gave out up to this one is finished, and that is written."""
        if not self.w_stays:
            self.delivered_until = max(self.delivered_until, key)

    @property
    def w_stays(self) -> bool:
        """Whether something is left behind that comes before what is delivered now."""
        return self.unloaded or bool(self.held_back)

    def is_pending(self, schedule_id: int, due: int) -> bool:
        """Whether a message with a delay id, not known to be cancelled, has yet to be delivered.
        StorageError: it cannot be known, since not all could be loaded."""
        if schedule_id >= self.filled:
            return not self.finished.has_left(schedule_id)
        if due < self.loaded_until:
            holds = self.wheel.holds(schedule_id)
            if self.unloaded and not holds and (due, schedule_id) > self.delivered_until:
                raise StorageError(
                    f"a schedule file cannot be read at the moment: whether the message with schedule id "
                    f"{schedule_id} is still pending is not known; try again"
                )
            return holds
        return (due, schedule_id) > self.delivered_until and schedule_id not in self.finished.done

    def settled_until(self, now: int) -> int:
        """Every entry of a file with an earlier due time is finished, as far as is written. It moves on
        also while nothing is delivered, and W does not move."""
        if self.w_stays:
            return self.delivered_until[0]
        lowest = min(now, self.loaded_until, self.wheel.lowest_due())
        return max(self.delivered_until[0], lowest)

    def repaired(self, delivered_until: Key, finished: list[Tombstone]) -> None:
        """The manifest was lost and made again: what is finished according to the log. They get tombstones,
        since the due time of each is known."""
        self.passed(delivered_until)
        self.finished.tombstones += finished
        self.finished.done -= {tombstone.schedule_id for tombstone in finished}

    # --- delay ids -----------------------------------------------------------------------------

    def look_up(self, key: NameKey) -> Named | None:
        """What a delay id names, if that came up since the last fill. StorageError: it cannot be known,
        since not all could be read."""
        found = self.ids.look_up(key)
        if found is None and key[0] in self._unknown.values():
            raise StorageError(
                "messages for later cannot be read at the moment: whether the delay id "
                f"{key[1]!r} names one of them is not known; try again"
            )
        return found

    def due_of(self, schedule_id: int, filed: int) -> int:
        """When a message is due that is filed under some time."""
        return self.finished.due_of(schedule_id, filed)

    # --- fills ---------------------------------------------------------------------------------

    @property
    def recent_frames(self) -> int:
        return len(self.recent) // FRAME

    def begin_fill(self, end: int) -> Fill:
        """All from F to `end`, where the log is written up to, is to go into a file."""
        finished = self.finished
        fill = Fill(
            start=self.filled,
            end=end,
            delivered_until=self.delivered_until,
            frames=self.recent,
            gone=finished.gone,
            tombstones=finished.tombstones,
            names=self.ids.begin_fill(),
            pending=dict(self.pending),
            remembered=dict(self.ids.remembered),
            done=set(finished.done),
            done_until=finished.done_until,
            unknown={frame.start for frame in self._unknown},
        )
        finished.begin_fill(fill)
        self.recent, self.recent_bytes = array("q"), 0
        return fill

    def finish_fill(self, fill: Fill) -> None:
        """The file and the manifest are on disk."""
        self.finished.finish_fill(fill)
        self.ids.finish_fill(fill)
        for schedule_id, (subject_id, _) in fill.found:
            if schedule_id not in self._uncounted:
                self.pending[subject_id] = self.pending.get(subject_id, 0) + 1
        self._unknown, self._uncounted = {}, set()
        for due, schedule_id, subject_id in fill.lost:
            if not self.wheel.has(schedule_id, due):  # else it is written off when it is due
                self._count_down(subject_id, 1)
                self.counters.damaged += 1

    def abandon_fill(self, fill: Fill) -> None:
        """The file could not be written: all is as if the fill had never begun."""
        self.finished.abandon_fill(fill)
        self.ids.abandon_fill(fill)
        self.recent = fill.frames + self.recent
        self.recent_bytes = sum(self.recent[1::FRAME]) - ORIGIN_SIZE * self.recent_frames

    # --- loads ---------------------------------------------------------------------------------

    def begin_load(self, until: int, log_end: int) -> None:
        """What is parked from here on, at `log_end` or behind, goes into the wheel if it is due earlier.
        If the load before was not finished, this one continues it: the border stays."""
        if self.border < 0:
            self._live_from = log_end
        if self.border == self.loaded_until:
            # Never below W, wherever the clock is: what is filed under W + 1 ms must be within the border.
            self.border, self._mark = max(until, self.delivered_until[0] + 2), log_end

    @property
    def mark(self) -> int:
        """What is parked from there on goes into the wheel by itself, if it is due before the border."""
        return self._mark

    def admit(
        self,
        source: int,
        table: bytes,
        struck: set[int],
        mark: int | None = None,
        dues: Mapping[int, int] | None = None,
    ) -> None:
        """Put entries of a schedule file into the wheel, without those that tombstones took out, that are
        finished, or that are there already. `mark`: that of the load that they belong to; `dues`: when
        those are due that are filed under another time."""
        kept = self.finished.unfinished(
            ENTRY.iter_unpack(table),
            self.delivered_until,
            self._mark if mark is None else mark,
            struck,
            self._live_from,
        )
        if len(kept) * ENTRY.size != len(table) or dues:
            kept = sorted(self._at_their_time(kept, dues or {}))
            table = b"".join(ENTRY.pack(*entry) for entry in kept)
        if table:
            self.wheel.add_table(source, table)

    def _at_their_time(
        self, entries: Iterable[Packed], dues: Mapping[int, int]
    ) -> Iterator[Packed]:
        """Entries of a file with the due times that their records have."""
        for entry in entries:
            filed, schedule_id, offset, length, subject_id = entry
            due = dues.get(schedule_id)
            if due is None:
                yield entry
            else:
                self.finished.note_refiled(schedule_id, Refiled(filed, due, subject_id))
                yield due, schedule_id, offset, length, subject_id

    def admit_unfiled(self, heads: Iterable[Unfiled], due_from: int, until: int) -> None:
        """Put messages into the wheel that no file holds yet and that are not there, if they are due in
        [due_from, until)."""
        for due, schedule_id, length, subject_id, named in heads:
            if (
                due_from <= due < until
                and schedule_id not in self.finished.gone
                and schedule_id >= self.filled
            ):
                self.wheel.add(due, schedule_id, length, subject_id, named)

    def finish_load(self) -> None:
        self.loaded_until = self.border
        if not self.unloaded:
            self.finished.loaded_until(self.loaded_until)


def _ignore_id(subject_id: int, position: int, delay_id: bytes, what: str) -> None:
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
