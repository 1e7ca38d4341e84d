"""Who is connected: client, software, address, since when, what it did last."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

from kumquat.gateway.net.limits import api_name
from kumquat.gateway.net.turns import Turn

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session

PAGE = 100
LAST = 20
"""Groups of a connection that are named."""


class Row(NamedTuple):
    client_id: str
    peer: str
    software: str
    version: str
    since: int
    request: str
    waits: bool
    members: list[tuple[str, str]]
    """Groups for which it speaks, and as which member."""


async def connections(broker: Broker, query: str, number: int) -> tuple[list[Row], int, bool]:
    """A page, how many there are that fit, and whether there are more pages. Oldest first."""
    wanted = query.lower()
    found: list[tuple[int, str, Session]] = []
    turn = Turn()
    for session in list(broker.sessions):
        text = f"{session.client_id or ''} {session.peer} {session.software}".lower()
        if wanted in text:
            found.append((session.since, session.peer, session))
        if turn.over:
            await turn.give_way()
    some = nsmallest((number + 1) * PAGE, found)[number * PAGE :]
    return [_row(session) for _, _, session in some], len(found), len(found) > (number + 1) * PAGE


def _row(session: Session) -> Row:
    return Row(
        client_id=session.client_id or "",
        peer=session.peer,
        software=session.software,
        version=session.software_version,
        since=session.since,
        request=api_name(session.api_key) if session.api_key >= 0 else "",
        waits=session.poll is not None,
        members=list(session.members.items())[:LAST],
    )
