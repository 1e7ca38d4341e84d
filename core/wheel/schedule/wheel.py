"""The wheel: all messages that are due within the loaded window, in memory, 32 bytes each.

Packed entries (entries.py) pass through three places. Each entry is in exactly one of them:

    a notch   500 ms of due times: packed entries of each source, in no order
    a run     at most 8,192 entries of notches whose time comes, sorted, still packed
    at hand   given out by `take` as an Entry, and not delivered yet

Entries that arrive for a notch that is already sorted make a new notch, which is sorted when it is its
turn. `take` gives out what it did not give out yet, in order of (due, schedule id); a caller that has
entries at hand merges them. A notch of a million entries is sorted in steps (`sort_some`), run by run, and
is never unpacked as a whole.

The source of an entry is the message log (LOG; the record lies at its schedule id) or the number of a
schedule file. A cancelled entry stays where it is and is skipped when its time comes. The schedule ids of
entries with a delay id are also in a set, so that a cancel by delay id needs no search. A schedule id is in
the wheel once, and never comes back after it left: a message that is moved gets a new one.

There is no clock here and no disk. The caller checks whether a subject still exists.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable
from heapq import heappop, heappush

from kumquat.core.wheel.format import ENTRY, ENTRY_SIZE, NAMED
from kumquat.core.wheel.schedule.entries import (
    DUE,
    KEY,
    LOG,
    NOTCH_MS,
    Entry,
    Notch,
    Run,
    column,
    contains_key,
)

RUN = 8_192
"""The most entries that are sorted in one step."""


class Wheel:
    def __init__(self) -> None:
        self.count = 0
        """Entries that are neither delivered nor cancelled."""
        self.taken_back = 0
        """How many entries were cancelled while they were at hand: see `still`."""
        self._notches: dict[int, Notch] = {}
        self._order: list[int] = []
        """The numbers of the notches, as a heap."""
        self._unsorted: list[Run] = []
        self._runs: list[Run] = []
        self._at_hand: dict[int, Entry] = {}
        self._named: set[int] = set()
        self._cancelled: set[int] = set()
        """Schedule ids of entries to skip."""

    # --- adding --------------------------------------------------------------------------------

    def add(self, due: int, schedule_id: int, length: int, subject_id: int, named: bool) -> None:
        """Add an entry whose record lies in the log."""
        notch = self._notches.get(due // NOTCH_MS) or self._new_notch(due // NOTCH_MS)
        if named:
            self._named.add(schedule_id)
            length |= NAMED
        notch.log += ENTRY.pack(due, schedule_id, 0, length, subject_id)
        if due < notch.low:
            notch.low = due
        if schedule_id < notch.floor:
            notch.floor = schedule_id
        self.count += 1

    def add_table(self, file_number: int, table: bytes) -> None:
        """Add entries of a schedule file, sorted by due time."""
        words = column("q", table)
        dues = words[0::4]
        at, count = 0, len(dues)
        while at < count:
            number = dues[at] // NOTCH_MS
            end = bisect_left(dues, (number + 1) * NOTCH_MS, at)
            notch = self._notches.get(number) or self._new_notch(number)
            if notch.tables is None:
                notch.tables = {}
            part = notch.tables.setdefault(file_number, bytearray())
            part += table[at * ENTRY_SIZE : end * ENTRY_SIZE]
            notch.low = min(notch.low, dues[at])
            at = end
        lengths = column("I", table)[6::8]
        if lengths and max(lengths) >= NAMED:
            schedule_ids = words[1::4]
            self._named.update(schedule_ids[i] for i, n in enumerate(lengths) if n >= NAMED)
        self.count += count

    def _new_notch(self, number: int) -> Notch:
        notch = self._notches[number] = Notch()
        heappush(self._order, number)
        return notch

    # --- giving out ----------------------------------------------------------------------------

    def sort_some(self, until: int) -> bool:
        """Sort one run of what is due before `until`; False when all of it is sorted.

        `take` sorts all at once. A caller that must not block the event loop for long calls this first, and
        lets others run between the steps."""
        if not self._unsorted and self._order and self._order[0] * NOTCH_MS < until:
            number = heappop(self._order)
            notch = self._notches[number]
            if notch.log:
                self._unsorted.append(Run(LOG, bytes(notch.log), notch.low, notch.floor))
            for source, table in (notch.tables or {}).items():
                self._unsorted.append(Run(source, bytes(table), notch.low, sys.maxsize))
            del self._notches[number]
        if not self._unsorted:
            return False
        heap = self._unsorted[-1]
        end = min(heap.at + RUN, heap.count)
        entries = [
            heap.data[at : at + ENTRY_SIZE]
            for at in range(heap.at * ENTRY_SIZE, end * ENTRY_SIZE, ENTRY_SIZE)
        ]
        entries.sort()
        (low,) = DUE.unpack_from(entries[0])
        self._runs.append(Run(heap.source, b"".join(entries), low, heap.floor))
        heap.at = end
        if end == heap.count:
            self._unsorted.pop()
        return True

    def take(self, until: int, most: int = RUN) -> list[Entry]:
        """The next entries with due < `until` that were not given out yet, up to `most`, in order; none
        when all were given out. They are at hand from now on."""
        while self.sort_some(until):
            pass
        limit = DUE.pack(until)
        entries: list[Entry] = []
        while not entries:
            ends = [(run, run.below(limit)) for run in self._runs]
            ends = [(run, end) for run, end in ends if end > run.at]
            if not ends:
                break
            entries = self._merge(ends, most)
        self._at_hand.update((entry.schedule_id, entry) for entry in entries)
        self._runs = [run for run in self._runs if run.at < run.count]
        for run in self._runs:
            (run.low,) = DUE.unpack_from(run.data, run.at * ENTRY_SIZE)
        return entries

    def _merge(self, ends: list[tuple[Run, int]], most: int) -> list[Entry]:
        """Take the lowest entries of all runs: all, or between about half of `most` and `most`.

        It looks at every `share`-th key of each of the k runs. The k-th lowest of these keys is the pivot:
        at least k and fewer than 2 k shares lie up to it."""
        share = max(1, most // (2 * len(ends)))
        keys = [
            run.key(at - 1)
            for run, end in ends
            for at in range(run.at + share, min(end, run.at + share * len(ends)) + 1, share)
        ]
        if len(keys) > len(ends):
            pivot = sorted(keys)[len(ends) - 1]
            ends = [(run, min(end, run.through(pivot))) for run, end in ends]
        entries: list[Entry] = []
        for run, end in ends:
            entries += run.take(end)
        entries.sort()
        if self._cancelled:
            skipped = self._cancelled.intersection(entry.schedule_id for entry in entries)
            self._cancelled -= skipped
            entries = [entry for entry in entries if entry.schedule_id not in skipped]
        return entries

    def next_key(self, until: int) -> tuple[int, int] | None:
        """Due time and schedule id of the lowest entry with due < `until` that was not given out. It may be
        a cancelled one."""
        while self.sort_some(until):
            pass
        key = min((run.key(run.at) for run in self._runs if run.low < until), default=None)
        if key is None:
            return None
        due, schedule_id = KEY.unpack(key)
        return due, schedule_id

    def next_due(self) -> int | None:
        """The earliest due time of what was not given out. It may be that of a cancelled entry."""
        dues = [run.low for run in self._runs]
        dues += [run.low for run in self._unsorted]
        if self._order:
            dues.append(self._notches[self._order[0]].low)
        return min(dues, default=None)

    def lowest_due(self) -> int:
        """The earliest due time in the wheel or at hand; sys.maxsize if there is nothing."""
        waiting = self.next_due()
        at_hand = min((entry.due for entry in self._at_hand.values()), default=sys.maxsize)
        return at_hand if waiting is None else min(at_hand, waiting)

    # --- what becomes of entries ----------------------------------------------------------------

    def still(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of the entries that are still at hand: neither delivered, nor cancelled, nor moved."""
        get = self._at_hand.get
        return [entry for entry in entries if get(entry.schedule_id) is entry]

    def at_hand(self, schedule_id: int) -> Entry | None:
        """The entry with this schedule id, if it was given out and is not delivered."""
        return self._at_hand.get(schedule_id)

    def delivered(self, schedule_ids: Iterable[int]) -> None:
        """These entries were at hand, and are now delivered or dropped."""
        at_hand = self._at_hand
        for schedule_id in schedule_ids:
            if at_hand.pop(schedule_id, None) is not None:
                self.count -= 1
                self._named.discard(schedule_id)

    def holds(self, schedule_id: int) -> bool:
        """Whether this entry is in the wheel or at hand. It must be one with a delay id."""
        return schedule_id in self._named

    def has(self, schedule_id: int, due: int) -> bool:
        """Whether the entry that was added with this due time is in the wheel or at hand. An entry without
        a delay id is searched for."""
        if schedule_id in self._at_hand or schedule_id in self._named:
            return True
        return schedule_id not in self._cancelled and self._finds(due, schedule_id)

    def cancel(self, schedule_id: int, due: int) -> bool:
        """The entry will not be given out; if it is at hand, it will not be delivered. False: it is not
        here. `due` is the time that it was added with: an entry without a delay id is searched for."""
        if schedule_id in self._at_hand:
            del self._at_hand[schedule_id]
            self.taken_back += 1
        elif self.has(schedule_id, due):
            self._cancelled.add(schedule_id)
        else:
            return False
        self._named.discard(schedule_id)
        self.count -= 1
        return True

    def _finds(self, due: int, schedule_id: int) -> bool:
        key = KEY.pack(due, schedule_id)
        places = [run.data[run.at * ENTRY_SIZE :] for run in self._unsorted + self._runs]
        notch = self._notches.get(due // NOTCH_MS)
        if notch is not None:
            places += map(bytes, (notch.log, *(notch.tables or {}).values()))
        return any(contains_key(key, data) for data in places)

    # --- what must be kept on disk --------------------------------------------------------------

    def log_floor(self) -> int | None:
        """The lowest position of the log at which a record of an entry lies; None if there is none.

        Another thread may call this. It looks through the places in the order in which entries move on, and
        an entry is in the next place before it leaves the one before."""
        floors = [notch.floor for notch in list(self._notches.values())]
        floors += [run.floor for run in self._unsorted + self._runs if run.source == LOG]
        floors += [
            entry.schedule_id for entry in list(self._at_hand.values()) if entry.source == LOG
        ]
        floor = min(floors, default=sys.maxsize)
        return None if floor == sys.maxsize else floor

    def files_in_use(self) -> set[int]:
        """The numbers of the schedule files that entries point into."""
        used = {run.source for run in self._unsorted + self._runs}
        used.update(entry.source for entry in self._at_hand.values())
        for notch in self._notches.values():
            used.update(notch.tables or ())
        return used - {LOG}
