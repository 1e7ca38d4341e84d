"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: the ends of a log, and places in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.tests.harness import IO_ERROR, Client, Served, produce, serve
from kumquat.gateway.wire import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ErrorCode,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from pathlib import Path

TIMES = [100, 300, 200]


async def fill(served: Served, client: Client) -> None:
    """Batches of two records, with TIMES."""
    await served.create("t")
    for time in TIMES:
        await client.call(produce("t", records=bytes(batch(b"a", b"b", timestamp=time))), 9)


async def offset_at(client: Client, timestamp: int, version: int = 7, **fields: Any) -> Any:
    asked = ListOffsetsPartition(timestamp=timestamp, **fields)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    answer = await client.call(request, version)
    return answer.topics[0].partitions[0]


FOUND = {
    -1: (-1, 6),
    -2: (-1, 0),
    -3: (300, 2),
    -4: (-1, 0),
    -5: (-1, -1),
    0: (100, 0),
    100: (100, 0),
    101: (300, 2),
    250: (300, 2),
    301: (-1, -1),
}


@pytest.mark.parametrize("version", [1, 6, 10])
def test_an_offset_by_time_or_by_end(tmp_path: Path, version: int) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            await fill(served, client)
            for timestamp, found in FOUND.items():
                if timestamp < -2 and version < 10:
                    continue
                partition = await offset_at(client, timestamp, version)
                assert partition.error_code == 0
                assert (partition.timestamp, partition.offset) == found, timestamp

    serve(check, tmp_path)


@pytest.mark.parametrize(("timestamp", "known_from"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_time_is_refused_by_versions_that_do_not_know_it(
    tmp_path: Path, timestamp: int, known_from: int
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            await fill(served, client)
            for version in range(1, 11):
                found = await offset_at(client, timestamp, version)
                known = version >= known_from
                assert found.error_code == (0 if known else ErrorCode.UNSUPPORTED_VERSION)

    serve(check, tmp_path)


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 2), (-3, 1), (500, 1)])
def test_the_end_lies_behind_what_was_answered_with_acks_1(
    tmp_path: Path, timestamp: int, offset: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, served.client() as other:
            first, second = (bytes(batch(b"a", timestamp=time)) for time in (100, 500))
            await client.call(produce("t", records=first), 9)
            served.files.hold_syncs()
            await client.call(produce("t", records=second, acks=1), 9)
            assert (await offset_at(client, -2)).offset == 0, "the start waits for nothing"
            asked = ListOffsetsPartition(timestamp=timestamp)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
            await other.send((request, 7))
            await served.settled()
            served.files.release_syncs()
            answer = await other.receive()
            assert answer.topics[0].partitions[0].offset == offset

    serve(check, tmp_path)


@pytest.mark.parametrize("trouble", ["slow", "fails"])
def test_a_disk_in_trouble_does_not_keep_the_end_to_itself(tmp_path: Path, trouble: str) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            served.files.hold_syncs()
            await client.call(produce("t", b"a", acks=1), 9)
            await client.send((latest_request(), 7))
            await served.settled()
            if trouble == "slow":
                served.clock.jump(5.1)
            else:
                served.files.sync_error = IO_ERROR
                served.files.release_syncs()
            answer = await client.receive()
            assert answer.topics[0].partitions[0].offset == 0
            assert answer.topics[0].partitions[0].error_code == 0

    serve(check, tmp_path)


def latest_request() -> ListOffsetsRequest:
    asked = ListOffsetsPartition(timestamp=-1)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])


def test_an_empty_topic_has_both_ends_at_zero_and_no_times(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            offsets = [(await offset_at(client, time)).offset for time in (-1, -2, -3, 100)]
            assert offsets == [0, 0, -1, -1]

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"timestamp": -9}, ErrorCode.UNSUPPORTED_VERSION),
        ({"partition_index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_cannot_be_told_is_an_error_of_its_partition(
    tmp_path: Path, fields: dict[str, int], code: ErrorCode
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            await fill(served, client)
            partition = await offset_at(client, **{"timestamp": -1, **fields})
            assert (partition.error_code, partition.offset) == (code, -1)

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("epoch", "current", "answer"),
    [
        (0, -1, (0, 0, 6)),
        (0, 0, (0, 0, 6)),
        (5, 0, (0, -1, -1)),
        (-1, 0, (0, -1, -1)),
        (0, 5, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ],
)
def test_the_only_leader_epoch_ends_at_the_high_watermark(
    tmp_path: Path, epoch: int, current: int, answer: tuple[int, int, int]
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            await fill(served, client)
            asked = OffsetForLeaderPartition(0, current, epoch)
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [asked])])
            end = (await client.call(request, 4)).topics[0].partitions[0]
            assert (end.error_code, end.leader_epoch, end.end_offset) == answer

    serve(check, tmp_path)


async def delete_before(client: Client, offset: int, topic: str = "t", partition: int = 0) -> Any:
    asked = DeleteRecordsPartition(partition, offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(topic, [asked])])
    return (await client.call(request, 2)).topics[0].partitions[0]


def test_records_are_deleted_up_to_an_offset_and_never_come_back(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            await fill(served, client)
            for offset, low in ((3, 3), (1, 3), (-1, 6)):
                deleted = await delete_before(client, offset)
                assert (deleted.error_code, deleted.low_watermark) == (0, low)
                assert (await offset_at(client, -2)).offset == low

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("offset", "topic", "partition", "code"),
    [
        (7, "t", 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, "t", 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, "nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, "t", 3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_records_that_are_not_there_cannot_be_deleted(
    tmp_path: Path, offset: int, topic: str, partition: int, code: ErrorCode
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            await fill(served, client)
            deleted = await delete_before(client, offset, topic, partition)
            assert (deleted.error_code, deleted.low_watermark) == (code, -1)

    serve(check, tmp_path)
