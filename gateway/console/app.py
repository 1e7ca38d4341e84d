"""The console's routes: pages under / and /console/, files under /static/.

`routes` is what the server of the admin listener adds to its own. Everything else that this package does
is reached from here. Files are read once: there are three, and they are small.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from kumquat.gateway.console import security
from kumquat.gateway.console.console import Console
from kumquat.gateway.console.pages import (
    configs,
    connections,
    delays,
    groups,
    letters,
    messages,
    overview,
    produce,
    search,
    subjects,
    trace,
)
from kumquat.gateway.console.render import HERE

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from kumquat.gateway.broker import Broker

TYPES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "kumquat.svg": "image/svg+xml",
}
PAGES = {
    "/": overview.show,
    "/console/subjects": subjects.show_all,
    "/console/subject": subjects.show_one,
    "/console/messages": messages.browse,
    "/console/message": messages.show_one,
    "/console/produce": produce.show,
    "/console/groups": groups.show_all,
    "/console/group": groups.show_one,
    "/console/delays": delays.show,
    "/console/letters": letters.show_all,
    "/console/letter": letters.show_one,
    "/console/trace": trace.show,
    "/console/search": search.show,
    "/console/configs": configs.show,
    "/console/connections": connections.show,
}
ACTIONS = {
    "/console/produce": produce.send,
    "/console/group/reset": groups.reset,
    "/console/delays/cancel": delays.cancel,
    "/console/delays/move": delays.move,
    "/console/letters/redrive": letters.redrive,
    "/console/letters/purge": letters.purge,
}


def routes(broker: Broker) -> list[BaseRoute]:
    console = Console(broker)
    made: list[BaseRoute] = [
        Route(path, console.endpoint(page), methods=["GET"]) for path, page in PAGES.items()
    ]
    made += [
        Route(path, console.endpoint(action), methods=["POST"]) for path, action in ACTIONS.items()
    ]
    return [*made, *(_file(name) for name in TYPES)]


def _file(name: str) -> Route:
    body = (HERE / "static" / name).read_bytes()
    etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {**security.HEADERS, "etag": etag, "cache-control": "no-cache"}

    async def answer(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=TYPES[name])

    return Route(f"/static/{name}", answer, methods=["GET"])
