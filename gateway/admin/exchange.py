"""One request and its answer, between hypercorn, which speaks HTTP, and the application, which has routes.

The application is called when the whole request is here, so it never waits for a client: the body, of at
most MAX_BODY bytes, is kept here. Then it has ANSWER_SECONDS to begin its answer. A body that is larger, an
application that is too slow and one that fails are answered from here, as JSON.

An answer with a Content-Length has an end. The client has SEND_SECONDS to take it, and a stop of the broker
waits for it: a client always learns what became of its change.

An answer without one is a stream (server-sent events). It may go on for days: the client has SEND_SECONDS
for each piece, and a stop ends it. The application is told that the client has gone, as when that really
happens, and Starlette then cancels what makes the stream. The client sees that it was cut off, since the
last chunk is missing.

Every answer carries HEADERS, unless the application says otherwise.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from kumquat.gateway.admin.http import JSON, HttpError, as_json, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from starlette.types import ASGIApp

    Message = MutableMapping[str, Any]
    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

MAX_BODY = 64 << 10
ANSWER_SECONDS = 30.0
SEND_SECONDS = 10.0
HEADERS = {b"cache-control": b"no-store", b"x-content-type-options": b"nosniff"}
_GONE: Message = {"type": "http.disconnect"}

logger = logging.getLogger(__name__)


class Phase(Enum):
    RECEIVING = auto()
    """Some of the request is missing."""
    REFUSED = auto()
    """It is too large: what still comes of it is not read, and no other request can follow."""
    ANSWERING = auto()
    STREAMING = auto()


class Exchange:
    def __init__(self, application: ASGIApp, stopping: trio.Event) -> None:
        self._application = application
        self._stopping = stopping
        self._body: bytes | None = None
        self._limit = trio.CancelScope()
        self._started = False
        self.phase = Phase.RECEIVING
        self.at_head = False
        """What is sent now is the head of an answer whose body follows at once."""
        self.sent_by = inf
        """When the client must have taken all of its answer."""

    async def run(
        self, scope: Scope, receive: Receive, send: Send, on_received: Callable[[], None]
    ) -> None:
        self._receive, self._send = receive, send
        try:
            self._body = await self._receive_body()
        except HttpError as error:
            self.phase = Phase.REFUSED
            await self._refuse(error, (b"connection", b"close"))
            return
        if self._body is None:
            return
        self.phase = Phase.ANSWERING
        on_received()
        await self._answer(scope)

    async def _receive_body(self) -> bytes | None:
        """None: the client has gone."""
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return None
            body += message["body"]
            if len(body) > MAX_BODY:
                raise HttpError(413, "TOO_LARGE", f"a body has at most {MAX_BODY} bytes")
            if not message["more_body"]:
                return bytes(body)

    async def _answer(self, scope: Scope) -> None:
        try:
            with self._limit:
                self._limit.deadline = trio.current_time() + ANSWER_SECONDS
                await self._application(scope, self._give, self._take)
        except Exception as error:
            if not self._started:  # else Starlette has had it logged, and raises it again
                logger.exception("%s %s failed", scope["method"], scope["path"])
            name = type(error).__name__
            await self._refuse(HttpError(500, "BROKER_FAILED", f"the broker failed: {name}"))
        if self._limit.cancelled_caught:
            text = f"no answer after {ANSWER_SECONDS:.0f} s; what was to be changed may have been"
            await self._refuse(HttpError(503, "TIMED_OUT", text))

    async def _give(self) -> Message:
        """What the application receives: the request, and then that the client has gone, or the stop."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def until_stop() -> None:
                await self._stopping.wait()
                nursery.cancel_scope.cancel()

            await self._receive()
            nursery.cancel_scope.cancel()
        return _GONE

    async def _take(self, message: Message) -> None:
        """What the application sends."""
        if message["type"] == "http.response.start":
            if self._limit.cancel_called:
                await trio.lowlevel.checkpoint()  # too late: this raises Cancelled
            self._started = True
            self._limit.deadline = inf
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            if b"content-length" in names:
                self.at_head = True
                self.sent_by = trio.current_time() + SEND_SECONDS
            else:
                self.phase = Phase.STREAMING
            headers += [header for header in HEADERS.items() if header[0] not in names]
            await self._send({**message, "headers": headers})
            self.at_head = False
            return
        await self._send(message)

    async def _refuse(self, error: HttpError, *headers: tuple[bytes, bytes]) -> None:
        """Answer so, unless an answer has begun."""
        if self._started:
            return
        body = as_json(refusal(error).payload)
        headers = (
            (b"content-type", f"{JSON}; charset=utf-8".encode()),
            (b"content-length", str(len(body)).encode()),
            *headers,
        )
        start = {"type": "http.response.start", "status": error.status, "headers": headers}
        await self._take(start)
        await self._take({"type": "http.response.body", "body": body, "more_body": False})
