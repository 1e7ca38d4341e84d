"""When to make a template: a connection that sends like requests need not have each decoded.

A handler's module may know how to make a `Template` of a request (`template=` in its registration):
something that takes apart the frames that are like it, and answers them, faster than the handler does.
Here is only the rule for when: two requests in a row that begin alike. A connection that changes
between topics would make templates in vain, so there are at least BETWEEN others between two makings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from kumquat.gateway.net.answers import Slot
    from kumquat.gateway.net.dispatch import Opening, Route, Session

BETWEEN = 64
LOOKED_AT = 14
"""How much of a body must be alike: what a Produce has before its batch, even with the shortest name."""


class ToOpen(NamedTuple):
    """A request that has to wait: what is to be awaited for it, and what its answer needs."""

    route: Route
    correlation_id: int
    request: Any
    opening: Opening


class Template(Protocol):
    def stage(self, frame: memoryview) -> Slot | ToOpen | None:
        """The slot of a frame that fits; None if it does not. Unless it is a slot, nothing has happened."""


class Repeats:
    """The template of one connection."""

    __slots__ = ("_last", "_wait", "template")

    def __init__(self) -> None:
        self.template: Template | None = None
        self._last = b""
        self._wait = 0

    def learn(
        self, session: Session, route: Route, frame: memoryview, start: int, request: Any
    ) -> None:
        """A request came for which there was no template, and it was handled without error."""
        if self._wait:
            self._wait -= 1
            return
        begins = frame[8 : start + LOOKED_AT].tobytes()
        if begins == self._last and route.api.template is not None:
            self.template = route.api.template(session, route, frame, start, request)
            self._wait = BETWEEN
        self._last = begins
