"""/console/trace: the history of a message, with a form to say which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.console.asking import Unanswered
from kumquat.gateway.console.forms import number
from kumquat.gateway.console.views.trace import NOTHING

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit


async def show(visit: Visit) -> Response:
    """Also of a message that is deleted: its history may still be there."""
    subject, found, wrong = visit.values.get("subject"), NOTHING, ""
    offset = number(visit.values, "offset") if "offset" in visit.values else None
    if subject is not None and offset is not None:
        try:
            found = await visit.console.traces.of(subject, offset)
        except Unanswered as error:
            wrong = str(error)
    return await visit.page(
        "trace.html", "search", subject=subject, offset=offset, trace=found, wrong=wrong
    )
