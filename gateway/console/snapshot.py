"""Sums over all subjects and all groups, for pages that show the whole broker. Shared by all open consoles.

To look at 100,000 subjects takes some fifty milliseconds. So it is done in turns of about a millisecond,
with a pause for other tasks after each, and at most every LIFE_SECONDS; less often where it takes long, so
that it never takes more than SHARE of the event loop. It is made when a page asks for it: without an open
console it costs nothing. A page that asks while one is being made gets the one before, unless that is old.

It is no exact picture of one moment, since others have their turn in between. What comes in and what is
done are differences of two snapshots; the first one has no rates.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from heapq import heappush, heappushpop, nlargest
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import trio

from kumquat.core.clock import wall_clock_ms
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP, count_open
from kumquat.gateway.admin.groups.standing import kind, standing
from kumquat.gateway.topics.table import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.core.delivery.state import Group, Progress
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker, BrokerStatistics

LIFE_SECONDS = 2.0
OLD_SECONDS = 15.0
"""A snapshot before this is not compared with: a rate over hours says nothing about now."""
SHARE = 0.03
TURN_SECONDS = 0.001
AT_A_TIME = 200
MOST_GROUPS = 1000
"""Groups that are kept, those with the greatest lag."""
MOST_UNCOMMITTED = 20
FEW_MEMBERS = 10
BUSIEST = 8
SAMPLES = 300


class GroupRow(NamedTuple):
    """Sums over the subjects of a group; by lag, then by name."""

    lag: int
    name: str
    kind: str
    state: str
    members: int
    subjects: int
    in_flight: int
    retries: int
    doomed: int
    moved_at: int
    """When it last committed or acked anything, ms since the epoch; 0: never."""
    done: int
    """Only differences of it mean something."""


class Busy(NamedTuple):
    name: str
    rate: float


class Sample(NamedTuple):
    at: float
    rate_in: float
    rate_out: float
    lag: int


@dataclass(slots=True)
class Snapshot:
    at: float
    at_ms: int
    statistics: BrokerStatistics
    """Percentiles take a millisecond or two, so they are shared as well."""
    subjects: int = 0
    messages: int = 0
    """That were ever stored in the subjects that there are."""
    groups: int = 0
    members: int = 0
    lag: int = 0
    in_flight: int = 0
    retries: int = 0
    doomed: int = 0
    done: int = 0
    letters: int = 0
    """Dead letters that are open."""
    rate_in: float | None = None
    rate_out: float | None = None
    busiest: list[Busy] = field(default_factory=list)
    top: list[GroupRow] = field(default_factory=list)
    """The greatest lag first."""
    uncommitted: list[str] = field(default_factory=list)
    """Groups with a member that reads a subject in which the group has no position."""
    ends: array[int] = field(default_factory=lambda: array("q"))
    """The next sequence of each subject, by its id."""
    took: float = 0.0
    """Seconds of the event loop."""


class _Turns:
    """Like net/turns.py, and counts what it takes."""

    def __init__(self) -> None:
        self.busy = 0.0
        self._began = perf_counter()

    async def give_way(self) -> None:
        spent = perf_counter() - self._began
        if spent > TURN_SECONDS:
            self.busy += spent
            await trio.lowlevel.checkpoint()
            self._began = perf_counter()

    def end(self) -> float:
        return self.busy + perf_counter() - self._began


class Snapshots:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._last: Snapshot | None = None
        self._lock = trio.Lock()
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)

    async def get(self) -> Snapshot:
        last, now = self._last, trio.current_time()
        if last is not None and not self._due(last, now):
            return last
        if last is not None and self._lock.locked() and now - last.at < OLD_SECONDS:
            return last
        async with self._lock:
            if self._last is last:
                self._last = await self._make(last)
        assert self._last is not None
        return self._last

    @staticmethod
    def _due(last: Snapshot, now: float) -> bool:
        return now - last.at >= max(LIFE_SECONDS, last.took / SHARE)

    async def _make(self, last: Snapshot | None) -> Snapshot:
        turns = _Turns()
        made = Snapshot(trio.current_time(), wall_clock_ms(), self._broker.statistics())
        await turns.give_way()
        before = last if last is not None and made.at - last.at < OLD_SECONDS else None
        await self._look_at_subjects(made, before, turns)
        await self._look_at_groups(made, turns)
        if before is not None and (seconds := made.at - before.at) > 0:
            made.rate_in = max(0, made.messages - before.messages) / seconds
            made.rate_out = max(0, made.done - before.done) / seconds
            self.samples.append(Sample(made.at, made.rate_in, made.rate_out, made.lag))
        made.took = turns.end()
        return made

    async def _look_at_subjects(
        self, made: Snapshot, before: Snapshot | None, turns: _Turns
    ) -> None:
        table = self._broker.log.subjects
        ends = made.ends = array("q", bytes(8 * (table.next_id + 1)))
        known = before.ends if before is not None else array("q")
        seconds = made.at - before.at if before is not None else 1.0
        grown: list[tuple[int, str]] = []
        total = 0
        subjects = list(table)
        for start in range(0, len(subjects), AT_A_TIME):
            for subject in subjects[start : start + AT_A_TIME]:
                end, subject_id = subject.next_sequence, subject.id
                total += end
                if subject_id < len(ends):
                    ends[subject_id] = end
                if subject_id < len(known) and end > known[subject_id]:
                    grown.append((end - known[subject_id], subject.name))
            if len(grown) > AT_A_TIME:
                grown = nlargest(BUSIEST, grown)
            await turns.give_way()
        made.subjects, made.messages = len(subjects), total
        made.busiest = [Busy(name, more / seconds) for more, name in nlargest(BUSIEST, grown)]

    async def _look_at_groups(self, made: Snapshot, turns: _Turns) -> None:
        groups = self._broker.coordinator.groups
        top: list[GroupRow] = []
        for group in list(groups.by_id.values()):
            if group.name == INTERNAL_GROUP:
                made.letters = await self._letters(group, turns)
                continue
            row = await summary(self._broker, group, turns)
            made.groups += 1
            made.members += row.members
            made.lag += row.lag
            made.in_flight += row.in_flight
            made.retries += row.retries
            made.doomed += row.doomed
            made.done += row.done
            if len(made.uncommitted) < MOST_UNCOMMITTED and _has_no_position(group):
                made.uncommitted.append(group.name)
            if len(top) < MOST_GROUPS:
                heappush(top, row)
            else:
                heappushpop(top, row)
            await turns.give_way()
        made.top = sorted(top, key=lambda row: (-row.lag, row.name))

    async def _letters(self, group: Group, turns: _Turns) -> int:
        by_id, total = self._broker.log.subjects.by_id, 0
        for subject_id, progress in list(group.progress.items()):
            subject = by_id.get(subject_id)
            if subject is not None:
                total += count_open(progress, subject.earliest, subject.readable_end)
            await turns.give_way()
        return total


async def summary(broker: Broker, group: Group, turns: _Turns | None = None) -> GroupRow:
    """One group, over all its subjects."""
    turns = turns or _Turns()
    lag = in_flight = retries = doomed = done = moved_at = 0
    by_id = broker.log.subjects.by_id
    progress_of = list(group.progress.items())
    for start in range(0, len(progress_of), AT_A_TIME):
        for subject, progress in _known(by_id, progress_of[start : start + AT_A_TIME]):
            moved_at = max(moved_at, progress.committed_at)
            if _is_plain(progress):
                position = progress.position or 0
                lag += max(0, subject.readable_end - position)
                done += position
                continue
            found = standing(progress, subject)
            lag += found["lag"] or 0
            in_flight += found["in_flight"]
            retries += found["again"] + found["waiting"]
            doomed += found["doomed"]
            done += max(0, (found["cursor"] or found["position"] or 0) - progress.unacked)
        await turns.give_way()
    state = broker.coordinator.state(group)
    counts = (len(group.members), len(progress_of), in_flight, retries, doomed, moved_at, done)
    return GroupRow(lag, group.name, kind(group), state, *counts)


def _has_no_position(group: Group) -> bool:
    members = islice(group.members.values(), FEW_MEMBERS)
    return any(not member.holds.keys() <= group.progress.keys() for member in members)


def _known(
    by_id: dict[int, Subject], progress_of: Iterable[tuple[int, Progress]]
) -> Iterable[tuple[Subject, Progress]]:
    for subject_id, progress in progress_of:
        subject = by_id.get(subject_id)
        if subject is not None and subject.name not in INTERNAL:
            yield subject, progress


def _is_plain(progress: Progress) -> bool:
    """It is a position and nothing else: most are."""
    return (
        not progress.shared and progress.committed and not progress.retries and not progress.doomed
    )
