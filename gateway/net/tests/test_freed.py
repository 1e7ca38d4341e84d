"""What a connection holds is free when it ends, without the garbage collector: that is rare
(process/garbage.py), and a request may have a hundred megabytes.

Each way into a wait, or into an error, is tried with each way in which a connection can end. The collector
is off meanwhile (gateway/tests/collector.py).
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.net.answers import Answers
from kumquat.gateway.net.burst import BurstHandler
from kumquat.gateway.net.connection import Connection
from kumquat.gateway.net.dispatch import Session
from kumquat.gateway.net.receive import ReceiveBuffer
from kumquat.gateway.net.tests.test_cancellation import WAITS
from kumquat.gateway.net.tests.test_connection import alive, fetch
from kumquat.gateway.tests.collector import nothing_for_the_collector
from kumquat.gateway.tests.harness import IO_ERROR, NO_SPACE, Client, Served, produce, serve
from kumquat.gateway.wire import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Way = Callable[[Served, Client], Awaitable[None]]

HOLDERS = (Answers, BurstHandler, Connection, ReceiveBuffer, Session)
LARGE = 100_000


async def wait_within_a_large_frame(served: Served, client: Client) -> None:
    await client.stream.send_all(client.frame(produce("t", bytes(LARGE)), 9)[:-1000])


async def wait_for_more_than_there_is(served: Served, client: Client) -> None:
    await client.call(produce("t", bytes(LARGE)), 9)
    await client.send((fetch("t", 0, max_wait_ms=10_000, min_bytes=10 * LARGE), 11))


def join(group: str) -> JoinGroupRequest:
    """To a group that its clients lead."""
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol(name="own", metadata=bytes(LARGE))],
    )


async def wait_for_other_members(served: Served, client: Client) -> None:
    """The second member waits until the first joins again."""
    group = f"group of {client.stream.socket.getsockname()}"
    await client.send((join(group), 3))
    await served.settled()
    served.clock.jump(4)  # group.initial.rebalance.delay.ms
    await client.receive()
    await client.send((join(group), 3))


async def fail_to_decode_a_large_request(served: Served, client: Client) -> None:
    frame = bytearray(client.frame(join("g"), 3))
    frame[-LARGE - 4 : -LARGE] = struct.pack(">i", LARGE + 1)  # longer than what follows
    await client.stream.send_all(frame)


async def fail_to_write(served: Served, client: Client) -> None:
    served.files.write_error = NO_SPACE
    await client.call(produce("t", bytes(LARGE)), 9)
    served.files.write_error = None


async def fail_to_write_before_a_batch_is_opened(served: Served, client: Client) -> None:
    served.files.write_error = NO_SPACE
    await client.send((produce("t", bytes(LARGE)), 9), (produce("t", b"qmq-delay-ms"), 9))
    await client.receive()
    await client.receive()
    served.files.write_error = None


async def fail_to_sync(served: Served, client: Client) -> None:
    """The log is fenced: all that follows is refused."""
    served.files.sync_error = IO_ERROR
    for _ in range(3):
        await client.call(produce("t", bytes(LARGE)), 9)


async def fail_to_read(served: Served, client: Client) -> None:
    for _ in range(8):  # the tail holds the last of them only
        await client.call(produce("t", bytes(LARGE)), 9)
    served.files.read_trouble = {"open": IO_ERROR, "preadv_into": IO_ERROR}
    end = served.broker.log.subjects.by_name["t"].next_sequence
    partitions = [
        FetchPartition(partition=0, fetch_offset=o, partition_max_bytes=1 << 20)
        for o in (end - 1, 0)
    ]
    topics = [FetchTopic(topic="t", partitions=[each]) for each in partitions]
    answer = await client.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 11)
    codes = [each.partitions[0].error_code for each in answer.responses]
    assert codes[0] == 0
    assert codes[1] != 0
    served.files.read_trouble = {}


WAYS: list[Way] = [
    *WAITS,
    wait_within_a_large_frame,
    wait_for_more_than_there_is,
    wait_for_other_members,
    fail_to_decode_a_large_request,
    fail_to_write,
    fail_to_write_before_a_batch_is_opened,
    fail_to_sync,
    fail_to_read,
]


async def closed(served: Served, client: Client) -> None:
    await client.stream.aclose()


async def half_closed(served: Served, client: Client) -> None:
    await client.stream.send_eof()


async def reset(served: Served, client: Client) -> None:
    linger = struct.pack("ii", 1, 0)
    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    await client.stream.aclose()


async def aborted(served: Served, client: Client) -> None:
    for connection in served.acceptor.connections:
        connection.abort("the test says so")


ENDS: list[Way] = [closed, half_closed, reset, aborted]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_connection_holds_is_free_when_it_ends(tmp_path: Path, way: Way) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            assert await alive(client)
        await served.settled()
        with nothing_for_the_collector(*HOLDERS):
            for end in ENDS:
                async with served.client() as client:
                    await way(served, client)
                    await served.settled()
                    await end(served, client)
                    await served.settled()
                    served.files.release_syncs()
                    served.clock.jump(20)
                    await served.settled()
                await served.settled()
                served.clock.jump(20)
                await served.settled()
                assert not served.acceptor.connections

    serve(check, tmp_path, log_unsynced_max_bytes=150_000, log_tail_bytes=LARGE)
