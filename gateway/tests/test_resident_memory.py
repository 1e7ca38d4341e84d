"""How much memory a real broker has when connections have ended, one test for each way to end.

The broker is a process of its own without garbage collection, so that each reference cycle counts. A test
does the same thing twice. The first time fills what is kept for later: pools of buffers, threads, what the
allocator keeps. The second time must cost next to nothing: what it held meanwhile was several times BOUND.

What other ways into a wait or an error leave behind is in net/tests/test_freed.py, which counts objects.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.testing.broker import TestBroker
from kumquat.gateway.tests.harness import create_topic, produce
from kumquat.gateway.wire import (
    RESPONSES,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from kumquat.gateway.wire.frame import response_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Way = Callable[["Uncollected"], None]

MIB = 1 << 20
BOUND = 12 * MIB
SMALL, LARGE = 1_000_000, 8_000_000
STORED = 6
"""Messages of SMALL bytes that there are to fetch."""
RESET = struct.pack("ii", 1, 0)
WITHOUT_COLLECTOR = (
    "import gc, runpy, sys; gc.disable(); del sys.argv[0]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


class Uncollected(TestBroker):
    """A broker in whose process the garbage collector never runs."""

    def _command(self) -> list[str]:
        python, *rest = super()._command()
        return [python, "-P", "-c", WITHOUT_COLLECTOR, *rest[1:]]

    @property
    def resident(self) -> int:
        with open(f"/proc/{self.pid}/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def connections(self) -> int:
        with urllib.request.urlopen(f"{self.admin}/metrics") as answer:
            found = re.search(r"^kumquat_connections (\d+)", answer.read().decode(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def connect(self) -> Client:
        return Client(self.port)


class Client:
    """One connection, by hand, that blocks."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)

    def send(self, request: Any, version: int, *, missing: int = 0) -> None:
        """Send a request, but for its last bytes."""
        head = struct.pack(">hhih", request.api_key, version, 1, -1)
        tags = b"\0" if request.is_flexible(version) else b""
        rest = head + tags + b"".join(type(request).encode(request, version))
        frame = struct.pack(">i", len(rest)) + rest
        self.socket.sendall(memoryview(frame)[: len(frame) - missing])

    def call(self, request: Any, version: int) -> Any:
        self.send(request, version)
        with self.socket.makefile("rb") as file:
            data = file.read(struct.unpack(">i", file.read(4))[0])
        skipped = len(response_header(request.api_key, version, 1))
        return RESPONSES[request.api_key].decode(data, version, skipped)[0]

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uncollected]:
    folder = tmp_path_factory.mktemp("resident")
    options: dict[str, object] = {
        "log_tail_bytes": 1,
        "message_max_bytes": 2 * LARGE,
        "group_initial_rebalance_delay_ms": 0,
    }
    broker = Uncollected(folder, folder / "data", options, 0)
    broker.start()
    try:
        with closing(broker.connect()) as client:
            client.call(create_topic("t"), 5)
            for _ in range(STORED):
                answer = client.call(produce("t", bytes(SMALL)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
        yield broker
    finally:
        broker.kill()


def fetch(*, at_least: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=LARGE)
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=at_least,
        max_bytes=LARGE,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )


def join(group: str) -> JoinGroupRequest:
    """To a group that its clients lead."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol(name="own", metadata=bytes(SMALL))],
    )


def closed_within_a_produce(broker: Uncollected) -> None:
    for _ in range(6):
        client = broker.connect()
        client.send(produce("t", bytes(LARGE)), 9, missing=100)
        client.close()


def reset_within_a_produce(broker: Uncollected) -> None:
    for _ in range(6):
        client = broker.connect()
        client.send(produce("t", bytes(LARGE)), 9, missing=100)
        client.reset()


def half_closed_within_a_produce(broker: Uncollected) -> None:
    clients = [broker.connect() for _ in range(6)]
    for client in clients:
        client.send(produce("t", bytes(LARGE)), 9, missing=100)
        client.socket.shutdown(socket.SHUT_WR)
    for client in clients:
        assert client.socket.recv(1) == b""
        client.close()


def many_closed_within_a_produce(broker: Uncollected) -> None:
    clients = [broker.connect() for _ in range(50)]
    for client in clients:
        client.send(produce("t", bytes(SMALL)), 9, missing=100)
    for client in clients:
        client.close()


def answered_with_an_error_and_closed(broker: Uncollected) -> None:
    """A Produce whose batch is damaged, and then what is no request."""
    for _ in range(6):
        client = broker.connect()
        answer = client.call(produce("t", records=bytes(LARGE)), 9)
        assert answer.responses[0].partition_responses[0].error_code
        client.socket.sendall(b"\xff" * 8)
        assert client.socket.recv(1) == b""
        client.close()


def closed_for_a_request_that_cannot_be_decoded(broker: Uncollected) -> None:
    for _ in range(48):
        client = broker.connect()
        request = join("g")
        request.protocols.append(JoinGroupRequestProtocol(name="other", metadata=b""))
        head = struct.pack(">hhih", request.api_key, 3, 1, -1)
        body = b"".join(type(request).encode(request, 3))
        client.socket.sendall(struct.pack(">i", len(head + body) - 1) + head + body[:-1])
        assert client.socket.recv(1) == b""
        client.close()


def reset_with_answers_untaken(broker: Uncollected) -> None:
    clients = [broker.connect() for _ in range(12)]
    for client in clients:
        client.send(fetch(at_least=1), 11)
        assert client.socket.recv(4)
    for client in clients:
        client.reset()


def closed_in_a_long_poll(broker: Uncollected) -> None:
    """Each has read what there is and waits for more."""
    clients = [broker.connect() for _ in range(12)]
    for client in clients:
        client.send(fetch(at_least=2 * LARGE), 11)
    for client in clients:
        client.close()


def http(broker: Uncollected, text: bytes) -> socket.socket:
    host, _, port = broker.admin.removeprefix("http://").rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=60)
    sock.sendall(text)
    return sock


def closed_within_a_body(broker: Uncollected) -> None:
    head = b"POST /delay/cancel HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 60000\r\n\r\n"
    for _ in range(400):
        http(broker, head + bytes(59_000)).close()


def closed_with_an_http_answer_untaken(broker: Uncollected) -> None:
    target = f"/messages?subject=t&offset=0&limit={STORED}&value_bytes={SMALL}"
    host = broker.admin.removeprefix("http://")
    for _ in range(8):
        sock = http(broker, f"GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
        assert sock.recv(8) == b"HTTP/1.1"
        sock.close()


WAYS: list[Way] = [
    closed_within_a_produce,
    reset_within_a_produce,
    half_closed_within_a_produce,
    many_closed_within_a_produce,
    answered_with_an_error_and_closed,
    closed_for_a_request_that_cannot_be_decoded,
    reset_with_answers_untaken,
    closed_in_a_long_poll,
    closed_within_a_body,
    closed_with_an_http_answer_untaken,
]


@pytest.mark.parametrize("way", WAYS)
def test_memory_is_given_back_when_connections_end(running: Uncollected, way: Way) -> None:
    way(running)
    while running.connections:
        pass
    before = running.resident
    way(running)
    while running.connections:
        pass
    grown = running.resident - before
    assert grown < BOUND, f"{grown / MIB:.0f} MB more than before"
