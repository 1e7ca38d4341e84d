"""The history of a message, as GET /trace tells it; and what to say where there is none.

The answer of that route is shown as it is, field by field. A broker without the route, or a subject whose
history is off, is no error: the page says how to switch it on, and shows what the groups know now.

A long history takes seconds of a core to read, and an open page asks every two seconds. So `Traces` makes
one at a time, shares it between all consoles, and keeps it for longer the longer it took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from kumquat.gateway.console.asking import ask, has_route

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker

SHARE = 0.03
"""Of the time, at most, traces of one message are made."""
LONGEST_SECONDS = 120.0
MOST_KEPT = 20


class Trace(NamedTuple):
    available: bool
    """Whether this broker can tell at all."""
    history: str
    """all, sampled, off."""
    events: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    letters: list[dict[str, Any]]


NOTHING = Trace(False, "off", [], [], [])


class Traces:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: dict[tuple[str, int], tuple[float, Trace]] = {}
        """Until when, and what."""
        self._lock = trio.Lock()

    async def of(self, subject: str, offset: int) -> Trace:
        """Raises Unanswered."""
        found = self._fresh(subject, offset)
        if found is not None:
            return found
        async with self._lock:
            found = self._fresh(subject, offset)
            if found is not None:
                return found
            began = trio.current_time()
            found = await trace(self._broker, subject, offset)
            now = trio.current_time()
            self._kept.pop((subject, offset), None)
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            life = min((now - began) / SHARE, LONGEST_SECONDS)
            self._kept[subject, offset] = now + life, found
            return found

    def _fresh(self, subject: str, offset: int) -> Trace | None:
        until, found = self._kept.get((subject, offset), (0.0, None))
        return found if trio.current_time() < until else None


async def trace(broker: Broker, subject: str, offset: int) -> Trace:
    """Raises Unanswered."""
    if not has_route("GET", "/trace"):
        return NOTHING
    found = await ask(broker, "GET", "/trace", subject=subject, offset=offset)
    return Trace(
        True,
        str(found.get("history", "off")),
        list(found.get("events") or ()),
        list(found.get("groups") or ()),
        list(found.get("letters") or ()),
    )
