"""A disk whose writes take long: the event loop does not wait for them, nobody is told that bytes are
written before they are, and what cannot be read yet is not taken for damaged.

The clock of the files says that a write took a second. From then on rounds write (core/logs/disk/
local_commit.py), in their thread, where a test can hold them.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.logs.messages.format import HEADER_SIZE
from kumquat.core.wheel.files.record_reader import LogRecords
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.wire import (
    ApiVersionsRequest,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from kumquat.gateway.tests.harness import Client


async def slow(served: Served) -> None:
    """From here on the disk is slow, and both logs know it."""
    await served.create("t")
    served.files.write_seconds = 1.0
    async with served.client() as client:
        for _ in range(2):
            assert code(await client.call(produce("t", b"slow"), 9)) == 0
            await client.call(commit(1), 8)


def commit(offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, -1, None)
    return OffsetCommitRequest(
        "g", -1, "", None, topics=[OffsetCommitRequestTopic("t", partitions=[partition])]
    )


def code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def offset(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].base_offset)


async def fetched(client: Client, since: int) -> bytes:
    asked = FetchTopic(
        "t", partitions=[FetchPartition(0, fetch_offset=since, partition_max_bytes=1 << 20)]
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[asked])
    answer = await client.call(request, 11)
    return bytes(answer.responses[0].partitions[0].records or b"")


@pytest.mark.parametrize("acks", [-1, 1])
def test_the_loop_serves_others_while_a_write_is_held_and_its_producer_waits(
    tmp_path: Path, acks: int
) -> None:
    async def check(served: Served) -> None:
        await slow(served)
        async with served.client() as client, served.client() as other:
            assert offset(await client.call(produce("t", b"before", acks=acks), 9)) == 2
            served.files.hold_writes()
            # The second frame is like the first, so it takes the short way past the handler.
            await client.send(*[(produce("t", b"%d" % n, acks=acks), 9) for n in range(3)])
            await other.send((commit(2), 8))
            await served.settled()
            async with served.client() as third:
                assert (await third.call(ApiVersionsRequest("x", "1"), 3)).error_code == 0
                assert b"before" in await fetched(third, 2)
                assert await fetched(third, 3) == b""
            assert not client.has_answer
            assert not other.has_answer
            served.files.release_writes()
            assert [offset(await client.receive()) for _ in range(3)] == [3, 4, 5]
            assert (await other.receive()).topics[0].partitions[0].error_code == 0
            assert await fetched(other, 3) != b""

    serve(check, tmp_path)


def test_a_producer_is_refused_when_a_deferred_write_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kumquat.core.logs.disk.local_commit.RETRY_SECONDS", 0.0)

    async def check(served: Served) -> None:
        await slow(served)
        async with served.client() as client:
            served.files.write_error = errno.EIO
            for acks in (1, -1):
                assert code(await client.call(produce("t", b"x", acks=acks), 9)) != 0
            served.files.write_error = None
            assert await fetched(client, 0) != b""

    serve(check, tmp_path)


def test_what_is_not_in_the_file_yet_is_read_later_and_not_taken_for_damaged(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await slow(served)
        message_log = served.broker.log.log
        begin = message_log.written_end
        async with served.client() as client:
            served.files.hold_writes()
            await client.send((produce("t", b"late"), 9))
            await served.settled()
            records = LogRecords(message_log)
            with pytest.raises(OSError, match="not written yet"):
                records.read(begin, HEADER_SIZE)
            served.files.release_writes()
            assert code(await client.receive()) == 0
            assert len(records.read(begin, HEADER_SIZE)) == HEADER_SIZE

    serve(check, tmp_path)
