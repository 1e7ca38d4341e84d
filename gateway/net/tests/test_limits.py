"""One client must not stop the others: sizes of requests, memory over all connections, who gives it up."""

from __future__ import annotations

import struct
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.gateway.net.limits import (
    FREE,
    MIB,
    PRESSED_SECONDS,
    Account,
    Room,
    largest_request,
)
from kumquat.gateway.net.tests.test_acceptor import warnings
from kumquat.gateway.net.tests.test_connection import alive, fetch
from kumquat.gateway.net.timeouts import IMPATIENT_SECONDS, UNTAKEN_SECONDS
from kumquat.gateway.tests.harness import Client, Served, produce, serve
from kumquat.gateway.wire import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    MetadataRequest,
    MetadataRequestTopic,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.core.memory import Memory

SMALLEST_ROOM = 64 * MIB


def used(memory: Memory) -> int:
    return memory.limit - memory.free


def everything_is_given_back(served: Served) -> bool:
    room = served.broker.room
    return not any(map(used, (room.large, room.received, room.handled, room.answers)))


def begun(size: int, key: int = 0, version: int = 9) -> bytes:
    """A frame that announces so many bytes, and its header."""
    return struct.pack(">ihhih", size, key, version, 1, 0)


def big_fetch(topic: str) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
    return FetchRequest(
        max_bytes=50 * MIB, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


async def fill_topic(served: Served, client: Client, megabytes: int) -> None:
    await served.create("t")
    for _ in range(megabytes):
        await client.call(produce("t", bytes(MIB - 1000)), 9)


@pytest.mark.parametrize("key", [1, 3, 9, 11, 19, 9999])
def test_a_request_that_is_too_large_for_its_api_is_refused_before_it_is_received(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: int
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client, served.client() as other:
            await client.stream.send_all(begun(most + 1, key, 5))
            assert await client.closed()
            async with served.client() as again:
                await again.stream.send_all(begun(most + 1, key, 5))
                assert await again.closed()
            assert await alive(other)
        (line,) = warnings(caplog)
        assert f"of {most + 1} bytes, more than the {most} it may have" in line

    most = largest_request(key, 100 * MIB)
    assert most in (2 * MIB, 8 * MIB)

    serve(check, tmp_path)


def test_a_produce_may_be_as_large_as_socket_request_max_bytes_says(tmp_path: Path) -> None:
    size = 30 * MIB

    async def check(served: Served) -> None:
        await served.create("t", **{"max.message.bytes": str(size + 1000)})
        async with served.client() as client:
            answer = await client.call(produce("t", bytes(size)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        await served.settled()
        assert everything_is_given_back(served)

    serve(check, tmp_path)


def test_large_frames_that_never_end_take_turns_and_do_not_hold_up_ordinary_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        room = served.broker.room
        async with AsyncExitStack() as stack:
            hostile = [await stack.enter_async_context(served.client()) for _ in range(5)]
            for client in hostile:
                await client.stream.send_all(begun(20 * MIB) + bytes(100_000))
            await served.settled()
            assert used(room.large) == 20 * MIB
            assert room.large.waiting == 4
            innocent = await stack.enter_async_context(served.client())
            answer = await innocent.call(produce("t", bytes(900_000)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            for _ in range(10):  # each is closed when others have waited, and the next has its turn
                served.clock.jump(PRESSED_SECONDS + IMPATIENT_SECONDS)
                await served.settled()
            assert room.large.waiting == 0
            honest = await stack.enter_async_context(served.client())
            big = produce("t", records=bytes(10 * MIB))
            answer = await honest.call(big, 9)
            assert answer.responses[0].partition_responses[0].error_code != 0  # it was read
        await served.settled()
        assert everything_is_given_back(served)
        assert any("only" in line and "of a frame came" in line for line in warnings(caplog))

    serve(check, tmp_path, queued_max_request_bytes=SMALLEST_ROOM)


def test_a_frame_that_is_sent_to_the_last_byte_but_one_is_not_waited_for_for_hours(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            frame = client.frame(produce("t", bytes(3 * MIB)), 9)
            await client.stream.send_all(frame[:-1])
            await served.settled()
            served.clock.jump(58)
            await served.settled()
            assert served.acceptor.connections
            for _ in range(3):
                served.clock.jump(1.5)
                await served.settled()
            assert await client.closed()
        assert everything_is_given_back(served)

    serve(check, tmp_path)


def test_readers_that_do_not_read_cost_no_more_than_the_room_for_answers(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        room = served.broker.room.answers
        async with AsyncExitStack() as stack:
            innocent = await stack.enter_async_context(served.client())
            await fill_topic(served, innocent, 20)
            for _ in range(30):
                hostile = await stack.enter_async_context(served.client())
                await hostile.send(*[(big_fetch("t"), 11)] * 3)
            await served.settled()
            unsent = sum(connection.unsent for connection in served.acceptor.connections)
            assert unsent <= room.limit + 2 * MIB
            # What is small is read all the same.
            await served.create("small")
            await innocent.call(produce("small", b"x"), 9)
            answer = await innocent.call(fetch("small", 0), 11)
            assert len(answer.responses[0].partitions[0].records) > 0
            # What is not, when those who do not read are closed.
            await innocent.send((big_fetch("t"), 11))
            for _ in range(8):
                served.clock.jump(PRESSED_SECONDS + IMPATIENT_SECONDS)
                await served.settled()
            answer = await innocent.receive()
            assert len(answer.responses[0].partitions[0].records) > 0
        await served.settled()
        assert everything_is_given_back(served)

    serve(check, tmp_path, queued_max_request_bytes=SMALLEST_ROOM)


def test_a_reader_that_takes_nothing_for_minutes_is_closed_though_nobody_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as slow, served.client() as other:
            await fill_topic(served, other, 8)
            await slow.send(*[(big_fetch("t"), 11)] * 3)
            await served.settled()
            for seconds in (2, UNTAKEN_SECONDS - 2):
                served.clock.jump(seconds)
                await served.settled()
            assert len(served.acceptor.connections) == 2
            for _ in range(3):
                served.clock.jump(2)
                await served.settled()
            assert len(served.acceptor.connections) == 1
            assert await alive(other)
        assert any("were not taken" in line for line in warnings(caplog))
        await served.settled()
        assert everything_is_given_back(served)

    serve(check, tmp_path)


def test_a_large_request_that_is_no_produce_takes_room_and_gives_it_back(tmp_path: Path) -> None:
    names = [MetadataRequestTopic(name="x" * 200 + str(index)) for index in range(2000)]

    async def check(served: Served) -> None:
        async with served.client() as client:
            request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
            answer = await client.call(request, 12)
            assert len(answer.topics) == 2000
            assert await alive(client)
        await served.settled()
        assert everything_is_given_back(served)

    serve(check, tmp_path)


def test_long_polls_with_large_requests_end_early_when_others_wait_for_the_room(
    tmp_path: Path,
) -> None:
    padding = [FetchTopic(topic="x" * 200, partitions=[]) for _ in range(2000)]
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    polling = FetchRequest(
        max_wait_ms=500_000,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[partition]), *padding],
    )

    async def check(served: Served) -> None:
        await served.create("t")
        handled = served.broker.room.handled
        async with AsyncExitStack() as stack:
            hostile = [await stack.enter_async_context(served.client()) for _ in range(4)]
            for client in hostile:
                await client.send((polling, 11))
            await served.settled()
            assert handled.waiting == 2
            for _ in range(4):
                served.clock.jump(PRESSED_SECONDS + 1)
                await served.settled()
            assert handled.waiting == 0
            for client in hostile[:2]:
                await client.receive()
        await served.settled()

    serve(check, tmp_path, queued_max_request_bytes=SMALLEST_ROOM)


@pytest.mark.parametrize("behind", [b"", b"\0\0\0"])
def test_a_client_that_closes_while_it_waits_in_a_long_poll_frees_its_place(
    tmp_path: Path, behind: bytes
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        for _ in range(3):
            async with served.client() as client:
                frame = client.frame(fetch("t", 0, max_wait_ms=600_000), 11)
                await client.stream.send_all(frame + behind)
                await served.settled()
        served.clock.jump(1.5)
        await served.settled()
        assert not served.acceptor.connections

    serve(check, tmp_path, max_connections=3)


def test_a_client_that_closes_while_its_join_is_held_frees_its_place(tmp_path: Path) -> None:
    def join(member: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            member_id=member,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=300_000,
            protocol_type="custom",
            protocols=[JoinGroupRequestProtocol(name="mine", metadata=b"")],
        )

    async def check(served: Served) -> None:
        async with served.client() as client:
            await client.send((join(""), 2))
            await served.settled()
            assert not client.has_answer, "it waits for others"
        served.clock.jump(1.5)
        await served.settled()
        assert not served.acceptor.connections

    serve(check, tmp_path, group_initial_rebalance_delay_ms=60_000)


def test_a_request_that_waits_for_a_long_poll_of_its_own_connection_is_still_answered(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, served.client() as other:
            heartbeat = HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
            await client.send((fetch("t", 0, max_wait_ms=600_000), 11), (heartbeat, 3))
            await served.settled()
            served.clock.jump(5)
            await served.settled()
            assert not client.has_answer, "it was not ended early"
            await other.call(produce("t", b"x"), 9)
            await client.receive()
            assert (await client.receive()).error_code != 0

    serve(check, tmp_path)


def test_a_small_answer_is_never_charged_and_a_large_one_until_it_is_sent() -> None:
    async def check() -> None:
        memory = Room(SMALLEST_ROOM).answers
        account = Account(memory)
        assert account.grant(FREE) == FREE
        account.made(FREE)
        assert used(memory) == 0
        granted = account.grant(50 * MIB)
        assert granted == memory.limit >> 3
        account.made(MIB)
        assert used(memory) == MIB
        account.unsent(MIB // 2)
        assert used(memory) == MIB // 2
        account.unsent(0)
        assert used(memory) == 0

    trio.run(check)


def test_who_finds_no_room_is_granted_little_and_waits_for_one_batch() -> None:
    async def check() -> None:
        memory = Room(SMALLEST_ROOM).answers
        memory.overdraw(memory.limit)
        account = Account(memory)
        assert account.grant(50 * MIB) == FREE
        async with trio.open_nursery() as nursery:
            nursery.start_soon(account.wait_for_batch)
            await trio.testing.wait_all_tasks_blocked()
            memory.give(2 * MIB)
        assert account.grant(50 * MIB) == MIB
        account.made(0)
        assert memory.free == 2 * MIB

    trio.run(check)
