"""Until when members of share groups hold what they were given: acquisition locks.

A lock lasts as long as the group's `share.record.lock.duration.ms` says, by the monotonic clock: a wall
clock that is set changes nothing. A message whose lock ends is given back, and its attempt counts. A
member may renew its locks one by one. Locks are not stored: after a start of the broker nobody holds
anything (shares.py).

An entry is for one run of messages of a hand-out: by its sequences, where they are looked for, and by its
pull sequences, since the member may have let go of a message and been given it again. Most messages are
acked long before: entries of which nothing is held any more are dropped when they come up first, and all
of them whenever their number has doubled.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

from kumquat.core.delivery.pull_log import Lease, ShareLog

SPARE = 1024
"""Entries that nobody looks through."""


class Lock(NamedTuple):
    until: float
    number: int
    """Entries of one time are in order."""
    gid: int
    subject_id: int
    log: ShareLog
    pull: int
    first: int
    size: int

    def held(self) -> list[Lease]:
        """What is still held of it."""
        low, high = self.pull, self.pull + self.size
        found = self.log.find(self.first, self.first + self.size)
        return [lease for lease in found if low <= lease.pull < high]


class Ended(NamedTuple):
    gid: int
    subject_id: int
    log: ShareLog
    leases: list[Lease]


class Locks:
    def __init__(self) -> None:
        self._heap: list[Lock] = []
        self._count = 0
        self._most = SPARE
        self._renewed: dict[ShareLog, dict[int, float]] = {}
        """Pull sequences of which the lock was renewed → until when."""

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next(self) -> float | None:
        """No lock ends before."""
        return self._heap[0].until if self._heap else None

    def add(
        self,
        gid: int,
        subject_id: int,
        log: ShareLog,
        pull: int,
        first: int,
        size: int,
        until: float,
    ) -> None:
        """A member was given the messages from `first` on."""
        self._push(until, gid, subject_id, log, pull, first, size)
        while self._heap and not self._heap[0].held():
            heappop(self._heap)
        if len(self._heap) > self._most:
            self._heap = [lock for lock in self._heap if lock.held()]
            heapify(self._heap)
            self._most = 2 * len(self._heap) + SPARE
            logs = {lock.log for lock in self._heap}
            self._renewed = {log: known for log, known in self._renewed.items() if log in logs}

    def renew(self, log: ShareLog, first: int, end: int, until: float) -> None:
        """Messages that the member holds are held until then."""
        renewed = self._renewed.setdefault(log, {})
        for lease in log.find(first, end):
            low, high = max(first, lease.first), min(end, lease.behind)
            shift = lease.pull - lease.first
            renewed.update(dict.fromkeys(range(low + shift, high + shift), until))
        if len(renewed) > 2 * log.unacked + SPARE:
            held = {one.pull + i for one in log.leases for i in range(one.size)}
            self._renewed[log] = {pull: renewed[pull] for pull in renewed.keys() & held}

    def end(self, now: float, most: int) -> list[Ended]:
        """What is no longer locked and was not acked, by the log that had it. Thousands may end at once: so
        many runs of messages are looked at, and `next` says whether there are more."""
        ended: dict[ShareLog, Ended] = {}
        while most > 0 and self._heap and self._heap[0].until <= now:
            lock = heappop(self._heap)
            most -= 1
            over, later = self._split(lock, now)
            for lease, until in later:
                self._push(until, *lock[2:5], *lease[:3])
            if over:
                known = ended.setdefault(lock.log, Ended(lock.gid, lock.subject_id, lock.log, []))
                known.leases.extend(over)
            if not lock.log.leases:
                self._renewed.pop(lock.log, None)
        return list(ended.values())

    def postpone(self, ended: Ended, until: float) -> None:
        """It could not be written that these locks have ended."""
        for lease in ended.leases:
            self._push(until, ended.gid, ended.subject_id, ended.log, *lease[:3])

    def _push(
        self,
        until: float,
        gid: int,
        subject_id: int,
        log: ShareLog,
        pull: int,
        first: int,
        size: int,
    ) -> None:
        self._count += 1
        heappush(self._heap, Lock(until, self._count, gid, subject_id, log, pull, first, size))

    def _split(self, lock: Lock, now: float) -> tuple[list[Lease], list[tuple[Lease, float]]]:
        """What has ended of a lock, and what was renewed: message by message."""
        renewed = self._renewed.get(lock.log)
        if not renewed:
            return lock.held(), []
        over: list[Lease] = []
        later: list[tuple[Lease, float]] = []
        for lease in lock.held():
            for i in range(lease.size):
                one = lease.part(i, 1)
                until = renewed.get(one.pull, now)
                if until > now:
                    later.append((one, until))
                else:
                    over.append(one)
                    renewed.pop(one.pull, None)
        return over, later
