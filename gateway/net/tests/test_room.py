"""Room that somebody holds while others wait for it: it is asked back, and never taken in vain."""

from __future__ import annotations

import socket
import weakref
from typing import TYPE_CHECKING, Any

import trio

from kumquat.gateway.handlers import describe_configs
from kumquat.gateway.net.limits import FREE, MIB, ONE_BATCH, PRESSED_SECONDS, Account, Room
from kumquat.gateway.net.receive import ReceiveBuffer
from kumquat.gateway.net.tests.test_connection import alive, fetch
from kumquat.gateway.net.tests.test_limits import (
    SMALLEST_ROOM,
    big_fetch,
    everything_is_given_back,
    fill_topic,
    used,
)
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.wire import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    FetchRequest,
    FindCoordinatorRequest,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from kumquat.core.memory import Memory

TOPIC = 2


def leave(memory: Memory, free: int) -> int:
    """Take all room but so much; gives how much was taken."""
    taken = memory.free - free
    memory.overdraw(taken)
    return taken


def patient_fetch(topic: str) -> FetchRequest:
    """Of more than there is, for ten minutes."""
    request = big_fetch(topic)
    request.max_wait_ms, request.min_bytes = 600_000, 40 * MIB
    return request


async def pass_seconds(served: Served, seconds: int) -> None:
    for _ in range(seconds):
        served.clock.jump(1.0)
        await served.settled()


def records(answer: Any) -> bytes:
    return bytes(answer.responses[0].partitions[0].records)


def test_room_for_a_batch_that_was_waited_for_is_enough_beside_a_few_unsent_bytes() -> None:
    """Otherwise a Fetch gives it back and waits for it again, for ever."""

    async def check() -> None:
        memory = Room(SMALLEST_ROOM).answers
        leave(memory, 2 * MIB)
        account = Account(memory)
        account.unsent(FREE // 2)
        await account.wait_for_batch()
        assert account.grant(50 * MIB) == ONE_BATCH

    trio.run(check)


def test_what_a_client_takes_gives_back_no_room_of_the_answer_that_is_being_made() -> None:
    memory = Room(SMALLEST_ROOM).answers
    account = Account(memory)
    account.unsent(MIB)
    account.made(2 * MIB)
    account.left(0)
    assert used(memory) == 2 * MIB
    account.unsent(0)
    assert used(memory) == 0


def test_a_long_poll_does_not_keep_the_room_for_answers_from_others_and_polls_on_later(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        room = served.broker.room.answers
        async with served.client() as poller, served.client() as other:
            await fill_topic(served, other, 1)
            await served.create("end")
            taken = leave(room, ONE_BATCH * 8)
            await poller.send((patient_fetch("t"), 11))
            await served.settled()
            taken += leave(room, FREE)
            await other.send((fetch("t", 0), 11))
            await pass_seconds(served, 4)
            assert len(records(await other.receive())) > MIB // 2
            assert len(records(await poller.receive())) > MIB // 2
            room.give(taken)
            await poller.send((fetch("end", 0, max_wait_ms=100_000), 11))
            await pass_seconds(served, 4)
            assert not poller.has_answer, "it waits again"
            await other.call(produce("end", b"x"), 9)
            assert records(await poller.receive())
        await served.settled()
        assert everything_is_given_back(served)

    serve(check, tmp_path)


def test_a_fetch_that_is_granted_less_than_min_bytes_does_not_wait_for_them(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            await fill_topic(served, client, 4)
            answer = await client.call(patient_fetch("t"), 11)  # the clock stands still
            assert MIB < len(records(answer)) <= 2 * MIB

    serve(check, tmp_path, queued_max_request_bytes=SMALLEST_ROOM)


def test_a_client_that_does_not_read_its_answers_does_not_keep_the_room_for_requests(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        received = served.broker.room.received
        keys = [f"x{index:08d}" for index in range(60_000)]
        async with served.client() as hostile, served.client() as other:
            hostile.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            frame = hostile.frame(FindCoordinatorRequest(coordinator_keys=keys), 4)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hostile.stream.send_all, frame * 3)
                await served.settled()
                assert used(received) > MIB // 2, "it waits for its client, and holds room"
                leave(received, 50_000)
                nursery.start_soon(other.send, (produce("t", bytes(100_000)), 9))
                await served.settled()
                assert received.waiting
                await pass_seconds(served, 10)
                answer = await other.receive()
                assert answer.responses[0].partition_responses[0].error_code == 0
                nursery.cancel_scope.cancel()

    serve(check, tmp_path)


def test_a_frame_that_waited_for_room_is_not_late_when_it_gets_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        received = served.broker.room.received
        async with served.client() as first, served.client() as second:
            leave(received, 0)
            frame = first.frame(produce("t", bytes(300_000)), 9)
            await first.stream.send_all(frame[:40_000])
            await served.settled()
            await second.send((produce("t", bytes(100_000)), 9))
            await pass_seconds(served, 10)
            assert received.waiting == 2
            received.give(len(frame))
            await pass_seconds(served, 1)
            assert received.waiting == 1
            await first.stream.send_all(frame[40_000:])
            for client in (first, second):
                answer = await client.receive()
                assert answer.responses[0].partition_responses[0].error_code == 0

    serve(check, tmp_path)


def test_an_idle_connection_does_not_keep_its_last_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[weakref.ref[memoryview]] = []
    frames = ReceiveBuffer.frames

    def remembered(buffer: ReceiveBuffer) -> list[memoryview]:
        found = frames(buffer)
        seen.extend(map(weakref.ref, found))
        return found

    async def check(served: Served) -> None:
        async with served.client() as client:
            await client.call(produce("missing", bytes(3 * MIB)), 9)
            await served.settled()
            assert len(seen) == 1
            assert seen[0]() is None
            assert await alive(client)

    monkeypatch.setattr(ReceiveBuffer, "frames", remembered)
    serve(check, tmp_path)


def configs_of(*names: str) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(TOPIC, name, None) for name in names]
    )


def test_large_answers_of_describe_configs_are_made_one_at_a_time_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_configs, "MANY", 2, raising=False)
    names = ("a", "b", "c")

    async def check(served: Served) -> None:
        room = served.broker.room
        for name in names:
            await served.create(name)
        async with served.client() as one, served.client() as two, served.client() as few:
            taken = leave(room.answers, 0)
            for client in (one, two):
                await client.send((configs_of(*names), 4))
            await served.settled()
            assert not one.has_answer
            assert not two.has_answer
            assert (room.answers.waiting, room.huge.waiting) == (1, 1)
            assert len((await few.call(configs_of("a"), 4)).results) == 1
            room.answers.give(taken)
            for client in (one, two):
                answer = await client.receive()
                assert [result.resource_name for result in answer.results] == list(names)
        await served.settled()
        assert everything_is_given_back(served)
        assert room.huge.free == 1

    serve(check, tmp_path)


def test_describe_configs_of_tens_of_thousands_of_topics_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results have many bytes here, instead of being many."""
    result = describe_configs._result

    def long(*asked: Any) -> Any:
        made = result(*asked)
        made.configs[0].value = "x" * 30_000
        made.configs = made.configs[:1] * 700
        return made

    monkeypatch.setattr(describe_configs, "_result", long)

    async def check(served: Served) -> None:
        async with served.client() as client:
            for name in ("a", "b"):
                await served.create(name)
            await client.send((configs_of("a", "b"), 4))
            assert len(await client.receive_frame()) > 32 * MIB
        await pass_seconds(served, int(PRESSED_SECONDS))
        assert everything_is_given_back(served)

    serve(check, tmp_path)
