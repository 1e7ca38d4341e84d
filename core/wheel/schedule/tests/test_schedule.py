"""The schedule against a model of a few lines: each message that was not cancelled is delivered once.

A life takes the place of the service, with a list for the log and lists for the schedule files, and crashes
at any step: a new Schedule is made from the last manifest and the frames behind it. The clock
may go back, fills may fail, a load may take several tries; for a while a file cannot be loaded, or a record
cannot be read, and all else is delivered. What comes next is drawn by a seeded generator: the failures that
matter take some ten steps in the right order, which long random lives meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from kumquat.core.errors import StorageError
from kumquat.core.logs.messages.format import CANCEL, DELIVERED, HEADER_SIZE, PARKED
from kumquat.core.logs.messages.parked import (
    CANCELLED,
    MOVED,
    NO_ORIGIN,
    ORIGIN_SIZE,
    CancelItem,
    heads_of,
    pack_cancels,
    pack_origin,
    pack_parked,
    pack_schedule_ids,
)
from kumquat.core.wheel.files.fill import names_of, parked_of
from kumquat.core.wheel.format import ENTRY, NAMED, Parked, Tombstone
from kumquat.core.wheel.schedule.entries import Entry
from kumquat.core.wheel.schedule.model import Fill, Remembered, Unfiled
from kumquat.core.wheel.schedule.schedule import Schedule

SUBJECTS = (1, 2)
OVER = 3  # DELIVERED, as the outcome of a cancel
BODY = b"\x01\x01\x04"


@dataclass
class File:
    parked: list[Parked]
    tombstones: list[Tombstone]
    names: dict[tuple[int, bytes], tuple[int, int, int]]


@dataclass
class Disk:
    """The log, the files, and what the manifest says."""

    frames: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)
    end: int = 0
    files: list[File] = field(default_factory=list)
    filled: int = 0
    delivered_until: tuple[int, int] = (-1, -1)
    pending: dict[int, int] = field(default_factory=dict)
    remembered: dict[tuple[int, bytes], Remembered] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    done_until: int = -1
    newest_store_time: int = -1

    def read(self, position: int, length: int) -> bytes:
        return self.frames[position][2]


class Life:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk = Disk()
        self.now = 1_000_000
        self.waiting: dict[int, tuple[int, int, bytes]] = {}
        """The model: schedule_id → subject, due, delay id."""
        self.delivered: list[int] = []
        self.fill: Fill | None = None
        self.at_hand: list[Entry] = []
        self.counter = 0
        self.start()

    def start(self) -> None:
        disk = self.disk
        self.schedule = Schedule(
            disk.filled,
            disk.delivered_until,
            disk.pending,
            disk.remembered,
            disk.done,
            max(disk.done_until, disk.newest_store_time),
        )
        for position, (kind, subject_id, payload) in disk.frames.items():
            if position >= disk.filled:
                self.schedule.apply(kind, subject_id, position, payload)
        self.schedule.end_replay()
        self.fill, self.at_hand = None, []
        self.unread: list[tuple[int, int, int, int]] = []
        """Files that could not be loaded: number, due times from and to, mark."""

    def write(self, kind: int, subject_id: int, payload: bytes) -> int:
        position = self.disk.end
        self.disk.frames[position] = (kind, subject_id, payload)
        self.disk.newest_store_time = max(self.disk.newest_store_time, self.now)
        self.disk.end = position + HEADER_SIZE + len(payload)
        self.schedule.apply(kind, subject_id, position, payload)
        return position + HEADER_SIZE

    # --- what clients do -----------------------------------------------------------------------

    def park(self) -> None:
        subject_id, named = self.rng.choice(SUBJECTS), self.rng.random() < 0.5
        parts, ids = [], []
        for _ in range(self.rng.randint(1, 3)):
            self.counter += 1
            ids.append(b"m%d" % self.counter if named else b"")
            due = self.now + self.rng.choice((0, 1, 5, self.rng.randint(0, 3_000)))
            parts.append(pack_parked(due, 0, ids[-1], BODY))
        payload = pack_origin(NO_ORIGIN) + b"".join(parts)
        begin = self.write(PARKED, subject_id, payload)
        for (at, head), delay_id in zip(heads_of(payload), ids, strict=True):
            self.waiting[begin + at] = (subject_id, head.due, delay_id)

    def named(self, key: tuple[int, bytes]) -> tuple[int, int, int] | None:
        found: tuple[int, int, int] | None = self.schedule.look_up(key)
        struck: set[int] = set()
        for file in reversed(self.disk.files):
            if found is None and (named := file.names.get(key)) is not None:
                schedule_id, due, status = named
                found = (
                    schedule_id,
                    due,
                    OVER if schedule_id in struck and status != CANCELLED else status,
                )
            struck |= {tombstone.schedule_id for tombstone in file.tombstones}
        return found

    def cancel_or_move(self) -> None:
        known = [(s, i) for s, _, i in self.waiting.values() if i]
        known.append((self.rng.choice(SUBJECTS), b"m%d" % self.rng.randint(1, self.counter + 1)))
        subject_id, delay_id = self.rng.choice(known)
        found = self.named((subject_id, delay_id))
        expected = [s for s, m in self.waiting.items() if (m[0], m[2]) == (subject_id, delay_id)]
        try:
            pending = (
                found is not None
                and found[2] not in (CANCELLED, OVER)
                and self.schedule.is_pending(found[0], found[1])
            )
        except StorageError:
            assert self.unread
            return
        assert pending == bool(expected), "whether it is pending"
        if not pending or found is None:
            return
        schedule_id, due, _ = found
        assert [schedule_id] == expected
        del self.waiting[schedule_id]
        outcome, until = CANCELLED, 0
        if self.rng.random() < 0.5:
            outcome, until = MOVED, self.now + self.rng.randint(0, 3_000)
            payload = pack_origin(NO_ORIGIN) + pack_parked(until, 0, delay_id, BODY)
            begin = self.write(PARKED, subject_id, payload)
            self.waiting[begin + ORIGIN_SIZE] = (subject_id, until, delay_id)
        item = CancelItem(outcome, schedule_id, due, until, delay_id)
        self.write(CANCEL, subject_id, pack_cancels(NO_ORIGIN, [item]))

    # --- what the service does -----------------------------------------------------------------

    def time_passes(self) -> None:
        self.now += self.rng.choice((0, 1, 5, 500, 2_000, -1, -700, 5_000, -5_000))

    def deliver(self) -> None:
        wheel = self.schedule.wheel
        self.at_hand = sorted(
            self.at_hand + wheel.take(min(self.now + 1, self.schedule.loaded_until))
        )
        held = self.schedule.held_back
        held &= {entry.schedule_id for entry in wheel.still(self.at_hand)}
        due = [
            s for s in wheel.still(self.at_hand) if s.due <= self.now and s.schedule_id not in held
        ]
        entries = due[: self.rng.choice((1, 2, 5))]
        for subject_id in SUBJECTS:
            schedule_ids = [
                entry.schedule_id for entry in entries if entry.subject_id == subject_id
            ]
            for schedule_id in schedule_ids:
                expected = self.waiting.pop(schedule_id, None)
                assert expected is not None, "delivered twice, or though it was cancelled"
                assert expected[1] <= self.now, "early"
                [entry] = [entry for entry in entries if entry.schedule_id == schedule_id]
                assert entry.due == expected[1], "not at its time"
                self.delivered.append(schedule_id)
            if schedule_ids:
                self.write(DELIVERED, subject_id, pack_schedule_ids(schedule_ids))
        wheel.delivered([entry.schedule_id for entry in entries])
        if entries:
            self.schedule.passed((entries[-1].due, entries[-1].schedule_id))
        self.at_hand = wheel.still(self.at_hand)

    def hold_back(self) -> None:
        """A record cannot be read."""
        if self.at_hand:
            self.schedule.held_back.add(self.rng.choice(self.at_hand).schedule_id)

    def read_held_back(self) -> None:
        self.schedule.held_back.clear()

    def begin_fill(self) -> None:
        if self.fill is None:
            self.fill = self.schedule.begin_fill(self.disk.end)

    def abandon_fill(self) -> None:
        if self.fill is not None:
            self.schedule.abandon_fill(self.fill)
            self.fill = None

    def finish_fill(self) -> None:
        fill, disk = self.fill, self.disk
        if fill is None:
            return
        parked = sorted(parked_of(fill, disk.read, lambda _: True))
        names = {
            (n.subject_id, n.delay_id): (n.schedule_id, n.due, n.status) for n in names_of(fill)
        }
        disk.files.append(File(parked, fill.tombstones, names))
        disk.filled, disk.delivered_until = fill.end, fill.delivered_until
        disk.pending, disk.remembered, disk.done = fill.pending, fill.remembered, fill.done
        disk.done_until = fill.done_until
        if self.rng.random() < 0.3:
            disk.newest_store_time = -1  # retention took the segments, the manifest knows
        self.fill = None
        if self.rng.random() < 0.1:
            self.start()
        else:
            self.schedule.finish_fill(fill)

    def load(self, finishes: float = 0.8) -> None:
        if self.fill is not None:
            return
        schedule = self.schedule
        since = schedule.loaded_until
        schedule.begin_load(max(self.now + self.rng.randint(0, 2_000), since), self.disk.end)
        self.begin_fill()
        if self.rng.random() < 0.2:
            self.abandon_fill()
            schedule.admit_unfiled(self.unfiled(schedule.mark), max(since, 0), schedule.border)
        else:
            self.finish_fill()
        if self.schedule is not schedule:
            return
        if self.rng.random() > finishes and not self.schedule.recent:
            return
        for number in range(len(self.disk.files)):
            window = (number, since, schedule.border, schedule.mark)
            if self.rng.random() > finishes:
                self.unread.append(window)
            else:
                self.admit(*window)
        schedule.unloaded = bool(self.unread)
        schedule.finish_load()

    def unfiled(self, mark: int) -> Iterator[Unfiled]:
        """What lies in the log alone and was parked before."""
        recent = self.schedule.recent
        for position, subject_id in zip(recent[0::3], recent[2::3], strict=True):
            if position < mark:
                for at, head in heads_of(self.disk.frames[position][2]):
                    schedule_id = position + HEADER_SIZE + at
                    yield Unfiled(
                        head.due, schedule_id, head.length, subject_id, head.id_length > 0
                    )

    def admit(self, number: int, since: int, border: int, mark: int) -> None:
        struck = self.schedule.finished.struck_recently()
        for file in self.disk.files:
            struck |= {tombstone.schedule_id for tombstone in file.tombstones}
        parked = [p for p in self.disk.files[number].parked if since <= p.due < border]
        dues = {p.schedule_id: next(heads_of(p.record, 0))[1].due for p in parked}
        dues = {p.schedule_id: dues[p.schedule_id] for p in parked if dues[p.schedule_id] != p.due}
        self.schedule.admit(number, b"".join(map(_entry, parked)), struck, mark, dues)

    def load_rest(self) -> None:
        """The files can be read again."""
        if self.fill is None:
            for window in self.unread:
                self.admit(*window)
            self.unread = []
            self.schedule.unloaded = False

    def crash(self) -> None:
        self.start()

    # --- all of it -----------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        weights = {
            self.park: 6,
            self.cancel_or_move: 3,
            self.time_passes: 6,
            self.deliver: 8,
            self.begin_fill: 2,
            self.finish_fill: 2,
            self.abandon_fill: 1,
            self.load: 3,
            self.load_rest: 1,
            self.hold_back: 1,
            self.read_held_back: 1,
            self.crash: 1,
        }
        for step in self.rng.choices(list(weights), list(weights.values()), k=steps):
            step()
            assert sum(self.schedule.pending.values()) == len(self.waiting)
        self.abandon_fill()
        self.load_rest()
        self.read_held_back()
        self.now += 1_000_000
        for _ in range(10):
            self.load(finishes=1)
            while self.schedule.wheel.count:
                self.deliver()
        assert not self.waiting, "never delivered"
        assert len(self.delivered) == len(set(self.delivered))


def _entry(parked: Parked) -> bytes:
    named = next(heads_of(parked.record, 0))[1].id_length > 0
    length = len(parked.record) | (NAMED if named else 0)
    return ENTRY.pack(parked.due, parked.schedule_id, 0, length, parked.subject_id)


@pytest.mark.parametrize("seed", range(40))
def test_no_life_loses_doubles_or_revives_a_message(seed: int) -> None:
    Life(seed).run(400)


def test_a_message_cancelled_while_it_was_filed_under_another_time_is_not_revived_by_a_merge() -> (
    None
):
    """A merge drops a tombstone that does not have the time of the entry. The cancel was written during the
    fill, with the time at which the message was due; the broker was killed after the fill."""
    schedule = Schedule(1_000, (5_000, 7), {1: 1}, {}, set())
    item = CancelItem(CANCELLED, 900, 4_000, 0, b"x")
    schedule.apply(CANCEL, 1, 1_000, pack_cancels(NO_ORIGIN, [item]))
    schedule.end_replay()
    assert schedule.finished.tombstones == [Tombstone(5_001, 900, 1)]
