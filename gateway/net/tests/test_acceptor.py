"""Listeners: limits on connections, idle clients, slow senders, exhausted descriptors, the stop."""

from __future__ import annotations

import os
import resource
import socket
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.core.errors import StartError
from kumquat.gateway.config.options import Listener
from kumquat.gateway.net.acceptor import bind
from kumquat.gateway.net.tests.test_connection import alive, fetch
from kumquat.gateway.net.timeouts import MIN_BYTES_PER_SECOND
from kumquat.gateway.tests.harness import Client, Served, produce, serve
from kumquat.gateway.wire import ApiVersionsRequest

if TYPE_CHECKING:
    from pathlib import Path


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def test_a_port_that_is_in_use_is_named_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"127\.0\.0\.1:{port}.*in use"):
            bind([Listener("127.0.0.1", port)])


def test_an_address_that_is_not_ours_is_named_and_the_other_socket_is_closed() -> None:
    with pytest.raises(StartError, match=r"192\.0\.2\.1"):
        bind([Listener("127.0.0.1", 0), Listener("192.0.2.1", 9)])


def test_a_connection_beyond_the_limit_is_closed_and_a_freed_place_is_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as first:
            async with served.client() as second:
                assert await alive(first)
                assert await alive(second)
                async with served.client() as third, served.client() as fourth:
                    assert await third.closed()
                    assert await fourth.closed()
                assert await alive(first)
            await served.settled()
            async with served.client() as third:
                assert await alive(third)
        (line,) = warnings(caplog)
        assert "max.connections=2 reached" in line

    serve(check, tmp_path, max_connections=2)


