"""/console/configs: the broker's options, with their meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.console.views.configs import options

if TYPE_CHECKING:
    from starlette.responses import Response

    from kumquat.gateway.console.console import Visit


async def show(visit: Visit) -> Response:
    rows = options(visit.broker, visit.values.get("q", ""))
    return await visit.page("configs.html", "configs", rows=rows, broker=visit.broker)
