"""Requests that the admin endpoint must not believe, must not wait for and must not let grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.errors import StorageError
from kumquat.gateway.admin.connection import IDLE_SECONDS, MAX_HEAD, RECEIVE_SECONDS
from kumquat.gateway.admin.exchange import ANSWER_SECONDS, MAX_BODY
from kumquat.gateway.admin.listener import bind_admin
from kumquat.gateway.admin.server import MAX_CONNECTIONS
from kumquat.gateway.admin.tests.endpoint import Endpoint, serve_admin
from kumquat.gateway.config.kinds import AdminListener
from kumquat.gateway.net.acceptor import BindError

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNT = "/delay/count"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9093", "localhost", "LocalHost:1", "[::1]:80", "[::1]"]
)
def test_a_loopback_host_is_answered(host: str) -> None:
    async def check(endpoint: Endpoint) -> None:
        assert await endpoint.request(b"GET", COUNT, host=host) == (200, {"count": 5})

    serve_admin(check)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9093", "127.0.0.1.evil.example", "10.0.0.1:9093", "", "::"],
)
def test_a_page_whose_name_was_made_to_point_here_learns_nothing(host: str) -> None:
    async def check(endpoint: Endpoint) -> None:
        status, answer = await endpoint.request(b"GET", COUNT, host=host)
        assert (status, answer["error"]) == (403, "FORBIDDEN")
        assert endpoint.delay.calls == []

    serve_admin(check)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_form_in_some_page_changes_nothing(kind: str) -> None:
    async def check(endpoint: Endpoint) -> None:
        body = b'{"subject": "orders", "id": "id-2"}'
        status, answer = await endpoint.request(
            b"POST", "/delay/cancel", body, **{"content-type": kind}
        )
        assert (status, answer["error"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
        assert endpoint.delay.calls == []

    serve_admin(check)


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "said"),
    [
        (b"GET", "/delay", b"", 404, "there are GET /delay/count"),
        (b"GET", "/delay/cancel", b"", 405, "/delay/cancel takes POST, not GET"),
        (b"POST", COUNT, b"{}", 405, "takes GET, not POST"),
        (b"DELETE", COUNT, b"", 405, "takes GET, not DELETE"),
        (b"GET", COUNT, b"{}", 400, "a GET has no body"),
        (b"GET", "http://127.0.0.1/delay/count", b"", 400, "does not begin with /"),
        (b"GET", COUNT + "?subject", b"", 400, "the query cannot be read"),
        (b"GET", COUNT + "?subject=%ff", b"", 400, "the query cannot be read"),
        (b"GET", COUNT + "?from=1&from=2", b"", 400, "there twice"),
        (b"GET", COUNT + "?" + "&".join("x=1" for _ in range(50)), b"", 400, "cannot be read"),
        (
            b"GET",
            COUNT + "?topic=a",
            b"",
            400,
            "unknown argument 'topic'; allowed: subject, from, to",
        ),
        (b"POST", "/delay/cancel?id=a", b"{}", 400, "arguments in the body"),
        (b"POST", "/delay/cancel", b"{", 400, "the body is not JSON"),
        (b"POST", "/delay/cancel", b"[" * 50_000, 400, "the body is not JSON"),
        (b"POST", "/delay/cancel", b"\xff", 400, "the body is not JSON"),
        (b"POST", "/delay/cancel", b"[]", 400, "not a JSON object"),
        (b"POST", "/delay/cancel", b'{"id": "a\\ud800b"}', 400, "id: half a surrogate pair"),
        (b"POST", "/delay/cancel", b'{"\\udc00": "a"}', 400, "half a surrogate pair"),
        (b"POST", "/delay/cancel", b'{"subject": "orders", "id": ["\\ud800"]}', 400, "id"),
        (b"GET", "/delay/show?subject=orders&id=%ED%A0%80", b"", 400, "the query cannot be read"),
        (b"POST", "/delay/cancel", b" " * (MAX_BODY + 1), 413, "at most"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    method: bytes, target: str, body: bytes, status: int, said: str
) -> None:
    async def check(endpoint: Endpoint) -> None:
        answered, answer = await endpoint.request(method, target, body)
        assert (answered, endpoint.delay.calls) == (status, [])
        assert said in answer["message"]
        assert await endpoint.get(COUNT) == (200, {"count": 5})

    serve_admin(check)


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"\x00\x00\x00\x10kafka client\r\n\r\n"], b"400"),
        ([b"GET /delay/count HTTP/1.1\r\n\r\n"], b"400"),
        ([b"GET /" + b"a" * MAX_HEAD, b"a" * 10], b"431"),
        ([b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2 * MAX_HEAD], b"431"),
        ([b"POST /delay/move HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: nonsense\r\n\r\n"], b"501"),
        ([b"POST /delay/move HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"], b"400"),
    ],
)
def test_what_is_no_request_ends_its_connection_and_no_other(
    pieces: Sequence[bytes], status: bytes
) -> None:
    async def check(endpoint: Endpoint) -> None:
        answer = await endpoint.raw(*pieces)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b'"message": ' in answer
        assert await endpoint.get(COUNT) == (200, {"count": 5})

    serve_admin(check)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_leave_the_endpoint_alive(data: bytes) -> None:
    async def check(endpoint: Endpoint) -> None:
        await endpoint.raw(data)
        await endpoint.raw(b"POST /delay/cancel HTTP/1.1\r\nHost: localhost\r\n" + data)
        assert await endpoint.get(COUNT) == (200, {"count": 5})

    serve_admin(check)


def test_one_connection_serves_many_requests_even_sent_together() -> None:
    async def check(endpoint: Endpoint) -> None:
        ask = b"GET /delay/count HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answer = await endpoint.raw(ask * 3, b"HEAD" + ask[3:], ask)
        assert answer.count(b"HTTP/1.1 200") == 5
        assert answer.count(b'{"count": 5}') == 4

    serve_admin(check)


def test_a_client_that_waits_to_be_told_to_go_on_is_told() -> None:
    async def check(endpoint: Endpoint) -> None:
        head = (
            b"POST /delay/cancel HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nContent-Length: 35\r\n\r\n"
        )
        async with await endpoint.connect() as stream:
            await stream.send_all(head)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
            await stream.send_all(b'{"subject": "orders", "id": "id-2"}')
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")

    serve_admin(check)


@pytest.mark.parametrize(
    "begin", [b"", b"GET /delay/count HT", b"POST / HTTP/1.1\r\nHost: localhost\r\n"]
)
def test_a_client_that_does_not_go_on_is_let_go(begin: bytes) -> None:
    async def check(endpoint: Endpoint) -> None:
        async with await endpoint.connect() as stream:
            if begin:
                await stream.send_all(begin)
            await endpoint.settled()
            endpoint.clock.jump((RECEIVE_SECONDS if begin else IDLE_SECONDS) + 1)
            assert await stream.receive_some() == b""

    serve_admin(check)


@pytest.mark.parametrize("begin", [b"", b"GET /delay/count HT"])
def test_half_sent_requests_do_not_lock_others_out(
    begin: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(endpoint: Endpoint) -> None:
        streams = [await endpoint.connect() for _ in range(MAX_CONNECTIONS)]
        for stream in streams:
            if begin:
                await stream.send_all(begin)
        await endpoint.settled()
        for _ in range(3):
            assert await endpoint.get(COUNT) == (200, {"count": 5})
        assert await streams[0].receive_some() == b"", "the oldest had to go"
        for stream in streams:
            await stream.aclose()

    serve_admin(check)
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


def test_a_connection_that_is_being_answered_does_not_have_to_go() -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.go = trio.Event()
        async with trio.open_nursery() as nursery:
            answers = []

            async def ask() -> None:
                answers.append(await endpoint.get(COUNT))

            for _ in range(MAX_CONNECTIONS):
                nursery.start_soon(ask)
            await endpoint.settled()
            async with await endpoint.connect() as stream:
                assert await stream.receive_some() == b""
            endpoint.delay.go.set()
        assert answers == [(200, {"count": 5})] * MAX_CONNECTIONS

    serve_admin(check)


def test_an_answer_that_is_long_in_coming_is_told_and_not_waited_for() -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.go = trio.Event()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def ask() -> None:
                status, answer = await endpoint.get(COUNT)
                assert (status, answer["error"]) == (503, "TIMED_OUT")

            await endpoint.settled()
            endpoint.clock.jump(ANSWER_SECONDS + 1)

    serve_admin(check)


def test_a_stop_finishes_answers_and_ends_the_rest() -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.go = trio.Event()
        async with await endpoint.connect() as idle, trio.open_nursery() as nursery:

            @nursery.start_soon
            async def ask() -> None:
                assert await endpoint.get(COUNT) == (200, {"count": 5})

            await endpoint.settled()
            endpoint.server.stop()
            assert await idle.receive_some() == b""
            endpoint.delay.go.set()

    serve_admin(check)


def test_failures_are_answered_with_a_status_that_fits(caplog: pytest.LogCaptureFixture) -> None:
    async def check(endpoint: Endpoint) -> None:
        endpoint.delay.error = StorageError("the disk is full")
        status, answer = await endpoint.get(COUNT)
        assert (status, answer["error"]) == (503, "KAFKA_STORAGE_ERROR")
        assert answer["message"] == "the disk is full"
        endpoint.delay.error = ZeroDivisionError("a slip")
        status, answer = await endpoint.get(COUNT)
        assert (status, answer["message"]) == (500, "the broker failed: ZeroDivisionError")
        assert "a slip" in caplog.text

    serve_admin(check)


def test_an_address_that_cannot_be_had_is_one_line() -> None:
    taken = bind_admin(AdminListener("127.0.0.1", 0))
    taken.listen()
    with (
        taken,
        pytest.raises(BindError, match=r"cannot listen on HTTP://127\.0\.0\.1:[0-9]+: Addr"),
    ):
        bind_admin(AdminListener("127.0.0.1", taken.getsockname()[1]))


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
def test_other_machines_are_served_only_where_that_is_allowed(host: str) -> None:
    with bind_admin(AdminListener(host, 0), allow_remote=True) as sock:
        assert sock.getsockname()[0] in ("0.0.0.0", "::")
    with pytest.raises(BindError, match=r"is not loopback; use 127\.0\.0\.1"):
        bind_admin(AdminListener(host, 0))


def test_a_name_that_is_not_loopback_after_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    anywhere = [(2, 1, 6, "", ("0.0.0.0", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: anywhere)
    with pytest.raises(BindError, match=r"0\.0\.0\.0 is not loopback"):
        bind_admin(AdminListener("localhost", 0))
