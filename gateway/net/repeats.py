"""When to make a template: a connection that sends similar requests need not have each of them decoded.

A handler's module may know how to make a `Template` from a request (`template=` in its registration). The
template reads frames that are like that request, and answers them, faster than the handler does. Here is
only the rule for when to make one: after two requests in a row that begin with the same bytes. A connection
that alternates between topics would make templates for nothing, so at least BETWEEN other requests have to
come before the next one is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from kumquat.gateway.net.answers import QueuedAnswer
    from kumquat.gateway.net.dispatch import Opening, Route, Session

BETWEEN = 64
LOOKED_AT = 14
"""Bytes of a body that must be the same: what a Produce has before its batch, with the shortest name."""


class ToOpen(NamedTuple):
    """A request that has to wait: what is to be awaited for it, and what its answer needs."""

    route: Route
    correlation_id: int
    request: Any
    opening: Opening


class Template(Protocol):
    def stage(self, frame: memoryview) -> QueuedAnswer | ToOpen | None:
        """Stage a frame and give its answer; None if it does not fit. Without an answer nothing has
        happened."""


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
