"""/console/search: names of subjects and groups, and messages by key, header, text and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.console.asking import Unanswered, has_route
from kumquat.gateway.console.views import search

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit

CONDITIONS = ("key", "header", "text", "since", "until")


async def show(visit: Visit) -> Response:
    values = visit.values
    query = values.get("q", "")
    names = await search.by_name(visit.broker, visit.console.names, query) if query else None
    messages, wrong = None, ""
    if "subject" in values and any(name in values for name in CONDITIONS):
        try:
            messages = await search.messages(visit.broker, values)
        except Unanswered as error:
            wrong = str(error)
    return await visit.page(
        "search.html",
        "search",
        names=names,
        messages=messages,
        wrong=wrong,
        values=values,
        can_search=has_route("GET", "/search"),
    )
