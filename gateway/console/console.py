"""What the pages of one broker share, and what every answer goes through.

`Console.endpoint` turns a page into what Starlette calls. Before the page, of a form: the
origin and the token (security.py). After it: the security headers, the cookie for a browser
that has none, and what went wrong as a page of its own.

A page that is read has an ETag, made of its bytes. A request with X-Fragment gets the part without
navigation: the script asks for it every two seconds.

A *notice* is what an action did, told on the page that the browser is sent to afterwards. The address has
only its number: nobody can make the console say something with a link.
"""

from __future__ import annotations

import logging
import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from starlette.responses import RedirectResponse, Response

from kumquat.gateway.console import security
from kumquat.gateway.console.asking import Unanswered
from kumquat.gateway.console.forms import BadForm, parameters, read_form
from kumquat.gateway.console.render import link, render
from kumquat.gateway.console.samples import Lags
from kumquat.gateway.console.security import COOKIE, COOKIE_ATTRIBUTES, FIELD, Forbidden, Tokens
from kumquat.gateway.console.snapshot import Snapshots
from kumquat.gateway.console.views.delays import HourCounts
from kumquat.gateway.console.views.subjects import Names
from kumquat.gateway.console.views.trace import Traces

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from kumquat.gateway.broker import Broker

    Page = Callable[["Visit"], Awaitable[Response]]
    Endpoint = Callable[[Request], Awaitable[Response]]

FRAGMENT = "x-fragment"
MOST_NOTICES = 200
RENDERERS = 2
"""Threads that make pages. What they get are copies, and numbers that anybody may read."""
HTML = "text/html; charset=utf-8"
THEME, THEMES = "kumquat_theme", ("light", "dark")
"""The cookie of a browser whose reader has chosen."""

logger = logging.getLogger(__name__)


class Notice(NamedTuple):
    text: str
    good: bool


class Console:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.tokens = Tokens()
        self.snapshots = Snapshots(broker)
        self.lags = Lags()
        self.names = Names(broker)
        self.hour_counts = HourCounts(broker)
        self.traces = Traces(broker)
        self._notices: dict[str, Notice] = {}
        self._renderers = trio.CapacityLimiter(RENDERERS)

    async def render(self, template: str, values: Mapping[str, Any]) -> str:
        """In a thread: a long table takes ten milliseconds, and a page's first time as long as fifty."""
        return await trio.to_thread.run_sync(render, template, values, limiter=self._renderers)

    def note(self, text: str, good: bool = True) -> str:
        """Keep a notice; gives its number."""
        key = secrets.token_urlsafe(8)
        self._notices[key] = Notice(text, good)
        if len(self._notices) > MOST_NOTICES:
            del self._notices[next(iter(self._notices))]
        return key

    def notice(self, key: str | None) -> Notice | None:
        return self._notices.get(key or "")

    def endpoint(self, page: Page) -> Endpoint:
        async def answer(request: Request) -> Response:
            cookie = request.cookies.get(COOKIE)
            visit = Visit(self, request, cookie or Tokens.new_cookie())
            response = await self._answer(page, visit)
            response.headers.update(security.HEADERS)
            response.headers.setdefault("cache-control", "no-cache")
            if not cookie:
                response.headers["set-cookie"] = f"{COOKIE}={visit.cookie}; {COOKIE_ATTRIBUTES}"
            return response

        return answer

    async def _answer(self, page: Page, visit: Visit) -> Response:
        request = visit.request
        try:
            visit.values = parameters(request)
            if request.method == "POST":
                security.check_origin(request.headers)
                visit.form = await read_form(request)
                self.tokens.check(request.cookies.get(COOKIE), visit.form.pop(FIELD, None))
            return await page(visit)
        except Forbidden as error:
            return await visit.refuse(403, str(error))
        except BadForm as error:
            return await visit.refuse(error.status, str(error))
        except Unanswered as error:
            return await visit.refuse(error.status, str(error))
        except Exception:
            logger.exception("a page of the console failed: %s", request.url.path)
            return await visit.refuse(500, "this page could not be made; the broker's log says why")


class Visit:
    """One request of a browser."""

    def __init__(self, console: Console, request: Request, cookie: str) -> None:
        self.console = console
        self.broker = console.broker
        self.request = request
        self.cookie = cookie
        self.values: Mapping[str, str] = {}
        """What the address says."""
        self.form: dict[str, str] = {}

    async def page(self, template: str, where: str, status: int = 200, **values: Any) -> Response:
        """`where`: the entry of the navigation that is marked."""
        fragment = FRAGMENT in self.request.headers
        theme = self.request.cookies.get(THEME)
        text = await self.console.render(
            template,
            {
                "layout": "fragment.html" if fragment else "layout.html",
                "where": where,
                "here": str(self.request.url.path),
                "token": self.console.tokens.of(self.cookie),
                "notice": self.console.notice(self.values.get("notice")),
                "theme": theme if theme in THEMES else None,
                "query": self.values.get("q", ""),
                **values,
            },
        )
        body = text.encode()
        if self.request.method != "GET" or status != 200:
            return Response(body, status, media_type=HTML)
        etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
        headers = {"etag": etag, "vary": FRAGMENT}
        if etag in self.request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=HTML)

    async def refuse(self, status: int, text: str) -> Response:
        return await self.page("error.html", "", status, code=status, text=text)

    def go(self, path: str, said: str, good: bool = True, **parameters: object) -> Response:
        """To another page, which tells what was done."""
        notice = self.console.note(said, good)
        return RedirectResponse(link(path, **parameters, notice=notice), 303)
