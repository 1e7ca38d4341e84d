"""/console/connections: who is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.console.forms import number
from kumquat.gateway.console.views.connections import connections

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit


async def show(visit: Visit) -> Response:
    at = number(visit.values, "page")
    rows, total, more = await connections(visit.broker, visit.values.get("q", ""), at)
    return await visit.page(
        "connections.html", "connections", rows=rows, total=total, at=at, more=more
    )
