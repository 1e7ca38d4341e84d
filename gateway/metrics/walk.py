"""Subjects and groups as /metrics shows them, read on the event loop a slice at a time.

There may be 100,000 subjects, and as many pairs of a group and a subject. So there are two passes, and
between them a thread decides who is shown (selection.py):

1. `count_subjects` and `count_pairs` look at everybody, take one number of each to choose by, and add up
   the totals;
2. `subject_rows`, `pair_rows` and `member_rows` look closer at those that were chosen.

After a millisecond of either it is the turn of other tasks. So a walk is no snapshot: what a row says
belongs together, and two rows may be some milliseconds apart.

`lag` is how many messages a group has left to do, as `kumquat groups` shows it (gateway/admin/groups/
standing.py says what it counts). Where a group shares, that is less than the distance from its position
to the end, since messages above the lowest one may be done.
"""

from __future__ import annotations

from time import thread_time
from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.topics.table import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.core.delivery.state import Group, Progress
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker

SLICE = 1_000
"""Subjects that are looked at in a row: less than a millisecond."""

Pair = tuple[int, int]
"""Group id and subject id."""


class SubjectRow(NamedTuple):
    name: str
    earliest: int
    readable_end: int
    next_sequence: int


class PairRow(NamedTuple):
    group: str
    subject: str
    position: int
    lag: int
    in_flight: int
    again: int
    waiting: int
    doomed: int


class Totals:
    """Over all subjects and pairs, shown or not."""

    def __init__(self) -> None:
        self.messages = 0
        """In subjects, for readers to see."""
        self.groups = self.members = self.pairs = 0
        self.lag = self.in_flight = self.again = self.waiting = self.doomed = 0


class Walk:
    def __init__(self, broker: Broker) -> None:
        self._subjects = broker.log.subjects
        self._groups = broker.coordinator.groups
        self.totals = Totals()
        self.cpu = 0.0
        """Seconds that this took on the event loop."""

    # --- everybody -------------------------------------------------------------------------------

    async def count_subjects(self) -> dict[int, int]:
        """Subject id → how many messages it ever had."""
        clock = _Clock(self)
        subjects, counts, messages = list(self._subjects), dict[int, int](), 0
        for begin in range(0, len(subjects), SLICE):
            some = subjects[begin : begin + SLICE]
            counts.update([(subject.id, subject.next_sequence) for subject in some])
            messages += sum([subject.readable_end - subject.earliest for subject in some])
            await clock.maybe_give_way()
        for name in INTERNAL:
            internal = self._subjects.by_name.get(name)
            if internal is not None:
                counts.pop(internal.id, None)
        self.totals.messages = messages
        clock.stop()
        return counts

    async def count_pairs(self) -> dict[Pair, int]:
        """Those that have a position → lag."""
        clock, totals, lags = _Clock(self), self.totals, dict[Pair, int]()
        subjects = self._subjects.by_id
        for group in list(self._groups.by_id.values()):
            if group.name == INTERNAL_GROUP:
                continue
            totals.groups += 1
            totals.members += len(group.members)
            for subject_id, progress in list(group.progress.items()):
                subject = subjects.get(subject_id)
                if subject is not None:
                    found = _behind(progress, subject)
                    if progress.shared or progress.retries or progress.doomed:
                        found = self._add_unsettled(progress, found)
                    if found is not None:
                        lags[group.id, subject_id] = found
                        totals.lag += found
                await clock.maybe_give_way()
            await clock.maybe_give_way()
        totals.pairs = len(lags)
        clock.stop()
        return lags

    def _add_unsettled(self, progress: Progress, behind: int | None) -> int | None:
        totals = self.totals
        in_flight, again = progress.leased, progress.redelivery.total
        waiting, doomed = progress.waiting.total, progress.dying
        totals.in_flight += in_flight
        totals.again += again
        totals.waiting += waiting
        totals.doomed += doomed
        return None if behind is None else behind + in_flight + again + waiting + doomed

    # --- those that are shown --------------------------------------------------------------------

    async def subject_rows(self, chosen: Iterable[int]) -> list[SubjectRow]:
        clock, by_id, rows = _Clock(self), self._subjects.by_id, list[SubjectRow]()
        for subject_id in chosen:
            subject = by_id.get(subject_id)
            if subject is not None:  # deleted meanwhile
                rows.append(
                    SubjectRow(
                        subject.name,
                        subject.earliest,
                        subject.readable_end,
                        subject.next_sequence,
                    )
                )
            await clock.maybe_give_way()
        clock.stop()
        return rows

    async def pair_rows(self, chosen: Iterable[Pair]) -> list[PairRow]:
        clock, rows = _Clock(self), list[PairRow]()
        groups, subjects = self._groups.by_id, self._subjects.by_id
        for gid, subject_id in chosen:
            group, subject = groups.get(gid), subjects.get(subject_id)
            progress = group.progress.get(subject_id) if group is not None else None
            if group is not None and subject is not None and progress is not None:
                row = _pair_row(group, subject, progress)
                if row is not None:
                    rows.append(row)
            await clock.maybe_give_way()
        clock.stop()
        return rows

    async def member_rows(self, chosen: Iterable[Pair], limit: int) -> list[tuple[str, int]]:
        """Groups and how many members they have: those of these pairs, then others up to the limit."""
        clock, groups = _Clock(self), self._groups.by_id
        gids = dict.fromkeys(gid for gid, _ in chosen)
        for gid in groups:
            if len(gids) >= limit:
                break
            gids.setdefault(gid)
        rows: list[tuple[str, int]] = []
        for gid in gids:
            group = groups.get(gid)
            if group is not None and group.name != INTERNAL_GROUP:
                rows.append((group.name, len(group.members)))
            await clock.maybe_give_way()
        clock.stop()
        return rows

    async def names(self, counts: dict[int, int]) -> list[tuple[str, int]]:
        """The same by the names of the subjects."""
        clock, by_id, named = _Clock(self), self._subjects.by_id, list[tuple[str, int]]()
        for subject_id, count in counts.items():
            if subject_id in by_id:
                named.append((by_id[subject_id].name, count))
            await clock.maybe_give_way()
        clock.stop()
        return named


class _Clock:
    """Turns, and the CPU time of this walk without that of others in between."""

    __slots__ = ("_began", "_turn", "_walk")

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._turn = Turn()
        self._began = thread_time()

    async def maybe_give_way(self) -> None:
        if self._turn.over:
            self.stop()
            await self._turn.give_way()
            self._began = thread_time()

    def stop(self) -> None:
        self._walk.cpu += thread_time() - self._began


def _behind(progress: Progress, subject: Subject) -> int | None:
    """How many messages were never handed out; None: the group has no position."""
    begin = progress.cursor if progress.shared else progress.position
    if begin is None or begin < 0:  # a client committed "the earliest" or "the latest"
        return None
    return max(0, subject.readable_end - begin)


def _pair_row(group: Group, subject: Subject, progress: Progress) -> PairRow | None:
    position, behind = progress.lowest_unacked(), _behind(progress, subject)
    if position is None or behind is None:
        return None
    in_flight, again = progress.leased, progress.redelivery.total
    waiting, doomed = progress.waiting.total, progress.dying
    lag = behind + in_flight + again + waiting + doomed
    return PairRow(group.name, subject.name, position, lag, in_flight, again, waiting, doomed)
