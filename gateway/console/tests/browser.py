"""A browser without a screen: it asks for pages of a broker in this process, keeps the cookie, sends forms.

    async def check(served: Served) -> None:
        async with browser(served) as visitor:
            page = await visitor.get("/console/subjects")
            done = await visitor.send("/console/produce", subject="t", value="hello")
    serve(check, tmp_path)

The admin endpoint is on a real socket. `send` takes the token from the console's own pages; `post` sends
what it is told to, for forms that somebody else has made.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import h11
import trio

from kumquat.gateway.admin.app import make_app
from kumquat.gateway.admin.listener import bind_admin
from kumquat.gateway.admin.server import AdminServer
from kumquat.gateway.config.kinds import AdminListener
from kumquat.gateway.console.app import routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kumquat.gateway.tests.harness import Served

FORM = "application/x-www-form-urlencoded"
_TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


class Page(NamedTuple):
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    text: str

    @property
    def token(self) -> str:
        found = _TOKEN.search(self.text)
        assert found is not None, "the page has no form that changes something"
        return found[1]


class Browser:
    def __init__(self, port: int, served: Served) -> None:
        self._port = port
        self._served = served
        self.cookie = ""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def get(self, target: str, **headers: str) -> Page:
        return await self._ask("GET", target, b"", headers)

    async def post(self, target: str, fields: dict[str, str], **headers: str) -> Page:
        body = urlencode(fields).encode()
        return await self._ask("POST", target, body, {"content_type": FORM, **headers})

    async def send(self, target: str, **fields: str) -> Page:
        """A form of the console's own, and the page that it leads to."""
        token = (await self.get("/console/produce?subject=__kumquat_retry")).token
        answer = await self.post(target, {"token": token, **fields}, origin=self.origin)
        if answer.status == 303:
            return await self.get(answer.headers["location"])
        return answer

    async def _ask(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> Page:
        given = {"host": f"127.0.0.1:{self._port}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            given.setdefault("cookie", self.cookie)
        if method == "POST":
            given["content-length"] = str(len(body))
        http = h11.Connection(h11.CLIENT)
        head = h11.Request(method=method, target=target, headers=list(given.items()))
        async with await trio.open_tcp_stream("127.0.0.1", self._port) as stream:
            data = http.send(head) or b""
            data += (http.send(h11.Data(data=body)) or b"") if body else b""
            await stream.send_all(data + (http.send(h11.EndOfMessage()) or b""))
            page = await _receive(stream, http)
        if "set-cookie" in page.headers:
            self.cookie = page.headers["set-cookie"].partition(";")[0]
        return page


async def _receive(stream: trio.SocketStream, http: h11.Connection) -> Page:
    status, headers, body = 0, {}, b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return Page(status, headers, body.decode())
        else:
            raise AssertionError(f"unexpected: {event}")


@asynccontextmanager
async def browser(served: Served) -> AsyncIterator[Browser]:
    await served.broker.subjects.make_retry()
    server = AdminServer(make_app(served.broker, routes(served.broker)))
    sock = bind_admin(AdminListener("127.0.0.1", 0))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, sock)
        yield Browser(sock.getsockname()[1], served)
        server.stop()
