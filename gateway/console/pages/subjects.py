"""/console/subjects and /console/subject: the list, and one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.console.asking import Unanswered
from kumquat.gateway.console.forms import required
from kumquat.gateway.console.views import subjects

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.console.console import Visit


def find(broker: Broker, name: str) -> Subject:
    """Raises Unanswered."""
    subject = broker.log.subjects.by_name.get(name)
    if subject is None:
        raise Unanswered(404, f"there is no subject {name!r}")
    return subject


async def show_all(visit: Visit) -> Response:
    query, after = visit.values.get("q", ""), visit.values.get("after")
    names, more = await visit.console.names.page(query, after)
    return await visit.page(
        "subjects.html",
        "subjects",
        rows=subjects.rows(visit.broker, names),
        total=len(visit.broker.log.subjects),
        after=after,
        following=names[-1] if more else None,
    )


async def show_one(visit: Visit) -> Response:
    subject = find(visit.broker, required(visit.values, "name"))
    found = await subjects.subject_view(visit.broker, subject)
    return await visit.page("subject.html", "subjects", found=found, subject=subject)
