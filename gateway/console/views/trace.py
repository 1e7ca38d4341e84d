"""The history of a message, as GET /trace tells it; and what to say where there is none.

The answer of that route is shown as it is, field by field. A broker without the route, or a subject whose
history is off, is no error: the page says how to switch it on, and shows what the groups know now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kumquat.gateway.console.asking import ask, has_route

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker


class Trace(NamedTuple):
    available: bool
    """Whether this broker can tell at all."""
    history: str
    """all, sampled, off."""
    events: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    letters: list[dict[str, Any]]


NOTHING = Trace(False, "off", [], [], [])


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
