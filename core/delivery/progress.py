"""How far a group is in a subject: a plain position, or a cursor with pull logs while it shares.

While the group reads with plain offsets, Progress is a position and no more. While it shares, `cursor`
is the next sequence never delivered. Each sequence below it is in exactly one place: leased (in one pull
log), waiting to be delivered again (`redelivery`), or acked, which is to be nowhere. So the size grows
with unacked ranges, never with what was consumed.

A pull log numbers what one member was given: pull sequences grow by one with each message, and each
lease maps a run of them onto a run of sequences. Slots number the pull logs of a subject, over all its
groups: `slot << 48 | pull sequence` is the offset that the member sees.

The methods that change something are for `Groups.apply` alone, and they take any history: where a damaged
action log has lost some, what is told last wins, and a message in doubt is delivered once more.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kumquat.core.delivery.ranges import Range, Ranges

SLOT_SHIFT = 48
MAX_SLOT = (1 << 15) - 1
MAX_PULL = (1 << SLOT_SHIFT) - 1
FIRST_PULL = 1 << 24
"""Pull logs begin here or higher: the base offset of a cut batch may lie below its first record."""
JUMP = 1 << 24
"""How far every pull log leaps after an unclean start. Fewer messages than that may be handed out while
they are not synced (the action log ensures it), so no pull offset names two messages."""


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

    @property
    def end(self) -> int:
        """Behind its last pull sequence."""
        return self.pull + self.size

    def part(self, skipped: int, size: int) -> Lease:
        return Lease(self.pull + skipped, self.first + skipped, size, self.attempt)


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

    def forget(self, first: int, end: int) -> int:
        """Take out the sequences from `first` to `end`, whoever has them now; how many that were."""
        kept: list[Lease] = []
        for lease in self.leases:
            low, high = max(first, lease.first), min(end, lease.first + lease.size)
            if low >= high:
                kept.append(lease)
                continue
            if lease.first < low:
                kept.append(lease.part(0, low - lease.first))
            if high < lease.first + lease.size:
                kept.append(lease.part(high - lease.first, lease.first + lease.size - high))
        before = self.unacked
        self.leases = deque(kept)
        self.unacked = sum(lease.size for lease in kept)
        return before - self.unacked


class Progress:
    __slots__ = (
        "committed_at",
        "cursor",
        "epoch",
        "expired",
        "metadata",
        "position",
        "pull_logs",
        "redelivery",
        "shared",
    )
    KEPT = ("pull_logs", "redelivery")

    def __init__(self) -> None:
        self.position: int | None = None
        """What was committed with plain offsets; None when nothing ever was. A negative one is told again
        and is no place in the subject: the client is to choose one."""
        self.epoch = -1
        self.metadata = ""
        self.shared = False
        self.cursor = 0
        self.pull_logs: dict[int, PullLog] = {}
        self.redelivery = Ranges()
        self.expired = 0
        """How many messages were gone, or could not be read, before they were acked."""
        self.committed_at = 0
        """When the group last committed or acked, ms since the epoch."""

    def lowest_unacked(self) -> int | None:
        """The group's position in sequences: what lag tools are told."""
        if not self.shared:
            return self.position
        lowest = [lease.first for log in self.pull_logs.values() for lease in log.leases]
        if self.redelivery.lowest is not None:
            lowest.append(self.redelivery.lowest)
        return min(lowest, default=self.cursor)

    @property
    def committed(self) -> bool:
        """Whether a place in the subject was committed."""
        return self.position is not None and self.position >= 0

    @property
    def settled(self) -> bool:
        """Nothing below the cursor is unacked."""
        return not len(self.redelivery) and not any(log.leases for log in self.pull_logs.values())

    @property
    def unacked(self) -> int:
        """How many messages below the cursor are not acked."""
        return self.redelivery.total + sum(log.unacked for log in self.pull_logs.values())

    def begin_sharing(self, sequence: int) -> None:
        """From there on, and from nothing: what was leased or waited before is no longer asked for."""
        self.shared = True
        self.cursor = sequence
        self.redelivery = Ranges()
        for log in self.pull_logs.values():
            log.leases = deque()
            log.unacked = 0

    def lease(self, log: PullLog, pull: int, given: list[list[int]]) -> None:
        if pull < log.next:
            raise ValueError(f"pull sequence {pull} of slot {log.slot} was given before")
        if not self.shared and given:  # the action that began it is lost
            self.begin_sharing(min(max(self.position or 0, 0), given[0][0]))
        for first, size, attempt in given:
            self._claim(first, first + size)
            log.give(Lease(pull, first, size, attempt))
            pull += size

    def _claim(self, first: int, end: int) -> None:
        """The sequences go to somebody: they are nowhere else from here on."""
        if first < self.cursor:
            below = min(end, self.cursor)
            if self.redelivery.cut(first, below) < below - first:
                for log in self.pull_logs.values():
                    log.forget(first, below)
        elif first > self.cursor:
            self.redelivery.add(Range(self.cursor, first - self.cursor, 1))
        self.cursor = max(self.cursor, end)

    def release(self, slot: int) -> PullLog:
        """The pull log ends; what is unacked in it waits to be delivered again."""
        log = self.pull_logs.pop(slot)
        for lease in log.leases:
            self.redelivery.add(Range(lease.first, lease.size, lease.attempt + 1))
        return log

    def expire(self, sequence: int) -> None:
        """All below is gone from the subject."""
        if self.position is not None and self.position >= 0:
            self.position = max(self.position, sequence)
        if self.shared:
            self.expired += max(0, sequence - self.cursor)
        self.cursor = max(self.cursor, sequence)
        self.lose(0, sequence)

    def lose(self, first: int, end: int) -> None:
        """Messages that are gone: nobody holds them, and nobody gets them. Where they reach from below the
        cursor to above it, the cursor goes behind them."""
        self.expired += self.pass_over(first, end)
        if self.shared and first <= self.cursor < end:
            self.expired += end - self.cursor
            self.cursor = end

    def pass_over(self, first: int, end: int) -> int:
        """Take sequences below the cursor from whoever has them, as if acked; how many were not."""
        found = self.redelivery.cut(first, end)
        return found + sum(log.forget(first, end) for log in self.pull_logs.values())
