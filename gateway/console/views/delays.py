"""What is pending: by hour, for a plot, and as a list in order of due time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from kumquat.core.clock import wall_clock_ms
from kumquat.gateway.admin.lookup import find_subject
from kumquat.gateway.console.asking import Unanswered, ask
from kumquat.gateway.net.dispatch import Refused
from kumquat.meta.values import LONG_MAX

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.wheel.service import DelayStatistics
    from kumquat.gateway.broker import Broker

HOUR_MS = 3_600_000
HOURS = 24
PAGE = 50
LIFE_SECONDS = 5.0
MOST_KEPT = 50


class Hour(NamedTuple):
    begin: int
    end: int
    pending: int


class Delays(NamedTuple):
    statistics: DelayStatistics
    hours: list[Hour]
    later: int
    """Pending messages that are due after the last hour."""
    items: list[dict[str, Any]]
    following: str | None


class HourCounts:
    """Pending messages by hour. A count is a look into files: all open pages share it for LIFE_SECONDS."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: dict[str | None, tuple[float, list[Hour], int]] = {}

    async def of(self, name: str | None, subject: Subject | None) -> tuple[list[Hour], int]:
        """The next HOURS, and what is due after them. Raises Unanswered."""
        kept, now = self._kept.get(name), trio.current_time()
        if kept is not None and now - kept[0] < LIFE_SECONDS:
            return kept[1], kept[2]
        hours, later = await self._count(subject)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[name] = now, hours, later
        return hours, later

    async def _count(self, subject: Subject | None) -> tuple[list[Hour], int]:
        now, count = wall_clock_ms(), self._broker.delay.count
        first = now - now % HOUR_MS
        hours: list[Hour] = []
        for low in range(first, first + HOURS * HOUR_MS, HOUR_MS):
            overdue = low == first
            found = await count(subject, 0 if overdue else low, low + HOUR_MS)
            hours.append(Hour(low, low + HOUR_MS, found))
        return hours, await count(subject, first + HOURS * HOUR_MS, LONG_MAX)


async def delays(
    broker: Broker,
    counts: HourCounts,
    subject: str | None,
    begin: str | None,
    end: str | None,
    after: str | None,
) -> Delays:
    """Raises Unanswered."""
    found = await ask(
        broker,
        "GET",
        "/delay/list",
        **{"subject": subject, "from": begin, "to": end, "after": after, "limit": PAGE},
    )
    try:
        of = None if subject is None else find_subject(broker, subject)
    except Refused as error:
        raise Unanswered(404, str(error)) from error
    statistics = broker.delay.statistics()
    hours, later = await counts.of(subject, of) if statistics.pending else ([], 0)
    return Delays(statistics, hours, later, list(found["items"]), found["next"])
