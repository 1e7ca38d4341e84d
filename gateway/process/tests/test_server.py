"""The broker as a process: what it does about signals and about failures of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from kafka import KafkaProducer

from kumquat.core.logs.messages.service import MessageService
from kumquat.gateway.config.options import BrokerConfig, Listener
from kumquat.gateway.net.acceptor import BACKLOG
from kumquat.gateway.net.tests.test_connection import fetch
from kumquat.gateway.process.server import FAILED, run_broker
from kumquat.gateway.testing.broker import TestBroker
from kumquat.gateway.tests.harness import Client, produce
from kumquat.gateway.wire import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.wire import Message

DEADLINE = 120


class Raw:
    """A blocking connection."""

    def __init__(self, broker: TestBroker) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), timeout=DEADLINE)
        self._client = Client(None, "raw")  # type: ignore[arg-type]

    def send(self, request: Message, version: int) -> None:
        self.send_together((request, version))

    def send_together(self, *requests: tuple[Message, int]) -> None:
        """In one go, so that the broker reads them in one."""
        self.socket.sendall(b"".join(self._client.frame(*request) for request in requests))

    def receive(self) -> bytes:
        size = self.socket.recv(4, socket.MSG_WAITALL)
        return self.socket.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL) if size else b""


def test_a_stop_answers_a_fetch_that_would_wait_for_a_minute(kumquat: TestBroker) -> None:
    raw = Raw(kumquat)
    raw.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    assert raw.receive()
    raw.send_together(
        (MetadataRequest(topics=[]), 9),
        (fetch("t", 0, max_wait_ms=600_000), 11),
        (produce("t", b"too late"), 9),
    )
    assert raw.receive(), "all of it was read"
    assert kumquat.stop() == 0
    assert raw.receive(), "the Fetch is answered"
    raw.socket.close()


@pytest.mark.parametrize(
    "begin", [b"", b"GET /statistics HT", b"GET /statistics HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_a_stop_does_not_wait_for_clients_of_the_admin_endpoint(
    kumquat: TestBroker, begin: bytes
) -> None:
    port = int(kumquat.admin.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client:
        client.sendall(begin)
        if begin.endswith(b"\n"):
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert kumquat.stop() == 0
        assert client.recv(1 << 16) == b""


def test_monitors_find_the_broker_under_the_paths_that_they_are_used_to(
    kumquat: TestBroker,
) -> None:
    for path in ("/metrics", "/health/live", "/health/ready"):
        with urlopen(f"{kumquat.admin}{path}", timeout=DEADLINE) as answer:
            kind, text = answer.headers["content-type"], answer.read()
        if path == "/metrics":
            assert kind.startswith("text/plain; version=")
            assert b"\n# TYPE " in text
        else:
            assert json.loads(text)["status"]


@pytest.mark.kumquat(admin_listener="HTTP://0.0.0.0:0", admin_allow_remote=True)
def test_an_operator_is_told_that_other_machines_reach_the_admin_endpoint(
    kumquat: TestBroker,
) -> None:
    kumquat.wait_for_log("which has no authentication")
    url = kumquat.admin.replace("0.0.0.0", "127.0.0.1")
    with urlopen(f"{url}/statistics", timeout=DEADLINE) as answer:
        assert answer.status == 200


def test_what_was_acked_before_a_stop_is_there_after_it(kumquat: TestBroker) -> None:
    raw = Raw(kumquat)
    raw.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    raw.receive()
    for number in range(100):
        raw.send(produce("t", b"%d" % number, acks=1), 9)
    for _ in range(100):
        assert raw.receive()
    raw.socket.close()
    assert kumquat.stop() == 0
    kumquat.start()
    raw = Raw(kumquat)
    raw.send(fetch("t", 0), 11)
    assert raw.receive().count(b"\x02") > 100
    raw.socket.close()


@pytest.mark.kumquat(shutdown_grace_ms=60_000)
def test_a_start_does_not_say_what_it_found_where(kumquat: TestBroker) -> None:
    with closing(KafkaProducer(bootstrap_servers=kumquat.bootstrap)) as producer:
        producer.send("orders", b"now").get(60)
        producer.send("orders", b"later", headers=[("qmq-delay-ms", b"3600000")]).get(60)
    kumquat.kill()
    kumquat.start()
    line = kumquat.log_text().splitlines()[-1]
    assert f" ready on {kumquat.bootstrap}; {kumquat.directory} opened in " in line
    assert re.search(r" s: 2 subjects, \d+ bytes in 1 segment, 0 groups, 1 message for later", line)


def test_a_second_signal_does_not_wait_for_clients(kumquat: TestBroker) -> None:
    raw = Raw(kumquat)
    raw.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    raw.receive()
    raw.send(produce("t", bytes(900_000)), 9)
    raw.receive()
    # Answers that nobody reads keep the connection busy.
    raw.send_together(*[(fetch("t", 0), 11)] * 60)
    assert raw.socket.recv(1, socket.MSG_PEEK), "the broker has begun to answer"
    os.kill(kumquat.pid, signal.SIGTERM)
    kumquat.wait_for_log("SIGTERM: stopping")
    os.kill(kumquat.pid, signal.SIGTERM)
    assert kumquat.wait() == 0
    assert "stopping at once" in kumquat.log_text()
    raw.socket.close()


def test_a_log_that_fails_ends_the_broker_with_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(self: MessageService, task_status: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(MessageService, "run", broken)
    config = BrokerConfig(listeners=(Listener("127.0.0.1", 0),), log_dirs=tmp_path)
    assert run_broker(config) == FAILED
    assert "the broker failed" in caplog.text
    assert "a bug" in caplog.text


def test_connections_that_come_all_at_once_are_all_accepted(kumquat: TestBroker) -> None:
    count = min(200, BACKLOG)
    raws = [Raw(kumquat) for _ in range(count)]
    for raw in raws:
        raw.send(MetadataRequest(topics=[]), 9)
    for raw in raws:
        assert raw.receive()
        raw.socket.close()
