"""What one member was given of a subject, and has not acked: leases, numbered by a pull log.

A pull log numbers what one member was given: pull sequences grow by one with each message, and each
lease maps a run of them onto a run of sequences. Slots number the pull logs of a subject, over all its
groups: `slot << 48 | pull sequence` is the offset that the member sees. A member of a share group sees
sequences, and acks them one by one: its log is a ShareLog.

The methods that change something are for Progress (progress.py), and so for `Groups.apply`, alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import NamedTuple

SLOT_SHIFT = 48
MAX_SLOT = (1 << 15) - 1
MAX_PULL = (1 << SLOT_SHIFT) - 1
FIRST_PULL = 1 << 24
"""Pull logs begin here or higher: the base offset of a cut batch may lie below its first record."""
JUMP = 1 << 24
"""How far every pull log leaps after an unclean start. Fewer messages than that may be handed out while
they are not synced (the action log ensures it), so no pull offset names two messages."""
SHARE_PULL = 0
"""Where the log of a share member begins: it gives no pull offsets."""


def pull_offset(slot: int, pull: int) -> int:
    return slot << SLOT_SHIFT | pull


def split_offset(offset: int) -> tuple[int, int]:
    """Slot and pull sequence; slot 0 is a plain offset."""
    return offset >> SLOT_SHIFT, offset & MAX_PULL


class Lease(NamedTuple):
    """Messages `first` … of the subject, given as pull sequences `pull` …"""

    pull: int
    first: int
    size: int
    attempt: int
    since: int = 0
    """When the messages were first delivered to the group, ms since the epoch; 0: not known."""
    at: int = 0
    """When they were leased."""

    @property
    def end(self) -> int:
        """Behind its last pull sequence."""
        return self.pull + self.size

    @property
    def behind(self) -> int:
        """Behind its last sequence."""
        return self.first + self.size

    def part(self, skipped: int, size: int) -> Lease:
        return Lease(
            self.pull + skipped, self.first + skipped, size, self.attempt, self.since, self.at
        )


class PullLog:
    __slots__ = ("acked", "begin", "gaps", "leases", "member_id", "next", "slot", "unacked")
    KEPT = ("gaps", "leases")
    """Containers that change in place: see undo.py."""

    def __init__(self, slot: int, member_id: str, pull: int) -> None:
        self.slot = slot
        self.member_id = member_id
        self.begin = pull
        """Pull sequences below do not belong to this pull log: the slot may have had another one."""
        self.acked = pull
        """All below is acked. There may be no message at it: see `position`."""
        self.next = pull
        self.leases: deque[Lease] = deque()
        """Unacked, by pull sequence; after an unclean start there may be gaps between them."""
        self.unacked = 0
        """How many messages that is."""
        self.gaps: list[tuple[int, int]] = []
        """Where it has jumped from and to: a client may have been given what lies between, but nobody knows
        what that was."""

    @property
    def position(self) -> int:
        """The pull sequence that the member is to read next, if it knows nothing: the first unacked."""
        return self.leases[0].pull if self.leases else self.next

    def in_gap(self, pull: int) -> bool:
        return any(low < pull < high for low, high in self.gaps)

    def leap(self, distance: int) -> None:
        if distance:
            if self.gaps and self.gaps[-1][1] == self.next:
                self.gaps[-1] = (self.gaps[-1][0], self.next + distance)
            else:
                self.gaps.append((self.next, self.next + distance))
            self.next += distance

    def give(self, lease: Lease) -> None:
        self.leases.append(lease)
        self.unacked += lease.size
        self.next = lease.end

    def ack(self, pull: int) -> None:
        self.acked = max(self.acked, pull)
        self.gaps = [gap for gap in self.gaps if gap[1] > pull]
        leases = self.leases
        while leases and leases[0].pull < pull:
            lease = leases.popleft()
            done = min(lease.size, pull - lease.pull)
            self.unacked -= done
            if done < lease.size:
                leases.appendleft(lease.part(done, lease.size - done))

    def take(self, first: int, end: int) -> list[Lease]:
        """Take out the sequences from `first` to `end`, as far as they are here; gives what that was."""
        leases, taken = self.leases, list[Lease]()
        # By number, which is faster: there may be thousands of leases, and a client may give back messages
        # one by one.
        hits = [i for i, one in enumerate(leases) if one[1] < end and first < one[1] + one[2]]
        for i in reversed(hits):
            kept = list[Lease]()
            _part(leases[i], first, end, kept, taken)
            del leases[i]
            for lease in reversed(kept):
                leases.insert(i, lease)
        taken.reverse()
        self.unacked -= sum(lease.size for lease in taken)
        return taken

    def take_whole(self, ranges: list[list[int]]) -> dict[int, Lease]:
        """Take out the leases that are exactly one of these ranges (first sequence, size, …), in one go: a
        member may die with thousands of single messages. By their first sequences."""
        wanted = {(each[0], each[1]) for each in ranges}
        taken: dict[int, Lease] = {}
        leases = self.leases
        while leases and (leases[-1].first, leases[-1].size) in wanted:  # as a rule, all of them
            lease = leases.pop()
            wanted.discard((lease.first, lease.size))
            taken[lease.first] = lease
        if wanted:
            kept: deque[Lease] = deque()
            for lease in leases:
                if (lease.first, lease.size) in wanted and lease.first not in taken:
                    taken[lease.first] = lease
                else:
                    kept.append(lease)
            self.leases = kept
        self.unacked -= sum(lease.size for lease in taken.values())
        return taken

    def clear(self) -> None:
        self.leases = deque()
        self.unacked = 0


class ShareLog(PullLog):
    """What a member of a share group holds: by sequence, and taken out in any order. Its pull sequences
    tell one lease of a message from the next."""

    __slots__ = ("read",)

    leases: list[Lease]  # type: ignore[assignment]

    def __init__(self, slot: int, member_id: str) -> None:
        super().__init__(slot, member_id, SHARE_PULL)
        self.leases = []
        self.read = SHARE_PULL
        """What was given below this pull sequence was sent. Not stored."""

    def leap(self, distance: int) -> None:
        """Nobody was told its pull sequences."""

    def give(self, lease: Lease) -> None:
        insort(self.leases, lease, key=_first)
        self.unacked += lease.size
        self.next = lease.end

    def take_whole(self, ranges: list[list[int]]) -> dict[int, Lease]:
        """Likewise, also where a range is a part of a lease: as a rule they ascend, and one walk finds all
        that are."""
        taken: dict[int, Lease] = {}
        kept: list[Lease] = []
        rest = iter(self.leases)
        lease = next(rest, None)
        before = -1
        for first, size, *_ in ranges:
            if first < before or size <= 0:
                continue
            before = end = first + size
            while lease is not None and lease.behind <= first:
                kept.append(lease)
                lease = next(rest, None)
            if lease is None:
                break
            if lease.first > first or lease.behind < end:
                continue  # it is not here, or in several leases
            if lease.first < first:
                kept.append(lease.part(0, first - lease.first))
            skipped = first - lease.first
            whole = not skipped and lease.behind == end
            taken[first] = lease if whole else lease.part(skipped, size)
            left = lease.behind - end
            lease = lease.part(skipped + size, left) if left else next(rest, None)
        if taken:
            if lease is not None:
                kept.append(lease)
            self.leases = [*kept, *rest]
            self.unacked -= sum(each.size for each in taken.values())
        return taken

    def find(self, first: int, end: int) -> list[Lease]:
        """The leases that have any of the sequences from `first` to `end`."""
        leases = self.leases
        low = bisect_right(leases, first, key=_first)
        if low and leases[low - 1].behind > first:
            low -= 1
        return leases[low : bisect_left(leases, end, key=_first)]

    def held(self, first: int, end: int) -> list[Lease]:
        """The same, cut to these sequences."""
        found: list[Lease] = []
        for lease in self.find(first, end):
            _part(lease, first, end, [], found)
        return found

    def take(self, first: int, end: int) -> list[Lease]:
        leases = self.leases
        low = bisect_right(leases, first, key=_first)
        if low and leases[low - 1].behind > first:
            low -= 1
        high = bisect_left(leases, end, key=_first)
        if low >= high:
            return []
        kept: list[Lease] = []
        taken: list[Lease] = []
        for lease in leases[low:high]:
            _part(lease, first, end, kept, taken)
        leases[low:high] = kept
        self.unacked -= sum(lease.size for lease in taken)
        return taken

    def clear(self) -> None:
        self.leases = []
        self.unacked = 0


class Walk:
    """Looks for one run of sequences after the other in leases that are sorted by them; each begins where
    the one before ended, or behind. A client may name thousands."""

    __slots__ = ("_at", "_leases")

    def __init__(self, leases: list[Lease]) -> None:
        self._leases = leases
        self._at = 0

    def held(self, first: int, end: int) -> list[Lease]:
        """The leases of the sequences from `first` to `end`, cut to these."""
        leases, at, size = self._leases, self._at, len(self._leases)
        while at < size and leases[at].behind <= first:
            at += 1
        self._at = at
        found: list[Lease] = []
        while at < size and leases[at].first < end:
            _part(leases[at], first, end, [], found)
            at += 1
        return found


def _first(lease: Lease) -> int:
    return lease.first


def _part(lease: Lease, first: int, end: int, kept: list[Lease], taken: list[Lease]) -> None:
    """Divide a lease by whether its sequences lie between `first` and `end`."""
    low, high = max(first, lease.first), min(end, lease.behind)
    if low >= high:
        kept.append(lease)
        return
    if lease.first < low:
        kept.append(lease.part(0, low - lease.first))
    taken.append(lease.part(low - lease.first, high - low))
    if high < lease.behind:
        kept.append(lease.part(high - lease.first, lease.behind - high))
