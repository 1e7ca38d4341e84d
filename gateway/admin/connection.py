"""One connection of the admin endpoint: a socket, hypercorn's HTTP/1.1 on it, and limits.

hypercorn parses requests, sends answers and calls the application as ASGI says (its H11Protocol). The tasks
and time-outs around that are ours and not those of `hypercorn.trio.serve`, which
- bounds neither the number of connections nor the time that a client takes for half a request (its
  `read_timeout` would also end streams, on which a client sends nothing);
- waits without a bound, and shielded, until a client takes its answer: who does not read holds the stop;
- keeps a connection whose client has gone until `keep_alive_timeout` has passed;
- hangs when a client goes on sending a body that the application no longer reads.

Limits: MAX_HEAD bytes of request line and headers, IDLE_SECONDS from one answer to the first byte of the
next request, RECEIVE_SECONDS from there until the request is complete. exchange.py has those of a request
and its answer. While a request is handled, no more than CHUNK bytes of the next ones are read.

What is no HTTP is answered with a status and JSON. The connection then ends, as after a body that is too
large: our side is closed and what still comes is thrown away for RECEIVE_SECONDS, so that a client that is
still sending can read why. HTTP/2 and websockets are off.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, cast

import trio
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Response
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.typing import ConnectionState

from kumquat.gateway.admin.exchange import HEADERS, SEND_SECONDS, Exchange, Phase
from kumquat.gateway.admin.http import JSON, HttpError, as_json, refusal

if TYPE_CHECKING:
    from hypercorn.config import Config
    from hypercorn.events import Event
    from hypercorn.trio.worker_context import WorkerContext
    from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable
    from hypercorn.typing import Scope as AnyScope
    from starlette.types import ASGIApp

MAX_HEAD = 16 << 10
RECEIVE_SECONDS = 5.0
IDLE_SECONDS = 60.0
CHUNK = 16 << 10
MAX_EVENTS = CHUNK
"""One read never fills the queue between hypercorn and an exchange: each event is of more than one byte."""
_WRONG = {
    431: f"the request line and the headers have at most {MAX_HEAD} bytes",
    501: "the only transfer coding is chunked",
}


class _Http1(H11Protocol):
    """HTTP/1.1, whatever a client would like to upgrade to, and refusals that say what is wrong."""

    async def _check_protocol(self, event: object) -> None:
        """Upgrades to nothing."""

    async def _send_error_response(self, status_code: int) -> None:
        text = _WRONG.get(status_code, "this is not a valid request of HTTP/1.1")
        body = as_json(refusal(HttpError(status_code, "BAD_REQUEST", text)).payload)
        headers = [
            (b"content-type", f"{JSON}; charset=utf-8".encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *HEADERS.items(),
        ]
        await self.stream_send(Response(stream_id=1, headers=headers, status_code=status_code))
        await self.stream_send(Body(stream_id=1, data=body))
        await self.stream_send(EndBody(stream_id=1))


class Connection:
    def __init__(
        self,
        stream: trio.SocketStream,
        application: ASGIApp,
        config: Config,
        context: WorkerContext,
        stopping: trio.Event,
    ) -> None:
        self._stream = stream
        self._application = application
        self._config = config
        self._context = context
        self._stopping = stopping
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._exchange: Exchange | None = None
        self._head = b""
        """Of an answer; it is sent together with the body."""
        self._due = inf
        """When the client must have sent more."""
        self._begun = self._ended = False
        """Whether some of the next request is here; whether no other can follow."""

    @property
    def waiting(self) -> bool:
        """For a request, or for the rest of one: nothing is lost when it is closed."""
        return self._exchange is None or self._exchange.phase in (Phase.RECEIVING, Phase.REFUSED)

    @property
    def streaming(self) -> bool:
        return self._exchange is not None and self._exchange.phase is Phase.STREAMING

    def close(self) -> None:
        """Whatever it does."""
        self._scope.cancel()

    async def run(self) -> None:
        """Serve until either side ends it."""
        socket, tasks = self._stream.socket, TaskGroup()
        self._http = _Http1(
            self._call,
            self._config,
            self._context,
            tasks,
            ConnectionState({}),
            False,
            _address(socket.getpeername),
            _address(socket.getsockname),
            self._obey,
        )
        try:
            with self._scope:
                async with self._stream, tasks:
                    self._expect_request()
                    await self._read()
        finally:
            # They refer to this connection, to each other, and after a cancellation to the task that runs
            # here. In such cycles requests and answers would wait for the garbage collector.
            vars(self._http).clear()
            vars(tasks).clear()
            self._exchange = None

    # What comes

    async def _read(self) -> None:
        while data := await self._receive():
            if not self._refused:
                await self._http.handle(RawData(data))
        if not self._refused:
            await self._http.handle(RawData(b""))
        await self._http.handle(Closed())

    @property
    def _refused(self) -> bool:
        """No more is read of what the client sends."""
        exchange = self._exchange
        return self._ended or (exchange is not None and exchange.phase is Phase.REFUSED)

    async def _receive(self) -> bytes:
        """Nothing: the client has gone, or has been too slow."""
        data = b""
        with trio.CancelScope(deadline=self._due) as self._reading:
            try:
                data = bytes(await self._stream.receive_some(CHUNK))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""
        if self._reading.cancelled_caught:
            self._ended = True
        elif not self._begun:
            self._begun = True
            self._wait_until(trio.current_time() + RECEIVE_SECONDS)
        return data

    def _expect_request(self) -> None:
        self._begun = False
        self._wait_until(trio.current_time() + IDLE_SECONDS)

    def _received(self) -> None:
        self._wait_until(inf)

    def _wait_until(self, due: float) -> None:
        self._due = self._reading.deadline = due

    # What hypercorn wants done

    async def _obey(self, event: Event) -> None:
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed):
            await self._end()
        elif isinstance(event, Updated) and event.idle:
            self._expect_request()

    async def _send(self, data: bytes) -> None:
        data, self._head = self._head + data, b""
        due = trio.current_time() + SEND_SECONDS
        if self._exchange is not None:
            due = min(due, self._exchange.sent_by)
            if self._exchange.at_head:
                self._head = data
        if self._head or not data:
            return
        try:
            with trio.fail_at(due):
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            self._scope.cancel()

    async def _end(self) -> None:
        """No other request can follow: the client gets the end of the last answer, and has some time to
        take it."""
        self._ended = True
        if self._stopping.is_set():
            self._scope.cancel()
            return
        self._wait_until(trio.current_time() + RECEIVE_SECONDS)
        try:
            await self._stream.send_eof()
        except trio.BusyResourceError:
            pass  # a refusal is being sent; the client sees the end when the time is over
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._scope.cancel()

    async def _call(
        self,
        scope: AnyScope,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
        sync_spawn: Callable[..., Any],
        call_soon: Callable[..., Any],
    ) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000, "reason": None})
            return
        exchange = self._exchange = Exchange(self._application, self._stopping)
        await exchange.run(cast(Any, scope), cast(Any, receive), cast(Any, send), self._received)
        if self._exchange is exchange:
            self._exchange = None


def _address(ask: Callable[[], Any]) -> tuple[str, int] | None:
    try:
        host, port = ask()[:2]
    except OSError:  # the client has gone already
        return None
    return host, port
