"""What machines that watch the broker ask: /metrics, and whether it is well.

    GET /metrics        Prometheus' text format
    GET /health/live    200 while the process works at all, else 503: a supervisor should start it again
    GET /health/ready   200 while clients should be sent here, else 503 and why not

What is said is made by kumquat.gateway.metrics. Arguments are ignored, since some monitors add their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from kumquat.gateway.admin.http import JSON, as_json
from kumquat.gateway.metrics import exposition, health

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from kumquat.gateway.broker import Broker

PATHS = ("/metrics", "/health/live", "/health/ready")


def routes(broker: Broker) -> list[BaseRoute]:
    async def metrics(request: Request) -> Response:
        text = await exposition.render(broker)
        return Response(text, headers={"content-type": exposition.CONTENT_TYPE})

    async def live(request: Request) -> Response:
        return _health(await health.live_by_now(broker))

    async def ready(request: Request) -> Response:
        return _health(health.ready(broker))

    answers = zip(PATHS, (metrics, live, ready), strict=True)
    return [Route(path, answer, methods=["GET"]) for path, answer in answers]


def _health(found: health.Health) -> Response:
    status = 200 if found.ok else 503
    return Response(as_json(found.payload()), status, {"content-type": JSON})
