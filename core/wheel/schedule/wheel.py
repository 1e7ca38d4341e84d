"""The wheel: what is to be delivered within the loaded window, in memory, 32 bytes a message.

An entry is the one of the schedule files (big-endian, so that its bytes sort as it does):

    due (8)  sid (8)  offset of the record in its file (8)  length and flags (4)  subject id (4)

It goes through three places, and is in exactly one of them:

    a notch   500 ms of due times: a heap of bytes for each source, in no order
    a run     at most 8,192 entries of notches whose time comes, sorted, as bytes still
    at hand   given out by `prepare` as a Slot, not yet delivered

What arrives for a notch that has been sorted already makes a notch of its own, which is sorted in its
turn: `prepare` gives what was not given yet, in order of (due, sid), and who has slots at hand merges
them. Sorting goes by runs, so that a notch of a million entries is sorted in steps (`unfold`) and never
stands in memory unpacked.

A source is the message log (LOG; the record lies at its sid) or the number of a schedule file. A
cancelled entry stays where it is and is passed over when its time comes; only entries with a delay id
are in a set as well, so that cancelling by id does not search. A sid is in the wheel once, and when it
has left it never comes back: a message that is moved gets another one.

There is no clock here and no disk. Whether a subject still lives is the caller's business.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from kumquat.core.wheel.format import ENTRY, ENTRY_SIZE, LENGTH, NAMED

NOTCH_MS = 500
LOG = -1
"""The source of entries whose record lies in the message log."""
RUN = 8_192
"""The most entries that are sorted in one step."""

_KEY = struct.Struct(">qq")
_DUE = struct.Struct(">q")


class Slot(NamedTuple):
    """An entry at hand. Slots sort by due time, then by scheduling."""

    due: int
    sid: int
    offset: int
    """Where the record lies in its file; 0 in the log, where it lies at its sid."""
    length: int
    subject_id: int
    source: int
    """LOG, or the number of a schedule file."""


class _Notch:
    __slots__ = ("floor", "log", "low", "tables")

    def __init__(self) -> None:
        self.low = sys.maxsize
        """The earliest due time."""
        self.floor = sys.maxsize
        """The lowest sid of what comes from the log."""
        self.log = bytearray()
        self.tables: dict[int, bytearray] | None = None


class _Run:
    """Entries of one source: unsorted while they wait in `_unsorted`, else sorted from `at` on."""

    __slots__ = ("at", "count", "data", "floor", "low", "source")

    def __init__(self, source: int, data: bytes, low: int, floor: int, at: int = 0) -> None:
        self.source = source
        self.data = data
        self.low = low
        self.floor = floor
        self.at = at
        self.count = len(data) // ENTRY_SIZE

    def key(self, i: int) -> bytes:
        return self.data[i * ENTRY_SIZE : i * ENTRY_SIZE + _KEY.size]

    def below(self, limit: bytes) -> int:
        """The first entry that is not below `limit`, a due time."""
        return bisect_left(range(self.count), limit, self.at, key=self.key)

    def through(self, pivot: bytes) -> int:
        """The first entry behind `pivot`, a due time and a sid."""
        return bisect_right(range(self.count), pivot, self.at, key=self.key)

    def take(self, end: int) -> list[Slot]:
        data = self.data[self.at * ENTRY_SIZE : end * ENTRY_SIZE]
        self.at = end
        new, source, mask = tuple.__new__, self.source, LENGTH
        return [
            new(Slot, (due, sid, offset, length & mask, subject, source))
            for due, sid, offset, length, subject in ENTRY.iter_unpack(data)
        ]


class Wheel:
    def __init__(self) -> None:
        self.count = 0
        """Entries that are neither delivered nor cancelled."""
        self.taken_back = 0
        """How many slots were cancelled when they were at hand: see `still`."""
        self._notches: dict[int, _Notch] = {}
        self._order: list[int] = []
        """The numbers of the notches, as a heap."""
        self._unsorted: list[_Run] = []
        self._runs: list[_Run] = []
        self._at_hand: dict[int, Slot] = {}
        self._named: set[int] = set()
        self._cancelled: set[int] = set()
        """Sids of entries to be passed over."""

    # --- filling -------------------------------------------------------------------------------

    def add(self, due: int, sid: int, length: int, subject_id: int, named: bool) -> None:
        """An entry whose record lies in the log."""
        notch = self._notches.get(due // NOTCH_MS) or self._new_notch(due // NOTCH_MS)
        if named:
            self._named.add(sid)
            length |= NAMED
        notch.log += ENTRY.pack(due, sid, 0, length, subject_id)
        if due < notch.low:
            notch.low = due
        if sid < notch.floor:
            notch.floor = sid
        self.count += 1

    def add_many(
        self,
        dues: Sequence[int],
        sids: Sequence[int],
        lengths: Sequence[int],
        subject_id: int,
        named: Sequence[bool] | None = None,
    ) -> None:
        """Entries of one subject whose records lie in the log. `named`: None if none of them is."""
        if named is not None and any(named):
            for due, sid, length, has_name in zip(dues, sids, lengths, named, strict=True):
                self.add(due, sid, length, subject_id, has_name)
            return
        notches, pack = self._notches, ENTRY.pack
        for due, sid, length in zip(dues, sids, lengths, strict=True):
            notch = notches.get(due // NOTCH_MS) or self._new_notch(due // NOTCH_MS)
            notch.log += pack(due, sid, 0, length, subject_id)
            if due < notch.low:
                notch.low = due
            if sid < notch.floor:
                notch.floor = sid
        self.count += len(dues)

    def add_table(self, file_number: int, table: bytes) -> None:
        """Entries of a schedule file, sorted by due time."""
        words = _words("q", table)
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
        lengths = _words("I", table)[6::8]
        if lengths and max(lengths) >= NAMED:
            sids = words[1::4]
            self._named.update(sids[i] for i, n in enumerate(lengths) if n >= NAMED)
        self.count += count

    def _new_notch(self, number: int) -> _Notch:
        notch = self._notches[number] = _Notch()
        heappush(self._order, number)
        return notch

    # --- giving --------------------------------------------------------------------------------

    def unfold(self, until: int) -> bool:
        """Sort a little of what is due before `until`; False when there is nothing (any more) to sort.

        `prepare` does it all at once: who must not hold up others comes here first, step by step."""
        if not self._unsorted and self._order and self._order[0] * NOTCH_MS < until:
            number = heappop(self._order)
            notch = self._notches[number]
            if notch.log:
                self._unsorted.append(_Run(LOG, bytes(notch.log), notch.low, notch.floor))
            for source, table in (notch.tables or {}).items():
                self._unsorted.append(_Run(source, bytes(table), notch.low, sys.maxsize))
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
        (low,) = _DUE.unpack_from(entries[0])
        self._runs.append(_Run(heap.source, b"".join(entries), low, heap.floor))
        heap.at = end
        if end == heap.count:
            self._unsorted.pop()
        return True

    def prepare(self, until: int, most: int = RUN) -> list[Slot]:
        """The next entries with due < `until` that were not given yet, up to `most`, in order; none when
        all were given. They are at hand from now on."""
        while self.unfold(until):
            pass
        limit = _DUE.pack(until)
        slots: list[Slot] = []
        while not slots:
            ends = [(run, run.below(limit)) for run in self._runs]
            ends = [(run, end) for run, end in ends if end > run.at]
            if not ends:
                break
            slots = self._merge(ends, most)
        self._at_hand.update((slot.sid, slot) for slot in slots)
        self._runs = [run for run in self._runs if run.at < run.count]
        for run in self._runs:
            (run.low,) = _DUE.unpack_from(run.data, run.at * ENTRY_SIZE)
        return slots

    def _merge(self, ends: list[tuple[_Run, int]], most: int) -> list[Slot]:
        """Take the lowest entries of all runs: all, or between about half of `most` and `most`.

        Of k runs, every `share`-th key is looked at. Up to the k-th lowest of these keys lie k shares and
        less than 2 k: that is the pivot."""
        share = max(1, most // (2 * len(ends)))
        keys = [
            run.key(at - 1)
            for run, end in ends
            for at in range(run.at + share, min(end, run.at + share * len(ends)) + 1, share)
        ]
        if len(keys) > len(ends):
            pivot = sorted(keys)[len(ends) - 1]
            ends = [(run, min(end, run.through(pivot))) for run, end in ends]
        slots: list[Slot] = []
        for run, end in ends:
            slots += run.take(end)
        slots.sort()
        if self._cancelled:
            passed_over = self._cancelled.intersection(slot.sid for slot in slots)
            self._cancelled -= passed_over
            slots = [slot for slot in slots if slot.sid not in passed_over]
        return slots

    def next_key(self, until: int) -> tuple[int, int] | None:
        """Due time and sid of the lowest entry with due < `until` that was not given. A cancelled one may
        still count."""
        while self.unfold(until):
            pass
        key = min((run.key(run.at) for run in self._runs if run.low < until), default=None)
        if key is None:
            return None
        due, sid = _KEY.unpack(key)
        return due, sid

    def next_due(self) -> int | None:
        """The smallest due time of what was not given. A cancelled entry may still count."""
        dues = [run.low for run in self._runs]
        dues += [run.low for run in self._unsorted]
        if self._order:
            dues.append(self._notches[self._order[0]].low)
        return min(dues, default=None)

    def lowest_due(self) -> int:
        """Of all that is in the wheel or at hand; sys.maxsize if there is nothing."""
        waiting = self.next_due()
        at_hand = min((slot.due for slot in self._at_hand.values()), default=sys.maxsize)
        return at_hand if waiting is None else min(at_hand, waiting)

    # --- what becomes of entries ----------------------------------------------------------------

    def still(self, slots: Iterable[Slot]) -> list[Slot]:
        """Those of the slots that are at hand still: neither delivered, nor cancelled, nor moved."""
        get = self._at_hand.get
        return [slot for slot in slots if get(slot.sid) is slot]

    def at_hand(self, sid: int) -> Slot | None:
        """The slot of an entry that was given and is not delivered."""
        return self._at_hand.get(sid)

    def delivered(self, sids: Iterable[int]) -> None:
        """They were at hand, and have been delivered or dropped."""
        at_hand = self._at_hand
        for sid in sids:
            if at_hand.pop(sid, None) is not None:
                self.count -= 1
                self._named.discard(sid)

    def holds(self, sid: int) -> bool:
        """Whether an entry with a delay id is in the wheel or at hand. Of others nothing is known."""
        return sid in self._named

    def has(self, sid: int, due: int) -> bool:
        """Whether an entry that was added under this due time is in the wheel or at hand. It is searched
        for."""
        if sid in self._at_hand or sid in self._named:
            return True
        return sid not in self._cancelled and self._finds(due, sid)

    def cancel(self, sid: int, due: int) -> bool:
        """The entry will not be given; nor, if it is at hand, will it be delivered. False: it is not here.
        `due` is what it was added under: one without a delay id is searched for."""
        if sid in self._at_hand:
            del self._at_hand[sid]
            self.taken_back += 1
        elif self.has(sid, due):
            self._cancelled.add(sid)
        else:
            return False
        self._named.discard(sid)
        self.count -= 1
        return True

    def _finds(self, due: int, sid: int) -> bool:
        name = _KEY.pack(due, sid)
        places = [run.data[run.at * ENTRY_SIZE :] for run in self._unsorted + self._runs]
        notch = self._notches.get(due // NOTCH_MS)
        if notch is not None:
            places += map(bytes, (notch.log, *(notch.tables or {}).values()))
        return any(_begins_with(name, data) for data in places)

    # --- what it leans on -----------------------------------------------------------------------

    def log_floor(self) -> int | None:
        """No entry's record lies in the log below; None when none lies there at all.

        Another thread may ask: places are looked through in the order in which entries move on, and an
        entry is in the next one before it leaves the last."""
        floors = [notch.floor for notch in list(self._notches.values())]
        floors += [run.floor for run in self._unsorted + self._runs if run.source == LOG]
        floors += [slot.sid for slot in list(self._at_hand.values()) if slot.source == LOG]
        floor = min(floors, default=sys.maxsize)
        return None if floor == sys.maxsize else floor

    def files_in_use(self) -> set[int]:
        """The schedule files that entries point into."""
        used = {run.source for run in self._unsorted + self._runs}
        used.update(slot.source for slot in self._at_hand.values())
        for notch in self._notches.values():
            used.update(notch.tables or ())
        return used - {LOG}


def _words(typecode: str, table: bytes) -> array[int]:
    words = array(typecode)
    words.frombytes(table)
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _begins_with(name: bytes, data: bytes) -> bool:
    """Whether an entry begins with `name`."""
    at = data.find(name)
    while at >= 0 and at % ENTRY_SIZE:
        at = data.find(name, at + 1)
    return at >= 0
