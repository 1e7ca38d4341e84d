"""A connection is ended at every place where it can wait; nothing hangs, leaks or is half done.

Each `wait_…` below brings a connection to one kind of wait. It is then ended in three ways: by `abort` (a
watch or a failed send does that), by the client's going away, and by the whole broker's being cancelled.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.core.errors import StorageError
from kumquat.gateway.net.tests.test_connection import alive, fetch
from kumquat.gateway.tests.harness import Client, Served, create_topic, produce, serve
from kumquat.gateway.wire import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.logs.messages.writer import Appended
    from kumquat.core.records.look import Look

    Wait = Callable[[Served, Client], Awaitable[None]]

UNSYNCED = 150_000


async def wait_for_a_request(served: Served, client: Client) -> None:
    await client.call(ApiVersionsRequest(), 0)


async def wait_within_a_frame(served: Served, client: Client) -> None:
    await client.stream.send_all(client.frame(produce("t", b"a"), 9)[:20])


async def wait_for_data(served: Served, client: Client) -> None:
    await client.send((fetch("t", 0, max_wait_ms=10_000), 11))


async def wait_for_a_sync(served: Served, client: Client) -> None:
    served.files.hold_syncs()
    await client.send((produce("t", b"a"), 9))


async def wait_for_answers_after_the_end(served: Served, client: Client) -> None:
    await wait_for_a_sync(served, client)
    await client.stream.send_eof()


async def wait_for_the_client_to_read(served: Served, client: Client) -> None:
    await client.call(produce("t", bytes(400_000)), 9)
    await client.send(*[(fetch("t", 0), 11)] * 50)


async def wait_for_the_disk_to_catch_up(served: Served, client: Client) -> None:
    served.files.hold_syncs()
    for _ in range(3):
        await client.send((produce("t", bytes(100_000), acks=1), 9))
        await served.settled()


class SlowDelay:
    async def produce(self, subject: Subject, data: memoryview, look: Look) -> Appended:
        await trio.sleep(10)
        raise StorageError("the disk is slow, and then full")


async def wait_for_a_batch_to_be_opened(served: Served, client: Client) -> None:
    served.broker.delay = SlowDelay()  # type: ignore[assignment]
    await client.send((produce("t", b"qmq-delay-ms"), 9))


WAITS = [
    wait_for_a_request,
    wait_within_a_frame,
    wait_for_data,
    wait_for_a_sync,
    wait_for_answers_after_the_end,
    wait_for_the_client_to_read,
    wait_for_the_disk_to_catch_up,
    wait_for_a_batch_to_be_opened,
]


@pytest.mark.parametrize("wait", WAITS)
def test_an_aborted_connection_is_gone_and_the_broker_goes_on(tmp_path: Path, wait: Wait) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await wait(served, client)
            await served.settled()
            (connection,) = served.acceptor.connections
            connection.abort("the test says so")
            await served.settled()
            assert not served.acceptor.connections
        await goes_on(served)

    serve(check, tmp_path, log_unsynced_max_bytes=UNSYNCED)


@pytest.mark.parametrize("wait", WAITS)
def test_a_client_that_goes_away_leaves_nothing_behind(tmp_path: Path, wait: Wait) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await wait(served, client)
            await served.settled()
            linger = struct.pack("ii", 1, 0)  # the connection is reset, not closed
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        served.files.release_syncs()
        await served.settled()
        served.clock.jump(20)
        await served.settled()
        assert not served.acceptor.connections
        await goes_on(served)

    serve(check, tmp_path, log_unsynced_max_bytes=UNSYNCED)


@pytest.mark.parametrize("wait", WAITS)
def test_a_broker_that_is_cancelled_ends(tmp_path: Path, wait: Wait) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await wait(served, client)
            await served.settled()

    serve(check, tmp_path, log_unsynced_max_bytes=UNSYNCED)


def test_a_creation_that_has_begun_is_finished_though_its_connection_is_aborted(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            served.files.hold_syncs()
            await client.send((create_topic("t"), 7))
            await served.settled()
            (connection,) = served.acceptor.connections
            connection.abort("the test says so")
            await served.settled()
            assert served.acceptor.connections, "it waits for the creation"
            served.files.release_syncs()
            while not await client.closed():
                pass  # the answer may still leave
        subject = served.broker.log.subjects.by_name["t"]
        await served.broker.subjects.alter(subject, {"retention.ms": "1000"})
        assert served.broker.registry.configs(subject.id) == {"retention.ms": "1000"}

    serve(check, tmp_path)


async def goes_on(served: Served) -> None:
    """All that was held is released, and the broker serves a new client."""
    served.files.release_syncs()
    await served.settled()
    async with served.client() as client:
        assert await alive(client)
        answer = await client.call(produce("t", b"later"), 9)
        partition = answer.responses[0].partition_responses[0]
        assert partition.error_code == 0
        fetched = await client.call(fetch("t", partition.base_offset), 11)
        assert fetched.responses[0].partitions[0].records
