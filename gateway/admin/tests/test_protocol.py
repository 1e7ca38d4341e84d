"""What a client does beside HTTP/1.1, or in the middle of it, and what that must not cost."""

from __future__ import annotations

import pytest
import trio

from kumquat.gateway.admin.connection import RECEIVE_SECONDS
from kumquat.gateway.admin.exchange import MAX_BODY
from kumquat.gateway.admin.server import MAX_CONNECTIONS
from kumquat.gateway.admin.tests.endpoint import Endpoint, serve_admin

COUNT = "/delay/count"
ASK = b"GET /delay/count HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = (
    b"POST /delay/cancel HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def test_http_2_is_not_spoken_even_to_who_asks_for_it() -> None:
    async def check(endpoint: Endpoint) -> None:
        upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"
        answer = await endpoint.raw(ASK[:-2] + upgrade + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")
        answer = await endpoint.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 4")

    serve_admin(check)


def test_a_websocket_is_refused() -> None:
    async def check(endpoint: Endpoint) -> None:
        upgrade = (
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        for path in (b"/delay/count", b"/nothing"):
            answer = await endpoint.raw(ASK.replace(b"/delay/count", path)[:-2] + upgrade)
            assert answer.startswith(b"HTTP/1.1 403")
        assert endpoint.delay.calls == []

    serve_admin(check)


@pytest.mark.parametrize(("size", "clients"), [(1, 1), (0x100, MAX_CONNECTIONS + 1)])
def test_a_body_without_end_is_refused_and_does_not_keep_its_connection(
    size: int, clients: int
) -> None:
    """Even of a client that goes on sending: hypercorn alone would wait for its application for ever."""

    async def check(endpoint: Endpoint) -> None:
        piece = b"%x\r\n%b\r\n" % (size, b" " * size)
        for _ in range(clients):
            async with await endpoint.connect() as stream:
                await stream.send_all(CHUNKED + piece * (2 * MAX_BODY // size))
                answer = await stream.receive_some()
                assert answer.startswith(b"HTTP/1.1 413")
                assert b"\r\nconnection: close\r\n" in answer
                await endpoint.settled()
                endpoint.clock.jump(RECEIVE_SECONDS + 1)
        assert await endpoint.get(COUNT) == (200, {"count": 5})

    serve_admin(check)


def test_a_client_that_is_still_sending_can_read_why_it_is_refused() -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await endpoint.connect() as stream:
            await stream.send_all(CHUNKED + b"x\r\n")
            await endpoint.settled()
            for _ in range(100):
                await stream.send_all(bytes(1000))
            answer = b""
            while data := await stream.receive_some():
                answer += data
            assert answer.startswith(b"HTTP/1.1 400")
            assert b'"message": ' in answer

    serve_admin(check)


def test_clients_that_have_gone_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def check(endpoint: Endpoint) -> None:
        for begin in (b"", ASK, ASK[:10], ASK + ASK[:10], CHUNKED, CHUNKED + b"1\r\n"):
            for _ in range(MAX_CONNECTIONS // 2):
                async with await endpoint.connect() as stream:
                    await stream.send_all(begin)
                    await endpoint.settled()
            await endpoint.settled()
        assert caplog.records == [], "there was never one too many"

    serve_admin(check)


def test_a_client_that_goes_while_it_is_answered_leaves_nothing_behind() -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.go = trio.Event()
        for number in range(MAX_CONNECTIONS):
            stream = await endpoint.connect()
            await stream.send_all(ASK)
            await endpoint.settled()
            if number % 2:  # the connection is reset, not only closed
                stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1" + bytes(7))
            await stream.aclose()
        endpoint.delay.go.set()
        await endpoint.settled()
        for _ in range(2):
            assert await endpoint.get(COUNT) == (200, {"count": 5})
        endpoint.server.stop()
        await endpoint.ended.wait()

    serve_admin(check)


def test_a_client_that_only_stopped_sending_gets_its_answer() -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.go = trio.Event()
        async with await endpoint.connect() as stream:
            await stream.send_all(ASK)
            await stream.send_eof()
            await endpoint.settled()
            endpoint.delay.go.set()
            assert b'{"count": 5}' in await stream.receive_some()

    serve_admin(check)


def test_requests_that_wait_behind_another_end_with_the_stop() -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.go = trio.Event()
        async with await endpoint.connect() as stream:
            await stream.send_all(ASK * 3)
            await endpoint.settled()
            endpoint.server.stop()
            await endpoint.settled()
            endpoint.delay.go.set()
            answer = b""
            while data := await stream.receive_some():
                answer += data
            assert answer.count(b"HTTP/1.1 200") == 1
            await endpoint.ended.wait()

    serve_admin(check)


def test_a_second_signal_waits_for_nobody() -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.go = trio.Event()
        async with await endpoint.connect() as stream:
            await stream.send_all(ASK)
            await endpoint.settled()
            endpoint.running.cancel()
            await endpoint.ended.wait()

    serve_admin(check)