def test_one_address_cannot_take_all_connections(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as first, served.client() as second:
            assert await alive(first)
            assert await second.closed()
            stream = await trio.open_tcp_stream("127.0.0.1", served.port, local_address="127.0.0.2")
            async with stream:
                assert await alive(Client(stream, "elsewhere"))
        (line,) = warnings(caplog)
        assert "max.connections.per.ip=1 reached by 127.0.0.1" in line

    serve(check, tmp_path, max_connections_per_ip=1)


def test_an_idle_connection_is_closed_and_one_that_is_served_is_not(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as idle, served.client() as busy, served.client() as waiting:
            assert await alive(idle)
            await waiting.send((fetch("t", 0, max_wait_ms=2**31 - 1), 11))
            for _ in range(4):
                served.clock.jump(4)
                await served.settled()
                assert await alive(busy)
            assert await idle.closed()
            assert await alive(busy)
            # No wait is longer than the limit: a client that has gone would not be noticed.
            answer = await waiting.receive()
            assert answer.responses[0].partitions[0].records == b""
            assert await alive(waiting)

    serve(check, tmp_path, connections_max_idle_ms=10_000)


def test_a_client_that_does_not_take_its_answers_is_closed_in_time(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await client.call(produce("t", bytes(400_000)), 9)
            await client.send(*[(fetch("t", 0), 11)] * 50)
            await served.settled()
            (connection,) = served.acceptor.connections
            assert connection.unsent
            for _ in range(4):
                served.clock.jump(4)
                await served.settled()
            assert not served.acceptor.connections

    serve(check, tmp_path, connections_max_idle_ms=10_000)


def test_no_idle_limit_means_none(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            assert await alive(client)
            served.clock.jump(10_000_000)
            await served.settled()
            assert await alive(client)

    serve(check, tmp_path, connections_max_idle_ms=-1)


def test_a_client_that_sends_one_byte_a_second_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            frame = client.frame(ApiVersionsRequest("name", "1"), 3)
            sent = 0
            await served.settled()
            while served.acceptor.connections:
                await client.stream.send_all(frame[sent : sent + 1])
                sent += 1
                await served.settled()
                served.clock.jump(1)
                await served.settled()
            assert 10 <= sent < 14
            assert await client.closed()
        (line,) = warnings(caplog)
        assert "bytes of a frame came in" in line

    serve(check, tmp_path, socket_request_receive_timeout_ms=10_000)


def test_a_slow_line_that_keeps_up_a_pace_is_served(tmp_path: Path) -> None:
    size = 40 * MIN_BYTES_PER_SECOND

    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            frame = client.frame(produce("t", bytes(size)), 9)
            for start in range(0, len(frame), MIN_BYTES_PER_SECOND):
                await client.stream.send_all(frame[start : start + MIN_BYTES_PER_SECOND])
                await served.settled()
                served.clock.jump(1)
            answer = await client.receive()
            assert answer.responses[0].partition_responses[0].error_code == 0

    serve(check, tmp_path, socket_request_receive_timeout_ms=10_000)


def test_a_client_that_sent_while_the_whole_broker_stood_still_is_not_idle(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            for _ in range(12):  # Trio turns the order of tasks round at random
                await served.settled()
                os.write(client.stream.socket.fileno(), client.frame(ApiVersionsRequest(), 0))
                served.clock.jump(60)
                await client.receive()

    serve(check, tmp_path, connections_max_idle_ms=10_000)


def test_a_broker_that_stands_still_again_and_again_still_closes_idle_connections(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            assert await alive(client)
            for _ in range(4):
                served.clock.jump(4)
                await served.settled()
            assert not served.acceptor.connections

    serve(check, tmp_path, connections_max_idle_ms=10_000)


def test_a_thousand_idle_connections_are_cheap_and_slow_nobody_down(tmp_path: Path) -> None:
    count = 1000

    async def check(served: Served) -> None:
        tracemalloc.start()
        try:
            streams = []
            for _ in range(count):
                streams.append(await trio.open_tcp_stream("127.0.0.1", served.port))
                if len(streams) == 1:
                    await served.settled()
                    before = tracemalloc.get_traced_memory()[0]
            await served.settled()
            assert len(served.acceptor.connections) == count
            # Both ends of each connection are in this process.
            assert (tracemalloc.get_traced_memory()[0] - before) / count < 16_000
        finally:
            tracemalloc.stop()
        served.clock.jump(5)
        await served.settled()
        assert await alive(Client(streams[500], "one of many"))
        for stream in streams:
            await stream.aclose()
        await served.settled()
        assert not served.acceptor.connections

    serve(check, tmp_path)


def test_running_out_of_descriptors_is_told_and_does_not_stop_the_listener(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        sock = trio.socket.socket()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, hard))
        try:
            # Descriptors below the limit that are free are taken first.
            taken = []
            with suppress(OSError):
                while True:
                    taken.append(socket.socket())
            await sock.connect(("127.0.0.1", served.port))
            await served.settled()
            assert not served.acceptor.connections
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for other in taken:
                other.close()
        served.clock.jump(1)
        client = Client(trio.SocketStream(sock), "patient")
        assert await alive(client)
        await client.stream.aclose()
        (line,) = warnings(caplog)
        assert "cannot accept connections: Too many open files" in line

    serve(check, tmp_path)


def test_a_stop_answers_what_was_read_and_refuses_what_comes_later(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as producer, served.client() as idle:
            assert await alive(idle)
            served.files.hold_syncs()
            await producer.send((produce("t", b"a"), 9), (produce("t", b"b"), 9))
            await served.settled()
            served.acceptor.stop()
            assert await idle.closed()
            with pytest.raises(OSError, match=r"127\.0\.0\.1"):
                await trio.open_tcp_stream("127.0.0.1", served.port)
            served.files.release_syncs()
            for offset in range(2):
                (topic,) = (await producer.receive()).responses
                assert topic.partition_responses[0].base_offset == offset
            assert await producer.closed()

    serve(check, tmp_path)


def test_a_stop_does_not_wait_for_a_client_longer_than_the_grace_period(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            served.files.hold_syncs()
            await client.send((produce("t", b"a"), 9))
            await served.settled()
            served.acceptor.stop()
            await served.settled()
            assert served.acceptor.connections
            served.clock.jump(3)
            await served.settled()
            assert not served.acceptor.connections
            assert await client.closed()
        assert "did not end in time" in warnings(caplog)[0]

    serve(check, tmp_path, shutdown_grace_ms=2000)
