"""What a connection of the admin endpoint holds is free when it ends, without the garbage collector
(gateway/tests/collector.py): half a body, an answer or a stream that nobody takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypercorn.protocol.http_stream import HTTPStream
from starlette.responses import Response
from starlette.routing import Route

from kumquat.gateway.admin.connection import Connection
from kumquat.gateway.admin.exchange import Exchange
from kumquat.gateway.admin.streams import Stream
from kumquat.gateway.admin.tests.endpoint import Endpoint, serve_admin
from kumquat.gateway.tests.collector import nothing_for_the_collector

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request

MUCH = 8 << 20
"""More than the sockets hold."""


async def large_answer(request: Request) -> Response:
    return Response(bytes(MUCH))


async def endless_answer(request: Request) -> Response:
    async def pieces() -> AsyncGenerator[bytes, None]:
        while True:
            yield bytes(100_000)

    return Stream(pieces(), "text/event-stream")


async def failing_answer(request: Request) -> Response:
    raise ValueError("a test")


ROUTES = [
    Route("/large", large_answer),
    Route("/endless", endless_answer),
    Route("/failing", failing_answer),
]
HEAD = b"POST /delay/cancel HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HEAD[:40], id="half a head"),
        pytest.param(HEAD % 60_000 + bytes(50_000), id="half a body"),
        pytest.param(HEAD % 600_000 + bytes(100_000), id="a body that is too large"),
        pytest.param(b"GET /large HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", id="an answer not taken"),
        pytest.param(b"GET /endless HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", id="a stream not taken"),
        pytest.param(b"GET /failing HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", id="a failure"),
    ],
)
@pytest.mark.parametrize("end", ["the client closes", "the client is too slow"])
def test_what_a_connection_holds_is_free_when_it_ends(sent: bytes, end: str) -> None:
    async def check(endpoint: Endpoint) -> None:
        await endpoint.get("/delay/count?subject=orders")
        await endpoint.settled()
        with nothing_for_the_collector(Connection, Exchange, HTTPStream):
            stream = await endpoint.connect()
            if sent:
                await stream.send_all(sent)
            await endpoint.settled()
            if end == "the client closes":
                await stream.aclose()
                await endpoint.settled()
            for _ in range(3):
                endpoint.clock.jump(100)
                await endpoint.settled()
            assert not endpoint.server._connections
            await stream.aclose()

    serve_admin(check, ROUTES)
