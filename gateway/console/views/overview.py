"""The first page: is it well, how much goes through, and what needs attention."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING

from kumquat.gateway.console.diagnose import diagnose
from kumquat.gateway.console.views.situation import Clients, situation
from kumquat.gateway.net.turns import Turn

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker, BrokerStatistics
    from kumquat.gateway.console.sentences import Cause
    from kumquat.gateway.console.snapshot import Snapshot

LOOKED_AT = 20
"""Groups with the greatest lag of which the causes are looked for."""
MOST_SUBJECTS = 1000
FEW_MEMBERS = 10
SUBJECTS = 5
"""Of each of them, the subjects with the greatest lag."""
LITTLE_DISK = 0.1
LATE_MS = 1000
SLOW_LOOP_US = 250_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """One line of what needs attention."""

    text: str
    href: str = ""
    group: str = ""
    cause: Cause | None = None
    bad: bool = True


@dataclass(frozen=True, slots=True)
class Disk:
    used: int
    free: int
    total: int

    @property
    def low(self) -> bool:
        return self.free < self.total * LITTLE_DISK


@dataclass(frozen=True, slots=True)
class Overview:
    snapshot: Snapshot
    statistics: BrokerStatistics
    disk: Disk | None
    health: str
    troubles: list[Trouble]
    connections: int


async def overview(broker: Broker, snapshot: Snapshot) -> Overview:
    statistics = snapshot.statistics
    disk = _disk(broker)
    troubles = [*_of_broker(statistics, disk), *(await _of_groups(broker, snapshot))]
    if count := snapshot.letters:
        letters = "1 dead letter is" if count == 1 else f"{count:,} dead letters are"
        text = f"{letters} open: look at them, send them back or purge them."
        troubles.append(Trouble(text, "/console/letters", bad=False))
    health = "fenced" if statistics.log.fenced else "stopping" if broker.stopping else "running"
    return Overview(snapshot, statistics, disk, health, troubles, len(broker.sessions))


def _disk(broker: Broker) -> Disk | None:
    try:
        usage = shutil.disk_usage(broker.config.log_dirs)
    except OSError:
        return None
    return Disk(broker.log.total_bytes, usage.free, usage.total)


def _of_broker(statistics: BrokerStatistics, disk: Disk | None) -> list[Trouble]:
    found: list[Trouble] = []
    if statistics.log.fenced:
        found.append(
            Trouble(
                "A sync of the message log has failed: nothing is written until the broker is restarted. "
                "Look at the disk and at the broker's log first."
            )
        )
    if disk is not None and disk.low:
        part = disk.free / max(disk.total, 1)
        found.append(Trouble(f"The disk is nearly full: {part:.0%} is free."))
    if statistics.delay.failing:
        found.append(Trouble(f"Delays: {statistics.delay.failing}", "/console/delays"))
    if statistics.delay.overdue and statistics.delay.lateness.p99 > LATE_MS:
        found.append(
            Trouble(
                f"{statistics.delay.overdue:,} delayed messages are overdue.", "/console/delays"
            )
        )
    if statistics.log.corrupt_reads:
        text = (
            f"{statistics.log.corrupt_reads:,} reads found damaged data; the broker's log names it."
        )
        found.append(Trouble(text))
    if statistics.loop.p99 > SLOW_LOOP_US:
        text = f"The event loop keeps clients waiting: {statistics.loop.p99 / 1000:.0f} ms (p99)."
        found.append(Trouble(text, bad=False))
    return found


async def _of_groups(broker: Broker, snapshot: Snapshot) -> list[Trouble]:
    """The first cause of each group that stands still."""
    found: list[Trouble] = []
    clients, turn = Clients(broker), Turn()
    by_name = broker.coordinator.groups.by_name
    lagging = [row.name for row in snapshot.top[:LOOKED_AT] if row.lag or row.doomed]
    for name in dict.fromkeys([*lagging, *snapshot.uncommitted]):
        group = by_name.get(name)
        if group is None:
            continue
        cause = first_cause(broker, group, clients)
        if cause is not None:
            found.append(Trouble(cause.sentence, group=group.name, cause=cause))
        if turn.over:
            await turn.give_way()
    return found


def first_cause(broker: Broker, group: Group, clients: Clients) -> Cause | None:
    by_id = broker.log.subjects.by_id
    known = dict.fromkeys(islice(group.progress, MOST_SUBJECTS))
    for member in islice(group.members.values(), FEW_MEMBERS):
        known.update(dict.fromkeys(islice(member.holds, MOST_SUBJECTS)))
    behind = [
        (_behind(group, by_id[subject_id]), subject_id)
        for subject_id in known
        if subject_id in by_id
    ]
    for _, subject_id in nlargest(SUBJECTS, behind):
        found = situation(broker, group, by_id[subject_id], clients)
        causes = diagnose(found) if found is not None else []
        if causes:
            return causes[0]
    return None


def _behind(group: Group, subject: Subject) -> int:
    progress = group.progress.get(subject.id)
    position = None if progress is None else progress.lowest_unacked()
    return subject.readable_end - (position or 0)
