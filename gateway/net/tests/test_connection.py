"""Connections: order of answers, bursts, back-pressure, limits, and what ends one of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.gateway.net.answers import MAX_UNSENT
from kumquat.gateway.net.connection import MAX_BURST
from kumquat.gateway.net.receive import MAX_CAPACITY
from kumquat.gateway.tests.harness import NO_SPACE, Client, Served, produce, serve
from kumquat.gateway.wire import (
    ApiVersionsRequest,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    MetadataRequest,
    ProduceRequest,
)

if TYPE_CHECKING:
    from pathlib import Path


def fetch(topic: str, offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


async def alive(client: Client) -> bool:
    answer = await client.call(ApiVersionsRequest(), 0)
    return len(answer.api_keys) > 10


def test_answers_leave_in_the_order_of_their_requests_whatever_they_wait_for(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await client.send(
                (produce("t", b"a"), 9),
                (ApiVersionsRequest(), 0),
                (produce("t", b"b", acks=1), 3),
                (fetch("t", 0), 11),
                (MetadataRequest(topics=[]), 12),
                (produce("t", b"c"), 7),
                (produce("t", b"d", acks=0), 7),
            )
            client._awaited.pop()  # the last has no answer
            answers = [await client.receive() for _ in range(6)]
            offsets = [answers[i].responses[0].partition_responses[0] for i in (0, 2, 5)]
            assert [answer.base_offset for answer in offsets] == [0, 1, 2]
            assert [answer.error_code for answer in offsets] == [0, 0, 0]
            assert await alive(client)
        assert served.broker.log.subjects.by_name["t"].next_sequence == 4

    serve(check, tmp_path)


def test_an_answer_to_acks_all_waits_for_the_sync_and_holds_back_those_behind_it(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, served.client() as other:
            served.files.hold_syncs()
            await client.send((produce("t", b"a"), 9), (produce("t", b"b", acks=1), 9))
            await served.settled()
            assert served.broker.log.subjects.by_name["t"].next_sequence == 2
            (connection,) = [c for c in served.acceptor.connections if c.pending]
            assert connection.pending == 2
            answer = await other.call(produce("t", b"c", acks=1), 9)
            assert answer.responses[0].partition_responses[0].base_offset == 2
            served.files.release_syncs()
            for offset in (0, 1):
                answer = await client.receive()
                assert answer.responses[0].partition_responses[0].base_offset == offset

    serve(check, tmp_path)


def test_one_byte_at_a_time(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            for byte in client.frame(produce("t", b"a"), 9):
                await client.stream.send_all(bytes([byte]))
                await trio.lowlevel.checkpoint()
            assert (await client.receive()).responses[0].partition_responses[0].error_code == 0

    serve(check, tmp_path)


def test_a_burst_larger_than_any_buffer_is_answered_whole(tmp_path: Path) -> None:
    count = 2 * MAX_CAPACITY // 300
    assert count > MAX_BURST

    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, trio.open_nursery() as nursery:
            frames = b"".join(client.frame(produce("t", bytes(300)), 9) for _ in range(count))
            assert len(frames) > MAX_CAPACITY
            nursery.start_soon(client.stream.send_all, frames)
            for offset in range(count):
                answer = await client.receive()
                assert answer.responses[0].partition_responses[0].base_offset == offset

    serve(check, tmp_path)


def test_a_client_that_never_reads_stops_being_read_and_costs_bounded_memory(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await client.call(produce("t", bytes(400_000)), 9)
            frame = client.frame(fetch("t", 0), 11)
            padded = struct.pack(">i", 100_000) + frame[4:] + bytes(100_004 - len(frame))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.stream.send_all, padded * 300)
                await served.settled()
                assert nursery.child_tasks, "the broker has read all of it"
                (connection,) = served.acceptor.connections
                assert MAX_UNSENT < connection.unsent < MAX_UNSENT + 1_000_000
                async with served.client() as other:
                    assert await alive(other)
                nursery.cancel_scope.cancel()

    serve(check, tmp_path)


def test_a_client_that_reads_late_gets_every_answer(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, trio.open_nursery() as nursery:
            await client.call(produce("t", bytes(100_000)), 9)
            requests = [client.frame(fetch("t", 0), 11) for _ in range(200)]
            nursery.start_soon(client.stream.send_all, b"".join(requests))
            await served.settled()
            for _ in requests:
                answer = await client.receive()
                assert len(answer.responses[0].partitions[0].records) > 100_000

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", 2**31 - 1) + b"xxxx", "a frame of 2147483647 bytes"),
        (struct.pack(">i", -5) + b"xxxx", "a frame of -5 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (struct.pack(">ihhih", 12, 0, 9, 1, 900) + b"ab", "client id of 900 bytes"),
        (struct.pack(">ihhih", 10, 9999, 0, 1, -1), "API 9999 v0 is not served"),
        (struct.pack(">ihhih", 10, 0, 2, 1, -1), "Produce v2 is not served"),
        (struct.pack(">ihhihb", 11, 1, 99, 1, -1, 0), "Fetch v99 is not served"),
        (struct.pack(">ihhih", 10, 1, 17, 1, -1), "no tag section"),
        (struct.pack(">ihhih", 10, 3, 1, 1, -1), "Metadata v1: MetadataRequest v1: topics"),
    ],
)
def test_bytes_that_are_no_request_close_that_connection_only_and_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    async def check(served: Served) -> None:
        async with served.client("mine") as client, served.client() as other:
            await client.call(ApiVersionsRequest(), 0)
            host, port = client.stream.socket.getsockname()
            await client.stream.send_all(data)
            assert await client.closed()
            assert await alive(other)
        (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert reason in line
        assert f"{host}:{port}" in line
        assert "client id" in line

    serve(check, tmp_path)


def test_a_body_that_is_cut_short_closes_the_connection_after_what_came_before_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client("mine") as client:
            whole = client.frame(produce("t", b"a"), 9)
            cut = client.frame(produce("t", b"b"), 9)[4:-9]
            await client.stream.send_all(whole + struct.pack(">i", len(cut)) + cut)
            answer = await client.receive()
            assert answer.responses[0].partition_responses[0].base_offset == 0
            assert await client.closed()
        (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert "Produce v9" in line
        assert "byte" in line
        assert "'mine'" in line
        assert served.broker.log.subjects.by_name["t"].next_sequence == 1

    serve(check, tmp_path)


def test_a_frame_of_the_allowed_size_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    limit = 5 << 20

    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            frame = client.frame(produce("t", bytes(1000)), 9)
            padded = struct.pack(">i", limit) + frame[4:] + bytes(limit - len(frame) + 4)
            await client.stream.send_all(padded)
            assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
            await client.stream.send_all(struct.pack(">i", limit + 1))
            assert await client.closed()

    serve(check, tmp_path, socket_request_max_bytes=limit)


def test_acks_0_has_no_answer(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            frame = client.frame(produce("t", b"a", acks=0), 9, answered=False)
            await client.stream.send_all(frame)
            assert await alive(client)
        assert served.broker.log.subjects.by_name["t"].next_sequence == 1

    serve(check, tmp_path)


def unknown_topic(acks: int) -> ProduceRequest:
    return produce("nowhere", b"a", acks=acks)


def bad_batch(acks: int) -> ProduceRequest:
    return produce("t", records=b"\0" * 100, acks=acks)


@pytest.mark.parametrize("request_", [unknown_topic, bad_batch])
def test_acks_0_that_fails_closes_the_connection_and_keeps_what_was_sent_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request_: object
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            good = client.frame(produce("t", b"a", acks=0), 9, answered=False)
            bad = client.frame(request_(0), 9, answered=False)  # type: ignore[operator]
            await client.stream.send_all(good + bad)
            assert await client.closed()
        assert served.broker.log.subjects.by_name["t"].next_sequence == 1
        assert any("acks=0 failed" in r.getMessage() for r in caplog.records)

    serve(check, tmp_path)


def test_a_full_disk_is_the_answer_to_every_request_of_the_burst_and_acks_0_closes(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            served.files.write_error = NO_SPACE
            await client.send((produce("t", b"a"), 9), (produce("t", b"b", acks=1), 9))
            for _ in range(2):
                (topic,) = (await client.receive()).responses
                assert topic.partition_responses[0].error_code == 56
                assert "space" in topic.partition_responses[0].error_message
            frame = client.frame(produce("t", b"c", acks=0), 9, answered=False)
            await client.stream.send_all(frame)
            assert await client.closed()
        served.files.write_error = None
        async with served.client() as client:
            answer = await client.call(produce("t", b"d"), 9)
            assert answer.responses[0].partition_responses[0].base_offset == 0

    serve(check, tmp_path)


def test_a_failed_sync_is_the_answer_to_all_that_waited_for_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            served.files.hold_syncs()
            served.files.sync_error = 5
            await client.send((produce("t", b"a"), 9), (produce("t", b"b"), 9))
            await served.settled()
            served.files.release_syncs()
            for _ in range(2):
                (topic,) = (await client.receive()).responses
                assert topic.partition_responses[0].error_code == 56
                assert topic.partition_responses[0].base_offset == -1

    serve(check, tmp_path)


def test_an_unexpected_failure_in_a_handler_is_answered_logged_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(served.broker.log, "read_nowait", broken)
        async with served.client() as client:
            await client.call(produce("t", b"a"), 9)
            answer = await client.call(fetch("t", 0), 11)
            assert answer.error_code == -1
            assert answer.responses[0].partitions[0].error_code == -1
            assert await alive(client)
        (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
        assert "Fetch failed" in record.getMessage()
        assert record.exc_info is not None

    serve(check, tmp_path)


def test_a_client_that_closes_its_side_still_gets_its_answers(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            served.files.hold_syncs()
            await client.send((produce("t", b"a"), 9), (ApiVersionsRequest(), 0))
            await client.stream.send_eof()
            await served.settled()
            served.files.release_syncs()
            assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
            await client.receive()
            assert await client.closed()
        await served.settled()
        assert not served.acceptor.connections

    serve(check, tmp_path)


def test_too_much_unsynced_data_stops_producers_until_the_disk_has_caught_up(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, served.client() as reader:
            served.files.hold_syncs()
            for _ in range(4):
                await client.send((produce("t", bytes(100_000), acks=1), 9))
            await served.settled()
            written = served.broker.log.subjects.by_name["t"].next_sequence
            assert 1 <= written < 4
            assert await alive(reader), "only Produce waits"
            served.files.release_syncs()
            for _ in range(4):
                assert (await client.receive()).responses[0].partition_responses[0].error_code == 0

    serve(check, tmp_path, log_unsynced_max_bytes=150_000)
