"""What is delivered next: entries taken from the wheel, their records, and the decision to deliver.

No Trio, no disk, no clock: the task (tasks/deliverer.py) calls these steps, reads records in a thread, and
appends what `decide` gives.

    take        entries that are due soon leave the wheel and wait here, in order
    to_read     which records are to be read next; `records_read` takes them
    decide      the Delivery for what is due: batches to append, nothing is changed
    delivered   the delivery is written: its entries and records leave

Rules:
- Messages are delivered in order of (due, schedule id) over all subjects: what is written moves
  `delivered_until` on, and a start takes all up to there as delivered. So nothing is delivered while the
  wheel holds something that comes before it. Nothing beyond `loaded_until` is taken: the wheel is not
  complete there yet.
- Records that are due within half a second are read ahead, up to 64 MB of them.
- A damaged record is written off, with an error in the broker's log. A message whose subject is deleted
  goes with it. A record that cannot be read at the moment is retried later (read_retries.py); all others
  pass it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import cast

from kumquat.core.logs.messages.parked import SCHEDULE_ID, pack_schedule_ids
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.wheel.schedule.batch_builder import build_batches
from kumquat.core.wheel.schedule.effects import NEVER, Append, Damaged, Delivery
from kumquat.core.wheel.schedule.entries import NOTCH_MS, Entry
from kumquat.core.wheel.schedule.model import ReadResult
from kumquat.core.wheel.schedule.read_retries import ReadRetries
from kumquat.core.wheel.schedule.schedule import Schedule

AHEAD_BYTES = 64 << 20
"""How much is read ahead."""
READ_MS = NOTCH_MS // 2
"""A record is read at least this long before it is due."""
AT_HAND = 65_536
"""How many entries are taken from the wheel ahead of their delivery."""
CHUNK = 1_024
"""How many messages are delivered in one write: a few milliseconds of work."""
CHUNK_BYTES = 2 << 20
APART_MS = 2
"""The least time between two looks: many messages a second do not mean as many writes and syncs."""


class DeliveryQueue:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._wheel = schedule.wheel
        self._retries = ReadRetries(schedule.held_back)
        self._entries: list[Entry] = []
        """Taken from the wheel, in order."""
        self._records: dict[int, bytes | str] = {}
        """Their records, as far as they are read, by schedule id; a text says why one is damaged."""
        self._held = 0
        """Bytes of these."""
        self._unread = 0
        """How many of the entries have no record yet."""
        self._taken_back = 0
        """What the wheel counted when withdrawn entries were last dropped."""

    def overdue(self, now: int) -> int:
        """How many of the messages here should have been delivered by now."""
        return self._due_count(now) + len(self._retries)

    @property
    def failing(self) -> str | None:
        """Why some messages cannot be read at the moment."""
        return self._retries.reason

    def next_look(self, now: int) -> int:
        """When the next message is due or has to be read; after 500 ms at the latest, so that a clock that
        was set, or a machine that slept, is noticed."""
        next_due = self._entries[0].due if self._entries else NEVER
        in_wheel = self._wheel.next_due()
        if in_wheel is not None and in_wheel < self._schedule.loaded_until:
            next_due = min(next_due, in_wheel - READ_MS)
        return now + min(max(next_due - now, APART_MS), NOTCH_MS)

    def _due_count(self, now: int) -> int:
        return bisect_right(self._entries, now, key=lambda entry: entry.due)

    # --- taking from the wheel ------------------------------------------------------------------

    def take_until(self, now: int) -> int | None:
        """The due time up to which entries are to be taken now; None: nothing is due soon."""
        next_due = self._wheel.next_due()
        if next_due is None or next_due > now + READ_MS:
            return None
        return min(now + NOTCH_MS, self._schedule.loaded_until)

    def take(self, until: int) -> bool:
        """One step: sort a little, or take some entries that are due before `until`, as far as there is
        room; those that come before what is here are taken in any case. False: there is no more to do."""
        wheel, entries = self._wheel, self._entries
        if wheel.sort_some(until):
            return True
        key = wheel.next_key(until)
        if key is None or (len(entries) >= AT_HAND and key > entries[-1][:2]):
            return False
        fresh = wheel.take(until, CHUNK)
        self._unread += len(fresh)
        in_order = not entries or not fresh or entries[-1] < fresh[0]
        entries += fresh
        if not in_order:
            entries.sort()
        return True

    def retry(self, time: float) -> None:
        """Records that could not be read are to be read again, if they have waited long enough."""
        again = self._retries.due_again(time)
        if again:
            self._unread += len(again)
            self._entries = sorted(self._entries + again)

    def drop_withdrawn(self) -> None:
        """Forget the entries that were cancelled or moved since they were taken from the wheel."""
        if self._taken_back != self._wheel.taken_back:
            self._taken_back = self._wheel.taken_back
            self._entries = self._wheel.still(self._entries)
            self._retries.keep(self._wheel.still)
            schedule_ids = {entry.schedule_id for entry in self._entries}
            for schedule_id in self._records.keys() - schedule_ids:
                self._held -= _size(self._records.pop(schedule_id))
            self._unread = len(self._entries) - len(self._records)

    # --- reading --------------------------------------------------------------------------------

    def to_read(self) -> list[Entry]:
        """Whose records are to be read next, the earliest first; none: all are read, or there is no
        room."""
        if not self._unread:
            return []
        records, size = self._records, 0
        wanted: list[Entry] = []
        for entry in self._entries:
            if entry.schedule_id not in records:
                if wanted and (len(wanted) == CHUNK or size > CHUNK_BYTES):
                    break
                if self._held + size + entry.length > AHEAD_BYTES and not self._make_room(entry):
                    break
                wanted.append(entry)
                size += entry.length
        return wanted

    def records_read(
        self,
        entries: Sequence[Entry],
        records: Sequence[ReadResult],
        subjects: Mapping[int, Subject],
        time: float,
    ) -> None:
        """What reading the records of these entries gave, in the same order."""
        for entry, record in zip(entries, records, strict=True):
            if isinstance(record, OSError) and entry.subject_id in subjects:
                self._retries.add(entry, record, time)
            else:
                self._retries.discard(entry.schedule_id)
                known = record if isinstance(record, bytes) else str(record)
                self._records[entry.schedule_id] = known
                self._held += _size(known)
        self._unread -= len(entries)
        self._entries = [entry for entry in self._entries if entry.schedule_id not in self._retries]

    def _make_room(self, entry: Entry) -> bool:
        """Only for the first entry: drop the records of later ones."""
        if entry is not self._entries[0]:
            return False
        self._records.clear()
        self._held, self._unread = 0, len(self._entries)
        return True

    # --- delivering -----------------------------------------------------------------------------

    def is_due(self, now: int) -> bool:
        return bool(self._entries) and self._entries[0].due <= now

    @property
    def first_is_read(self) -> bool:
        return self._entries[0].schedule_id in self._records

    def decide(self, now: int, subjects: Mapping[int, Subject]) -> Delivery | None:
        """What is to be written now; None: nothing. It changes nothing."""
        entries = self._deliverable(now)
        if not entries:
            return None
        by_subject: dict[int, list[Entry]] = {}
        for entry in entries:
            by_subject.setdefault(entry.subject_id, []).append(entry)
        appends: list[Append] = []
        damaged: list[Damaged] = []
        for subject_id, of_subject in by_subject.items():
            subject = subjects.get(subject_id)
            if subject is not None:
                appends += self._batches(subject, of_subject, now)
                damaged += self._damaged(subject, of_subject)
        for subject_id in {one.entry.subject_id for one in damaged}:
            schedule_ids = [
                one.entry.schedule_id for one in damaged if one.entry.subject_id == subject_id
            ]
            appends.append(Append(subjects[subject_id], pack_schedule_ids(schedule_ids), None))
        return Delivery(entries, appends, damaged)

    def delivered(self, delivery: Delivery) -> None:
        """The delivery is written."""
        entries = delivery.entries
        self._schedule.finish_delivery(delivery)
        del self._entries[: len(entries)]
        for entry in entries:
            self._held -= _size(self._records.pop(entry.schedule_id))

    def _deliverable(self, now: int) -> list[Entry]:
        """Entries that are due and read, with nothing in the wheel that comes before them."""
        size = 0
        due = self._entries[: min(CHUNK, self._due_count(now))]
        next_due = self._wheel.next_due()
        if next_due is not None and next_due <= now:
            bound = self._wheel.next_key(now + 1)
            if bound is not None:
                del due[bisect_left(due, bound) :]
        for i, entry in enumerate(due):
            if entry.schedule_id not in self._records or size > CHUNK_BYTES:
                return due[:i]
            size += entry.length
        return due

    def _batches(self, subject: Subject, entries: list[Entry], now: int) -> list[Append]:
        records = self._records
        whole = [entry for entry in entries if isinstance(records[entry.schedule_id], bytes)]
        schedule_ids = pack_schedule_ids(entry.schedule_id for entry in whole)
        contents = cast("list[bytes]", [records[entry.schedule_id] for entry in whole])
        append_time, most = subject.config.log_append_time, subject.config.max_message_bytes
        appends, at = [], 0
        for batch, count in build_batches(contents, now, append_time, most):
            end = at + count * SCHEDULE_ID.size
            appends.append(Append(subject, schedule_ids[at:end], batch))
            at = end
        return appends

    def _damaged(self, subject: Subject, entries: list[Entry]) -> list[Damaged]:
        return [
            Damaged(entry, subject.name, reason)
            for entry in entries
            if isinstance(reason := self._records[entry.schedule_id], str)
        ]


def _size(record: bytes | str) -> int:
    return len(record) if isinstance(record, bytes) else 0
