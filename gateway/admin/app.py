"""The application behind the admin endpoint: every route in one Starlette.

    make_app(broker)                          JSON (ROUTES in routes.py), /metrics and /health (watch.py)
    make_app(broker, extra_routes=routes)     and what a package above this one serves, such as a console

Ours come first, so an extra route cannot take a path of ours. An extra route is any route of Starlette. Its
function may raise HttpError, as ours do. It may answer with a StreamingResponse: exchange.py says how that
ends. It must begin its answer within ANSWER_SECONDS, and gets the whole body, of at most MAX_BODY bytes.

Who may ask: requests whose Host is loopback or in `admin.hosts`, on every path. A POST to a route of ours
must have the type application/json; extra routes that change something have to protect themselves against
forms of other sites.

Errors are JSON on our paths and below them. Elsewhere they are a small HTML page for whoever accepts HTML,
which is a browser, and JSON for others.
"""

from __future__ import annotations

import logging
from html import escape
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from kumquat.gateway.admin import watch
from kumquat.gateway.admin.http import (
    JSON,
    Answer,
    HttpError,
    as_json,
    check_host,
    read_values,
    refusal,
)
from kumquat.gateway.admin.routes import ROUTES, answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from kumquat.gateway.broker import Broker

logger = logging.getLogger(__name__)


def make_app(broker: Broker, extra_routes: Sequence[BaseRoute] = ()) -> Starlette:
    routes: list[BaseRoute] = [
        Route(path, _endpoint(broker, method, path), methods=[method]) for method, path in ROUTES
    ]
    app = Starlette(
        routes=[*routes, *watch.routes(broker), *extra_routes],
        middleware=[Middleware(_Doorkeeper, hosts=broker.config.admin_hosts)],
        exception_handlers={
            HttpError: _refused,
            HTTPException: _not_served,
            Exception: _failed,
        },
    )
    app.router.redirect_slashes = False
    return app


def _endpoint(broker: Broker, method: str, path: str) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        values = read_values(
            method,
            request.scope["query_string"].decode("latin-1"),
            request.headers.get("content-type", ""),
            await request.body(),
        )
        return _json(await answer(broker, method, path, values))

    return respond


def _json(made: Answer) -> Response:
    headers = {"content-type": f"{JSON}; charset=utf-8", **dict(made.headers)}
    return Response(as_json(made.payload), made.status, headers)


class _Doorkeeper:
    """Lets through what is meant for this broker."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers: dict[bytes, bytes] = dict(scope["headers"])
            check_host(headers.get(b"host", b"").decode("latin-1"), self._hosts)
            target = scope["raw_path"].decode("latin-1")
            if not target.startswith("/"):
                raise HttpError(400, "BAD_REQUEST", f"the target {target!r} does not begin with /")
        except HttpError as error:
            await _json(refusal(error))(scope, receive, send)
        else:
            await self._app(scope, receive, send)


# Errors

_OURS = {path.split("/")[1] for _, path in ROUTES} | {path.split("/")[1] for path in watch.PATHS}


PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
}
"""Of a page that shows an error: it loads nothing, runs nothing, and nobody may frame it. The console's
pages have headers of their own (gateway/console/security.py)."""


def _show(request: Request, error: HttpError) -> Response:
    ours = request.scope["path"].split("/")[1] in _OURS
    if ours or "text/html" not in request.headers.get("accept", ""):
        return _json(refusal(error))
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f"<title>{error.status}</title><h1>{error.status}</h1><p>{escape(str(error))}</p></html>\n"
    )
    return HTMLResponse(page, error.status, {**PAGE_HEADERS, **dict(error.headers or {})})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return _show(request, error)


async def _not_served(request: Request, error: Exception) -> Response:
    """Starlette found no route, or none for this method."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        methods = sorted(set(allowed.split(", ")) - {"HEAD"})
        message = f"{path} takes {' or '.join(methods)}, not {request.method}"
        return _show(request, HttpError(405, "METHOD_NOT_ALLOWED", message, error.headers))
    if error.status_code == 404:
        known = [f"{method} {path}" for method, path in ROUTES]
        known += [f"GET {path}" for path in watch.PATHS]
        message = f"there is no {path}; there are {', '.join(known)}"
        return _show(request, HttpError(404, "NOT_FOUND", message))
    return _show(request, HttpError(error.status_code, "REFUSED", str(error.detail), error.headers))


async def _failed(request: Request, error: Exception) -> Response:
    """A mistake in the code."""
    logger.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
    text = f"the broker failed: {type(error).__name__}"
    return _show(request, HttpError(500, "BROKER_FAILED", text))
