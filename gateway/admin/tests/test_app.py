"""Who is let in, what every answer carries, and what errors look like to programs and to browsers."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kumquat.gateway.admin.http import HttpError
from kumquat.gateway.admin.tests.endpoint import Client, Endpoint, serve_admin
from kumquat.gateway.metrics import health

if TYPE_CHECKING:
    from starlette.requests import Request

COUNT = "/delay/count"
BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


async def _page(request: Request) -> Response:
    return PlainTextResponse("a page", headers={"cache-control": "max-age=60"})


async def _refuse(request: Request) -> Response:
    raise HttpError(409, "BUSY", "not <now>")


async def _slip(request: Request) -> Response:
    raise ZeroDivisionError("a slip")


EXTRA = [
    Route("/page", _page),
    Route("/page/refused", _refuse),
    Route("/page/slip", _slip),
    Route(COUNT, _page),
]


async def get(client: Client, path: str, accept: str = "*/*", method: str = "GET") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"
    return await client.raw(head.encode())


@pytest.mark.parametrize("path", [COUNT, "/page", "/nothing", "/delay/nothing", "/health/nothing"])
def test_no_answer_is_kept_or_guessed_at_by_a_browser(path: str) -> None:
    async def check(endpoint: Endpoint) -> None:
        answer = await get(endpoint, path)
        kept = b"max-age=60" if path == "/page" else b"no-store"
        assert b"\r\ncache-control: " + kept + b"\r\n" in answer
        assert b"\r\nx-content-type-options: nosniff\r\n" in answer
        assert b"hypercorn" not in answer

    serve_admin(check, EXTRA)


def test_a_head_request_is_answered_with_the_head_alone() -> None:
    async def check(endpoint: Endpoint) -> None:
        answer = await get(endpoint, COUNT, method="HEAD")
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"content-length: 13\r\n" in answer
        assert answer.endswith(b"\r\n\r\n")
        answer = await get(endpoint, "/delay/cancel", method="HEAD")
        assert answer.startswith(b"HTTP/1.1 405")
        assert b"\r\nallow: POST\r\n" in answer

    serve_admin(check, EXTRA)


def test_a_route_of_another_package_takes_none_of_ours() -> None:
    async def check(endpoint: Endpoint) -> None:
        assert await endpoint.get(COUNT) == (200, {"count": 5})
        assert b"a page" in await get(endpoint, "/page")

    serve_admin(check, EXTRA)


@pytest.mark.parametrize(
    ("path", "accept", "status", "kind", "said"),
    [
        ("/page/refused", BROWSER, 409, b"text/html", b"not &lt;now&gt;"),
        ("/page/refused", "*/*", 409, b"application/json", b"not <now>"),
        ("/page/slip", BROWSER, 500, b"text/html", b"ZeroDivisionError"),
        ("/page/slip", "*/*", 500, b"application/json", b"ZeroDivisionError"),
        ("/page/nothing", BROWSER, 404, b"text/html", b"there is no /page/nothing"),
        ("/nothing", "*/*", 404, b"application/json", b"GET /delay/count"),
        ("/delay/nothing", BROWSER, 404, b"application/json", b"GET /metrics"),
        ("/delay/count/", BROWSER, 404, b"application/json", b"there is no /delay/count/"),
        ("/delay/cancel", BROWSER, 405, b"application/json", b"takes POST, not GET"),
        (COUNT + "?topic=a", BROWSER, 400, b"application/json", b"unknown argument 'topic'"),
        ("/%3Cscript%3E", BROWSER, 404, b"text/html", b"/&lt;script&gt;"),
    ],
)
def test_an_error_is_json_for_programs_and_a_page_for_browsers(
    path: str, accept: str, status: int, kind: bytes, said: bytes
) -> None:
    async def check(endpoint: Endpoint) -> None:
        answer = await get(endpoint, path, accept)
        assert answer.startswith(b"HTTP/1.1 %d" % status)
        assert b"\r\ncontent-type: " + kind in answer
        assert said in answer

    serve_admin(check, EXTRA)


@pytest.mark.parametrize("path", ["/page/refused", "/page/slip", "/page/nothing", "/%3Cscript%3E"])
def test_an_error_page_loads_and_runs_nothing_and_is_not_framed(path: str) -> None:
    async def check(endpoint: Endpoint) -> None:
        answer = (await get(endpoint, path, BROWSER)).lower()
        (policy,) = re.findall(rb"\r\ncontent-security-policy: ([^\r]*)", answer)
        assert b"default-src 'none'" in policy
        assert b"frame-ancestors 'none'" in policy
        assert b"\r\nx-content-type-options: nosniff" in answer

    serve_admin(check, EXTRA)


def test_a_mistake_in_a_page_is_one_entry_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def check(endpoint: Endpoint) -> None:
        await get(endpoint, "/page/slip")
        assert "GET /page/slip failed" in caplog.text
        assert len(caplog.records) == 1

    serve_admin(check, EXTRA)


def test_requests_are_not_logged(caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    caplog.set_level("DEBUG")

    async def check(endpoint: Endpoint) -> None:
        for path in (COUNT, "/nothing", "/page"):
            await get(endpoint, path)

    serve_admin(check, EXTRA)
    assert caplog.records == []
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize("host", ["broker.example", "Broker.Example:9093", "10.0.0.1:9093"])
def test_a_broker_that_others_reach_is_answered_under_its_names_only(host: str) -> None:
    async def check(endpoint: Endpoint) -> None:
        assert (await endpoint.request(b"GET", COUNT, host=host))[0] == 200
        assert (await endpoint.request(b"GET", COUNT, host="localhost"))[0] == 200
        for other in ("evil.example", "10.0.0.2:9093", "broker.example.evil.example"):
            status, answer = await endpoint.request(b"GET", COUNT, host=other)
            assert (status, answer["error"]) == (403, "FORBIDDEN")
            assert "broker.example, 10.0.0.1" in answer["message"]

    serve_admin(check, admin_hosts=("broker.example", "10.0.0.1"))


def test_a_page_of_another_package_is_for_loopback_too() -> None:
    async def check(endpoint: Endpoint) -> None:
        status, answer = await endpoint.request(b"GET", "/page", host="evil.example")
        assert (status, answer["error"]) == (403, "FORBIDDEN")

    serve_admin(check, EXTRA)


@pytest.mark.parametrize(("ok", "status"), [(True, 200), (False, 503)])
def test_a_monitor_learns_from_the_status_alone_whether_the_broker_is_well(
    ok: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(ok=ok, payload=lambda: {"status": "as it is"})
    monkeypatch.setattr(health, "live", lambda _broker: found)
    monkeypatch.setattr(health, "ready", lambda _broker: found)

    async def check(endpoint: Endpoint) -> None:
        for path in ("/health/live", "/health/ready", "/health/ready?from=a-monitor"):
            assert await endpoint.get(path) == (status, {"status": "as it is"})

    serve_admin(check)
