"""`kumquat delay …`: exit codes, and what people and programs get to see."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.gateway.admin.tests.endpoint import EPOCH, Endpoint, pending, serve_admin
from kumquat.gateway.cli.endpoint import VARIABLE
from kumquat.gateway.cli.main import main
from kumquat.gateway.cli.tables import table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Terminal:
    """Runs commands against one endpoint, in a thread as their own process would."""

    def __init__(self, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]) -> None:
        self.endpoint = endpoint
        self._capsys = capsys

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        command = ["delay", *arguments, "--admin", self.endpoint.url]
        code = await trio.to_thread.run_sync(main, command)
        out, err = self._capsys.readouterr()
        return code, out, err


@pytest.fixture
def at_terminal(
    capsys: pytest.CaptureFixture[str],
) -> Callable[[Callable[[Terminal], Awaitable[None]]], None]:
    def run(check: Callable[[Terminal], Awaitable[None]]) -> None:
        async def connected(endpoint: Endpoint) -> None:
            await check(Terminal(endpoint, capsys))

        serve_admin(connected)

    return run


if TYPE_CHECKING:
    AtTerminal = Callable[[Callable[[Terminal], Awaitable[None]]], None]


def test_a_list_is_a_table_and_says_how_to_go_on(at_terminal: AtTerminal) -> None:
    async def check(terminal: Terminal) -> None:
        code, out, err = await terminal.run("list", "--subject", "orders", "--limit", "2")
        assert (code, err) == (0, "")
        head, first, second, more = out.splitlines()
        assert head.split() == ["DUE", "SUBJECT", "ID", "KEY", "SIZE", "CREATED", "SCHEDULE-ID"]
        assert first.split()[:3] == ["2023-11-14T22:13:21.000Z", "orders", "-"]
        assert second.split()[2:5] == ["id-2", "key", "42"]
        assert head.index("SCHEDULE-ID") == second.index("200")
        cursor = more.removeprefix("There are more: --after ")
        code, out, _ = await terminal.run("list", "--limit", "3", "--after", cursor)
        assert (code, len(out.splitlines())) == (0, 4)
        code, out, _ = await terminal.run("list", "--subject", "other")
        assert (code, out) == (0, "Nothing is pending there.\n")

    at_terminal(check)


def test_a_key_cannot_write_to_the_terminal(at_terminal: AtTerminal) -> None:
    async def check(terminal: Terminal) -> None:
        terminal.endpoint.delay.items = [pending(1, b"\x1b[2J\r\n" + b"x" * 100)]
        _, out, _ = await terminal.run("list")
        assert "\x1b" not in out
        assert len(out.splitlines()) == 2
        assert "x…" in out

    at_terminal(check)


def test_a_count_is_a_number(at_terminal: AtTerminal) -> None:
    async def check(terminal: Terminal) -> None:
        assert await terminal.run("count") == (0, "5\n", "")
        until = ("--from", str(EPOCH + 2000), "--to", "2023-11-14T22:13:24Z")
        assert await terminal.run("count", "--subject", "orders", *until) == (0, "2\n", "")

    at_terminal(check)


def test_what_was_asked_and_done_is_exit_code_0(at_terminal: AtTerminal) -> None:
    async def check(terminal: Terminal) -> None:
        subject = ("--subject", "orders")
        for command, status in (
            (["show", *subject, "--id", "id-2"], "pending"),
            (["show", *subject, "--id", "id-2", "--value"], "pending"),
            (["cancel", *subject, "--id", "id-2"], "cancelled"),
            (["cancel", *subject, "--schedule-id", "300"], "cancelled"),
            (["move", *subject, "--id", "id-4", "--due", "2030-01-01"], "moved"),
        ):
            code, out, err = await terminal.run(*command)
            assert (code, err) == (0, "")
            assert ("value" in out) == ("--value" in command)
            (line,) = [line for line in out.splitlines() if line.startswith("status")]
            assert line.split() == ["status", status]
        *_, due = terminal.endpoint.delay.calls[-1]
        assert due == 1_893_456_000_000

    at_terminal(check)


def test_what_could_not_be_done_is_exit_code_1(at_terminal: AtTerminal) -> None:
    async def check(terminal: Terminal) -> None:
        code, out, _ = await terminal.run("cancel", "--subject", "orders", "--id", "late")
        assert (code, "delivered" in out) == (1, True)
        code, out, _ = await terminal.run("show", "--subject", "orders", "--id", "nobody")
        assert (code, "unknown" in out) == (1, True)
        for wrong, said in (
            (["count", "--subject", "nowhere"], "there is no subject 'nowhere'"),
            (["count", "--from", "soon"], "from must be a time"),
            (["cancel", "--subject", "orders"], "give either id or schedule_id"),
        ):
            code, out, err = await terminal.run(*wrong)
            assert (code, out, err.count("\n")) == (1, "", 1)
            assert err.startswith("kumquat: ")
            assert said in err

    at_terminal(check)


def test_json_is_the_answer_of_the_endpoint(at_terminal: AtTerminal) -> None:
    async def check(terminal: Terminal) -> None:
        code, out, _ = await terminal.run("list", "--limit", "1", "--json")
        assert code == 0
        assert json.loads(out)["items"][0]["due"] == EPOCH + 1000
        code, out, err = await terminal.run("count", "--subject", "nowhere", "--json")
        assert (code, err) == (1, "")
        assert json.loads(out)["error"] == "UNKNOWN_TOPIC_OR_PARTITION"

    at_terminal(check)


def test_the_variable_of_the_broker_says_where_the_endpoint_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(endpoint: Endpoint) -> None:
        monkeypatch.setenv(VARIABLE, endpoint.url.replace("http", "HTTP"))
        assert await trio.to_thread.run_sync(main, ["delay", "count"]) == 0
        assert capsys.readouterr().out == "5\n"

    serve_admin(check)


@pytest.mark.parametrize(
    "answer", [b"", b"\0\0\0\x08nonsense", b"HTTP/1.1 200 OK\r\n\r\n<html>", None]
)
def test_an_endpoint_that_is_none_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], answer: bytes | None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer or b"")

        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        if answer is None:
            server.close()
            serving = None
        else:
            serving = threading.Thread(target=serve)
            serving.start()
        assert main(["delay", "count", "--admin", url]) == 2
        if serving is not None:
            serving.join()
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert url in err


@pytest.mark.parametrize(
    "url", ["127.0.0.1:9093", "https://localhost", "http://", "http://a:b", "x"]
)
def test_an_address_of_the_wrong_form_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert main(["delay", "count", "--admin", url]) == 2
    assert "is not of the form http://127.0.0.1:9093" in capsys.readouterr().err


def test_a_table_has_straight_columns() -> None:
    assert table([("A", "LONG"), ("abc", "x")]) == ["A    LONG", "abc  x"]
