"""A probe that gets no answer, or the wrong one, while a broker recovers its log."""

from __future__ import annotations

import json
import socket
import threading
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.admin.listener import bind_admin
from kumquat.gateway.broker import Broker
from kumquat.gateway.config.kinds import AdminListener
from kumquat.gateway.config.options import BrokerConfig, Listener
from kumquat.gateway.process.server import run_broker
from kumquat.gateway.process.starting import answering

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE = 60.0


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with bind_admin(AdminListener("127.0.0.1", 0)) as sock:
        yield sock


def get(sock: socket.socket, path: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", sock.getsockname()[1], timeout=DEADLINE)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, json.load(answer)
    connection.close()
    return found


def test_a_broker_is_killed_or_used_while_it_starts(bound: socket.socket) -> None:
    with answering(bound):
        status, payload = get(bound, "/health/ready")
        assert (status, payload["ok"], payload["checks"][0]["name"]) == (503, False, "started")
        status, payload = get(bound, "/health/live")
        assert (status, payload["ok"]) == (200, True)
        status, payload = get(bound, "/metrics")
        assert (status, payload["error"]) == (503, "STARTING")


def test_a_client_that_says_nothing_holds_up_the_others(bound: socket.socket) -> None:
    with answering(bound), socket.create_connection(bound.getsockname()) as silent:
        assert get(bound, "/health/live")[0] == 200
        assert silent.recv(1) == b"", "it is given up"


def test_a_client_that_sends_byte_by_byte_holds_up_the_start(bound: socket.socket) -> None:
    over, endured = threading.Event(), []

    def trickle(client: socket.socket) -> None:
        client.sendall(b"GET /health/live")
        try:
            for _ in range(300):
                if over.wait(0.1):
                    return
                client.sendall(b"e")
        except OSError:
            return  # it was given up
        endured.append("30 seconds")

    with answering(bound):
        slow = socket.create_connection(bound.getsockname())
        thread = threading.Thread(target=trickle, args=(slow,))
        thread.start()
        assert get(bound, "/health/live")[0] == 200, "the others wait for it"
    over.set()
    thread.join()
    slow.close()
    assert not endured


@pytest.mark.parametrize("said", [b"\0" * 100, b"\n\n", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n"])
def test_garbage_ends_the_thread_that_answers(bound: socket.socket, said: bytes) -> None:
    with answering(bound):
        with socket.create_connection(bound.getsockname()) as client:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            client.recv(1)
        assert get(bound, "/health/live")[0] == 200


def test_who_comes_between_the_two_is_refused(bound: socket.socket) -> None:
    with answering(bound):
        pass
    with socket.create_connection(bound.getsockname()) as client:
        bound.setblocking(True)
        taken, _ = bound.accept()
        with taken:
            taken.sendall(b"x")
            assert client.recv(1) == b"x"


def test_the_thread_outlives_the_start(bound: socket.socket) -> None:
    before = threading.active_count()
    with answering(bound):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    with answering(None):
        assert threading.active_count() == before


def test_nobody_answers_while_the_log_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, Any]] = []

    class Stop(Exception):
        pass

    def recover(config: BrokerConfig) -> Broker:
        asked.append(get(bound_here[0], "/health/ready"))
        raise Stop

    def bind(listener: AdminListener, *, allow_remote: bool) -> socket.socket:
        assert not allow_remote
        bound_here.append(bind_admin(listener))
        return bound_here[0]

    bound_here: list[socket.socket] = []
    monkeypatch.setattr(Broker, "open", recover)
    monkeypatch.setattr("kumquat.gateway.process.server.bind_admin", bind)
    config = BrokerConfig(
        listeners=(Listener("127.0.0.1", 0),),
        admin_listener=AdminListener("127.0.0.1", 0),
        log_dirs=tmp_path / "data",
    )
    with pytest.raises(Stop):
        run_broker(config)
    assert [status for status, _ in asked] == [503]
