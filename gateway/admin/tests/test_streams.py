"""Answers without an end (server-sent events): who ends them, and what they must not hold up."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import trio
from starlette.responses import Response
from starlette.routing import Route

from kumquat.gateway.admin.connection import IDLE_SECONDS
from kumquat.gateway.admin.exchange import ANSWER_SECONDS, SEND_SECONDS
from kumquat.gateway.admin.server import MAX_CONNECTIONS
from kumquat.gateway.admin.streams import Stream
from kumquat.gateway.admin.tests.endpoint import Endpoint, serve_admin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

LARGE = 64 << 20
"""More than the kernel takes for a client that does not read."""


@dataclass
class Events:
    """A stream that sends what is put in."""

    open: int = 0
    begun: int = 0
    ended: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self._put, self._get = trio.open_memory_channel[bytes](math.inf)
        self.put = self._put.send_nowait

    async def answer(self, request: Request) -> Response:
        return Stream(self._events(), "text/event-stream")

    async def _events(self) -> AsyncGenerator[bytes, None]:
        self.open += 1
        self.begun += 1
        try:
            while (event := await self._get.receive()) != b"fail":
                yield event
            raise ZeroDivisionError("a slip")
        finally:
            self.open -= 1
            self.ended.set()

    async def pieces(self, request: Request) -> Response:
        answer = await self.answer(request)
        answer.headers["content-length"] = str(LARGE)
        return answer

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/events", self.answer),
            Route("/pieces", self.pieces),
            Route("/large", _large),
        ]


async def _large(request: Request) -> Response:
    return Response(bytes(LARGE))


async def ask(endpoint: Endpoint, path: str = "/events") -> trio.SocketStream:
    stream = await endpoint.connect()
    await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return stream


async def listen(endpoint: Endpoint) -> trio.SocketStream:
    """A client that has the head of the stream."""
    stream = await ask(endpoint)
    head = await stream.receive_some()
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-type: text/event-stream" in head
    return stream


def test_an_event_comes_when_it_happens_and_not_later() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await listen(endpoint) as stream:
            for event in (b"data: 1\n\n", b"data: 2\n\n"):
                events.put(event)
                assert event in await stream.receive_some()

    events = Events()
    serve_admin(check, events.routes)


def test_a_quiet_stream_is_not_taken_for_a_slow_client() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await listen(endpoint) as stream:
            for _ in range(10):
                await endpoint.settled()
                endpoint.clock.jump(ANSWER_SECONDS + IDLE_SECONDS + SEND_SECONDS)
            events.put(b"still here")
            assert b"still here" in await stream.receive_some()

    events = Events()
    serve_admin(check, events.routes)


def test_a_client_that_goes_away_ends_its_stream() -> None:
    async def check(endpoint: Endpoint) -> None:
        stream = await listen(endpoint)
        await endpoint.settled()
        assert events.open == 1
        await stream.aclose()
        await events.ended.wait()
        assert events.open == 0

    events = Events()
    serve_admin(check, events.routes)


def test_a_stop_does_not_wait_for_streams() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await listen(endpoint) as stream:
            await endpoint.settled()
            endpoint.server.stop()
            await events.ended.wait()
            rest = await stream.receive_some()
            assert rest == b"", "without the last chunk the client knows that it was cut off"

    events = Events()
    serve_admin(check, events.routes)


def test_a_stop_does_not_wait_for_a_stream_that_its_client_does_not_read() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await ask(endpoint):
            events.put(bytes(LARGE))
            await endpoint.settled()
            endpoint.server.stop()
            await events.ended.wait()

    events = Events()
    serve_admin(check, events.routes)


def test_a_client_that_does_not_read_its_stream_is_let_go() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await ask(endpoint):
            events.put(bytes(LARGE))
            await endpoint.settled()
            endpoint.clock.jump(SEND_SECONDS + 1)
            await events.ended.wait()

    events = Events()
    serve_admin(check, events.routes)


def test_a_client_that_does_not_take_its_answer_does_not_hold_the_stop_for_ever() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await ask(endpoint, "/large"):
            await endpoint.settled()
            endpoint.server.stop()
            await endpoint.settled()
            endpoint.clock.jump(SEND_SECONDS + 1)
            await endpoint.ended.wait()

    serve_admin(check, Events().routes)


def test_a_client_cannot_stretch_an_answer_to_keep_its_place() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await ask(endpoint, "/pieces") as stream:
            for _ in range(3):
                events.put(b"a piece")
                assert b"a piece" in await stream.receive_some()
                await endpoint.settled()
                endpoint.clock.jump(SEND_SECONDS * 0.4)
            events.put(b"a piece")
            assert await stream.receive_some() == b""
            await events.ended.wait()

    events = Events()
    serve_admin(check, events.routes)


def test_streams_do_not_lock_others_out() -> None:
    async def check(endpoint: Endpoint) -> None:
        streams = [await listen(endpoint) for _ in range(MAX_CONNECTIONS)]
        await endpoint.settled()
        assert events.open == MAX_CONNECTIONS
        assert await endpoint.get("/delay/count") == (200, {"count": 5})
        assert await streams[0].receive_some() == b"", "the oldest had to go"
        await endpoint.settled()
        assert events.open == MAX_CONNECTIONS - 1
        for stream in streams:
            await stream.aclose()

    events = Events()
    serve_admin(check, events.routes)


def test_a_waiting_connection_goes_before_a_stream() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await listen(endpoint) as stream:
            idle = [await endpoint.connect() for _ in range(MAX_CONNECTIONS - 1)]
            await endpoint.settled()
            assert await endpoint.get("/delay/count") == (200, {"count": 5})
            assert await idle[0].receive_some() == b""
            events.put(b"still here")
            assert b"still here" in await stream.receive_some()
            for connection in idle:
                await connection.aclose()

    events = Events()
    serve_admin(check, events.routes)


def test_a_stream_that_fails_is_cut_off_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await listen(endpoint) as stream:
            events.put(b"fail")
            assert await stream.receive_some() == b""
        assert len(caplog.records) == 1
        assert "GET /events failed" in caplog.text
        assert "a slip" in caplog.text

    events = Events()
    serve_admin(check, events.routes)


def test_a_stream_that_was_asked_for_its_head_only_ends_with_its_client() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await endpoint.connect() as stream:
            await stream.send_all(b"HEAD /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
            await stream.send_eof()
            await events.ended.wait()

    events = Events()
    serve_admin(check, events.routes)
