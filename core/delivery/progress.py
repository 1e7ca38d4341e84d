"""How far a group is in a subject: a plain position, or a cursor with pull logs while it shares.

While the group reads with plain offsets, Progress is a position, retries, and what of the rest is acked or
has its dead letter already (`done`). Retries that lie below the position are delivered when the group
shares again (gateway/groups/assignment/modes.py). While it shares, `cursor` is the next sequence never
delivered. Each sequence below it is in exactly one place:

    pull_logs    leased to a member
    redelivery   to be delivered again, as soon as a member asks
    waiting      to be delivered again, at its time (waiting.py). `wake` moves what is due to `redelivery`:
                 that is a matter of time alone, so no action says it
    doomed       to become a dead letter
    nowhere      settled: acked, or its dead letter is durable

So the size grows with unacked ranges, never with what was consumed.

A doomed message is forgotten without its letter in one case only: it is to be delivered again. What moves a
group that has no members (`Groups._drop`, `begin_sharing`) decides by the new position. A doomed message
below it stays doomed. One from there on comes again with all others there, as a first attempt, and is no
longer doomed: else it would be delivered, and become a letter too. A plain commit is no such move: it may
come late, or from a second reader, so all that is doomed stays so; and so it does where no new position is
known.

Leases and pull logs are in pull_log.py.

The methods that change something are for `Groups.apply` alone (`wake` is the exception), and they take any
history: where a damaged action log has lost some, what is told last wins, and a message in doubt is
delivered once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kumquat.core.delivery.pull_log import Lease, PullLog
from kumquat.core.delivery.ranges import Range, Ranges
from kumquat.core.delivery.waiting import Wait, Waiting, check

FEW = 8
"""So many ranges are taken out of a pull log one by one."""
MOST_DONE = 10_000
"""Ranges that are remembered of what is settled above a plain position. Of more, the lowest is forgotten: a
client that rejects it once more, without a commit in between, makes a second letter of it. To join two
ranges instead would settle what lies between them."""
MOST_TOGETHER = 128
"""Doomed messages in one range. A message is looked for at each place at which its range can begin."""
MOST_AWAKE = 4096
"""Retries that are due are taken from the packed ones until so many ranges are at hand."""


class Doomed(NamedTuple):
    """Messages that are to become dead letters."""

    first: int
    size: int
    attempts: int
    reason: str
    text: str
    since: int
    """When they were first delivered, ms since the epoch; 0: not known."""
    at: int
    """When they were last delivered or, where that is not known, doomed."""

    @property
    def end(self) -> int:
        return self.first + self.size

    def cut(self, first: int, end: int) -> Doomed:
        return self._replace(first=first, size=end - first)


def _covers(found: Iterable[Range | Wait | Lease], size: int) -> bool:
    return sum(part.size for part in found) == size


class Progress:
    __slots__ = (
        "committed_at",
        "cursor",
        "done",
        "doomed",
        "doomed_span",
        "epoch",
        "expired",
        "metadata",
        "position",
        "pull_logs",
        "redelivery",
        "shared",
        "waiting",
    )
    KEPT = ("done", "pull_logs", "redelivery", "waiting")

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
        self.waiting = Waiting()
        self.doomed: dict[int, Doomed] = {}
        """By their first sequences, in about the order in which they were doomed."""
        self.doomed_span = 1
        """No range that is doomed is longer."""
        self.done = Ranges()
        """While the group reads with plain offsets: what is acked or has its dead letter, and is not below
        the position. A client may send its command again, and sharing may begin below."""
        self.expired = 0
        """How many messages were gone, or could not be read, before they were acked."""
        self.committed_at = 0
        """When the group last committed or acked, ms since the epoch."""

    def lowest_unacked(self) -> int | None:
        """The group's position in sequences: what lag tools are told."""
        if not self.shared:
            return self.position
        return min([self.lowest_due(), *self.doomed])

    def lowest_due(self) -> int:
        """The lowest that is leased, or to be delivered again."""
        lowest = [lease.first for log in self.pull_logs.values() for lease in log.leases]
        again = (self.redelivery.lowest, self.waiting.lowest)
        lowest += [low for low in again if low is not None]
        return min(lowest, default=self.cursor)

    @property
    def committed(self) -> bool:
        """Whether a place in the subject was committed."""
        return self.position is not None and self.position >= 0

    @property
    def retries(self) -> int:
        """How many messages are to be delivered again, now or later."""
        return self.redelivery.total + self.waiting.total

    @property
    def settled(self) -> bool:
        """Nothing below the cursor is leased or to be delivered again."""
        return not self.retries and not any(log.leases for log in self.pull_logs.values())

    def due(self, now: int) -> bool:
        """Whether a message is to be delivered again by now."""
        first = self.waiting.next_due
        return self.redelivery.total > 0 or (first is not None and first <= now)

    def drained(self, now: int) -> bool:
        """Nobody holds a message, and none is to be delivered again by now. Retries may wait for later."""
        return not self.due(now) and not any(log.leases for log in self.pull_logs.values())

    @property
    def leased(self) -> int:
        return sum(log.unacked for log in self.pull_logs.values())

    @property
    def dying(self) -> int:
        """How many messages are to become dead letters."""
        return sum(each.size for each in self.doomed.values())

    @property
    def unacked(self) -> int:
        """How many messages below the cursor are not settled."""
        return self.retries + self.leased + self.dying

    def log_of(self, member_id: str) -> PullLog | None:
        """The pull log of this member, also where it has left the group."""
        return next((log for log in self.pull_logs.values() if log.member_id == member_id), None)

    def commit(self, sequence: int, epoch: int, metadata: str) -> None:
        if self.position is not None and sequence < self.position:
            self.done = Ranges()  # who goes back wants all of it anew
        elif self.done.total:
            self.done.cut(0, sequence)
        self.position, self.epoch, self.metadata = sequence, epoch, metadata

    # --- sharing ---------------------------------------------------------------------------------

    def begin_sharing(self, sequence: int) -> None:
        """From there on. A group that shared already begins again: what was leased or waited before is no
        longer asked for. Else retries stay, and are not delivered a second time from the cursor."""
        again, self.shared, self.cursor = self.shared, True, sequence
        for log in self.pull_logs.values():
            log.clear()
        if again:
            self.redelivery, self.waiting = Ranges(), Waiting()
            doomed, self.doomed = self.doomed, {}
            self.add_doomed_below(sequence, doomed.values())
            return
        ahead = [(each.first, each.end) for each in self.redelivery]
        ahead += [(each.first, each.end) for each in self.waiting]
        ahead += [(each.first, each.end) for each in self.doomed.values()]
        ahead += [(each.first, each.end) for each in self.done]
        self.done = Ranges()
        for first, end in sorted(ahead):
            if end > self.cursor:
                self._pass_cursor(max(first, self.cursor), end)

    def end_sharing(self, sequence: int) -> None:
        """Back to plain offsets, from there on: what is to be delivered again lies above."""
        self.shared = False
        self.position, self.epoch = sequence, -1
        self.redelivery, self.waiting = Ranges(), Waiting()

    def in_order_from(self, now: int, *, exact: bool) -> int:
        """Where a member that reads in order can go on so that nothing comes before its time: above all
        that waits for later. `exact`: above all that is acked too. Else from the lowest that is to be
        delivered again, and what is acked above it comes once more. Pull logs count as empty."""
        lowest = at = self.waiting.behind_later(now)
        while at < self.cursor:
            found: list[Range | Wait | None]
            found = [self.redelivery.next_from(at), self.waiting.next_from(at)]
            part = min((each for each in found if each is not None), default=None)
            if part is None or part.first >= self.cursor:
                return self.cursor
            if not exact:
                return part.first
            if part.first > at:
                lowest = part.first
            at = part.end
        return lowest

    def read_in_order(self, sequence: int) -> None:
        """Back to plain offsets, from there on. What is to be delivered again below it stays; what is not
        settled above it is read in order."""
        # All retries count, whether woken or not: a replay wakes none, and must decide the same.
        many = self.retries > MOST_DONE
        again: list[Range | Wait] = [*self.redelivery.cut(sequence, self.cursor)]
        if many:
            self.waiting.drop(sequence, self.cursor)  # too many gaps to remember what lies between
        else:
            again += self.waiting.cut(sequence, self.cursor)
            at = sequence
            for first, end in sorted((each.first, each.end) for each in again):
                self._remember_done(at, first)
                at = end
            self._remember_done(at, self.cursor)
        self.shared = False
        self.position, self.epoch = sequence, -1

    def lease(self, log: PullLog, pull: int, given: list[list[int]], now: int) -> None:
        if pull < log.next:
            raise ValueError(f"pull sequence {pull} of slot {log.slot} was given before")
        if not self.shared and given:  # the action that began it is lost
            self.begin_sharing(min(max(self.position or 0, 0), given[0][0]))
        for first, size, attempt in given:
            since = self._claim(first, first + size) or now
            log.give(Lease(pull, first, size, attempt, since, now))
            pull += size

    def _claim(self, first: int, end: int) -> int:
        """The sequences go to somebody: they are nowhere else from here on. Gives when the first of
        them was first delivered; 0: not known."""
        since = 0
        if first < self.cursor:
            below = min(end, self.cursor)
            found: list[Range | Wait | Lease] = [*self.redelivery.cut(first, below)]
            if not _covers(found, below - first):  # in a replay they were never woken
                found += self.waiting.cut(first, below)
            if not _covers(found, below - first):
                found += self._take(first, below)
            since = min((part.since for part in found if part.since), default=0)
        if end > self.cursor:
            self._pass_cursor(max(first, self.cursor), end)
        return since

    def _pass_cursor(self, first: int, end: int) -> None:
        """The cursor goes behind `end`; what lies before `first` has not been delivered yet."""
        if first > self.cursor:
            self.redelivery.add(Range(self.cursor, first - self.cursor, 1))
        self.cursor = max(self.cursor, end)

    def release(self, slot: int) -> PullLog:
        """The pull log ends; what is unacked in it is to be delivered again."""
        log = self.pull_logs.pop(slot)
        self.redelivery.add_all(
            [Range(lease.first, lease.size, lease.attempt, lease.since) for lease in log.leases]
        )
        return log

    def doubt(self) -> int:
        """In a replay, where actions are lost: what is leased is to be delivered again, whatever acks
        follow. Gives how many messages that is. Share members ack each message by itself: theirs stay."""
        found = 0
        for log in self.pull_logs.values():
            if type(log) is PullLog:
                for lease in log.leases:
                    self.redelivery.add(Range(lease.first, lease.size, lease.attempt, lease.since))
                found += log.unacked
                log.clear()
        return found

    # --- retries and dead letters ----------------------------------------------------------------

    def accept(self, slot: int, ranges: list[list[int]]) -> None:
        log = self.pull_logs[slot]
        whole = self._take_whole(slot, ranges)
        for first, size in ranges:
            if whole.pop(first, None) is None:
                log.take(first, first + size)

    def retry(self, slot: int, ranges: list[list[int]], now: int) -> None:
        """Those that are settled already stay settled. ValueError, with nothing changed: a number is out of
        all bounds."""
        for each in ranges:
            check(*each)
        whole = self._take_whole(slot, ranges)
        for first, size, attempt, due in ranges:
            for part in self._withdraw(slot, first, first + size, now, whole):
                if due:
                    self.waiting.add(part.first, part.size, attempt, due, part.since)
                else:
                    self.redelivery.add(Range(part.first, part.size, attempt, part.since))

    def doom(self, slot: int, ranges: list[list[int]], reason: str, text: str, now: int) -> None:
        whole = self._take_whole(slot, ranges)
        for first, size, attempts in ranges:
            for part in self._withdraw(slot, first, first + size, now, whole):
                at = part.at or now
                self.add_doomed(
                    Doomed(part.first, part.size, attempts, reason, text, part.since, at)
                )

    def settle(self, ranges: Iterable[list[int]]) -> None:
        for first, size in ranges:
            end = first + size
            self._take(first, end)
            if not self.shared:
                self._remember_done(max(first, self.position or 0), end)
            elif end > self.cursor:
                self._pass_cursor(max(first, self.cursor), end)

    def _remember_done(self, first: int, end: int) -> None:
        if first < end:
            self.done.cut(first, end)
            self.done.add(Range(first, end - first, 1))
            if len(self.done) > MOST_DONE:
                lowest = next(iter(self.done))
                self.done.cut(lowest.first, lowest.end)

    def _take_whole(self, slot: int, ranges: list[list[int]]) -> dict[int, Lease]:
        log = self.pull_logs.get(slot)
        return log.take_whole(ranges) if log is not None and len(ranges) > FEW else {}

    def _withdraw(
        self, slot: int, first: int, end: int, now: int, whole: dict[int, Lease]
    ) -> list[Lease]:
        """Take sequences out of the pull log that has them, unless they are in `whole`; where the history
        is damaged, from wherever they are. Those that were never leased are given too, if they lie above
        the cursor or, without one, were read with plain offsets."""
        lease = whole.get(first)
        if lease is not None and lease.behind == end:
            return [whole.pop(first)]
        log = self.pull_logs.get(slot)
        taken = log.take(first, end) if log is not None else []
        if sum(lease.size for lease in taken) == end - first:
            return taken
        taken += self._take(first, end)
        if not self.shared:
            self.done.cut(first, end)
            if not slot:
                taken = [Lease(0, first, end - first, 1, now, now)]
        elif end > self.cursor:
            begin = max(first, self.cursor)
            self._pass_cursor(begin, end)
            taken.append(Lease(0, begin, end - begin, 1, now, now))
        return taken

    def _take(self, first: int, end: int) -> list[Lease]:
        """Take sequences below the cursor from wherever they are; gives what was not settled. Each is in
        one place, and pull logs come last: that is a walk through all leases."""
        taken = [
            Lease(0, part.first, part.size, part.attempt, part.since, 0)
            for part in self.redelivery.cut(first, end)
        ]
        taken += [
            Lease(0, wait.first, wait.size, wait.attempt, wait.since, 0)
            for wait in self.waiting.cut(first, end)
        ]
        taken += self._take_doomed(first, end)
        for log in self.pull_logs.values():
            if _covers(taken, end - first):
                break
            taken += log.take(first, end)
        return taken

    def add_doomed(self, doomed: Doomed) -> None:
        for first in range(doomed.first, doomed.end, MOST_TOGETHER):
            part = doomed.cut(first, min(doomed.end, first + MOST_TOGETHER))
            self.doomed[first] = part
            self.doomed_span = max(self.doomed_span, part.size)

    def add_doomed_below(self, sequence: int, doomed: Iterable[Doomed]) -> None:
        """Those of them, or the parts of them, that are below."""
        for each in doomed:
            if each.first < sequence:
                self.add_doomed(each.cut(each.first, min(each.end, sequence)))

    def is_doomed(self, sequence: int, size: int = 1) -> bool:
        """Whether all of these messages are."""
        exact, end = self.doomed.get(sequence), sequence + size
        if exact is not None and end <= exact.end:
            return True
        found = self.doomed_in(sequence, end)
        return sum(min(end, each.end) - max(sequence, each.first) for each in found) == size

    def doomed_in(self, first: int, end: int) -> list[Doomed]:
        """Those that have any of the sequences; found by where they can begin, unless those places are
        more than there are doomed ones. A hundred thousand single messages may be rejected one by one."""
        begin = first - self.doomed_span + 1
        if end - begin < len(self.doomed):
            near = [each for at in range(begin, end) if (each := self.doomed.get(at)) is not None]
        else:
            near = [*self.doomed.values()]
        return [each for each in near if each.first < end and first < each.end]

    def _take_doomed(self, first: int, end: int) -> list[Lease]:
        if not self.doomed:
            return []
        exact = self.doomed.get(first)
        if exact is not None and exact.end == end:  # as a rule
            found = [self.doomed.pop(first)]
        else:
            found = self.doomed_in(first, end)
            for each in found:
                del self.doomed[each.first]
                for low, high in ((each.first, first), (end, each.end)):
                    if low < high:
                        self.doomed[low] = each.cut(low, high)
            found = [each.cut(max(first, each.first), min(end, each.end)) for each in found]
        if not self.doomed:
            self.doomed_span = 1
        return [
            Lease(0, each.first, each.size, each.attempts, each.since, each.at) for each in found
        ]

    def wake(self, now: int) -> bool:
        """Make retries available that are due; whether there were any."""
        due = self.waiting.next_due
        if due is None or due > now or len(self.redelivery) >= MOST_AWAKE:
            return False
        woken = self.waiting.due(now, MOST_AWAKE - len(self.redelivery))
        for wait in woken:
            self.redelivery.add(Range(wait.first, wait.size, wait.attempt, wait.since))
        return bool(woken)

    # --- what is gone ----------------------------------------------------------------------------

    def expire(self, sequence: int) -> None:
        """All below is gone from the subject."""
        if self.position is not None and self.position >= 0:
            self.position = max(self.position, sequence)
        if self.shared:
            self.expired += max(0, sequence - self.cursor)
        self.cursor = max(self.cursor, sequence)
        self.done.cut(0, sequence)
        self.lose(0, sequence)

    def lose(self, first: int, end: int) -> None:
        """Messages that are gone: nobody holds them, and nobody gets them. Where they reach from below the
        cursor to above it, the cursor goes behind them. Dead letters to be are not lost by it."""
        self.expired += self.pass_over(first, end)
        if self.shared and first <= self.cursor < end:
            self.expired += end - self.cursor
            self.cursor = end

    def pass_over(self, first: int, end: int) -> int:
        """Take sequences below the cursor from whoever has them, as if acked; how many were not."""
        found = sum(part.size for part in self.redelivery.cut(first, end))
        found += self.waiting.drop(first, end)
        for log in self.pull_logs.values():
            found += sum(lease.size for lease in log.take(first, end))
        return found
