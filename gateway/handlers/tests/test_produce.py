"""Produce and InitProducerId: what is refused, with which code, and how a duplicate is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.wire import (
    ErrorCode,
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

if TYPE_CHECKING:
    from pathlib import Path


def only(answer: Any) -> Any:
    ((partition,),) = [topic.partition_responses for topic in answer.responses]
    return partition


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
def test_the_offset_of_the_first_record_is_answered(
    tmp_path: Path, version: int, acks: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            for first in (0, 2):
                partition = only(await client.call(produce("t", b"a", b"b", acks=acks), version))
                assert (partition.error_code, partition.base_offset) == (0, first)
                assert partition.log_append_time_ms == -1

    serve(check, tmp_path)


def test_a_topic_is_named_by_its_id_from_version_13_on(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        topic_id = served.broker.log.subjects.by_name["t"].topic_id
        async with served.client() as client:
            request = produce("", b"a")
            request.topic_data[0].topic_id = topic_id
            answer = await client.call(request, 13)
            assert only(answer).error_code == 0
            assert answer.responses[0].topic_id == topic_id
            request.topic_data[0].topic_id = b"x" * 16
            assert only(await client.call(request, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    serve(check, tmp_path)


def partition_1(request: ProduceRequest) -> None:
    request.topic_data[0].partition_data[0].index = 1


def unknown_topic(request: ProduceRequest) -> None:
    request.topic_data[0].name = "nowhere"


def no_records(request: ProduceRequest) -> None:
    request.topic_data[0].partition_data[0].records = None


def bad_acks(request: ProduceRequest) -> None:
    request.acks = 2


def transaction(request: ProduceRequest) -> None:
    request.transactional_id = "tx"


def wrong_crc(request: ProduceRequest) -> None:
    data = batch(b"a")
    data[-1] ^= 1
    request.topic_data[0].partition_data[0].records = memoryview(data)


def too_large(request: ProduceRequest) -> None:
    request.topic_data[0].partition_data[0].records = memoryview(batch(bytes(2_000_000)))


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (partition_1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (unknown_topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (no_records, ErrorCode.INVALID_RECORD),
        (bad_acks, ErrorCode.INVALID_REQUIRED_ACKS),
        (transaction, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (wrong_crc, ErrorCode.CORRUPT_MESSAGE),
        (too_large, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_a_request_that_is_refused_says_why_and_leaves_nothing(
    tmp_path: Path, spoil: Any, code: ErrorCode
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            request = produce("t", b"a")
            spoil(request)
            partition = only(await client.call(request, 9))
            assert partition.error_code == code
            assert partition.base_offset == -1
            assert len(partition.error_message) > 5
            assert only(await client.call(produce("t", b"a"), 9)).base_offset == 0

    serve(check, tmp_path)


def test_one_bad_partition_does_not_harm_the_others_of_its_request(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("good")
        async with served.client() as client:
            request = ProduceRequest(
                acks=-1,
                topic_data=[
                    TopicProduceData(name, bytes(16), [PartitionProduceData(0, bytes(batch(b"a")))])
                    for name in ("bad", "good")
                ],
            )
            answer = await client.call(request, 9)
            codes = {t.name: t.partition_responses[0].error_code for t in answer.responses}
            assert codes == {"bad": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "good": 0}

    serve(check, tmp_path)


def test_zstd_is_refused_in_versions_that_are_older_than_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        data = batch(b"a")
        data[22] |= 4
        async with served.client() as client:
            partition = only(await client.call(produce("t", records=bytes(data)), 6))
            assert partition.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    serve(check, tmp_path)


def test_log_append_time_is_told(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"message.timestamp.type": "LogAppendTime"})
        async with served.client() as client:
            assert only(await client.call(produce("t", b"a"), 9)).log_append_time_ms > 0

    serve(check, tmp_path)


def test_a_duplicate_within_a_burst_and_after_it_is_told_the_first_offset(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        data = bytes(batch(b"a", producer_id=7, epoch=0, first=0))
        async with served.client() as client:
            await client.call(produce("t", b"before"), 9)
            await client.send(*[(produce("t", records=data), 9)] * 2)
            for _ in range(2):
                assert only(await client.receive()).base_offset == 1
            assert only(await client.call(produce("t", records=data), 9)).base_offset == 1
            assert only(await client.call(produce("t", b"after"), 9)).base_offset == 2

    serve(check, tmp_path)


def test_a_duplicate_while_the_sync_is_held_gets_no_answer_before_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        data = bytes(batch(b"a", producer_id=7, epoch=0, first=0))
        async with served.client() as first, served.client() as second:
            served.files.hold_syncs()
            await first.send((produce("t", records=data), 9))
            await served.settled()
            await second.send((produce("t", records=data), 9))
            await served.settled()
            assert sorted(c.pending for c in served.acceptor.connections) == [1, 1]
            served.files.release_syncs()
            assert only(await first.receive()).base_offset == 0
            assert only(await second.receive()).base_offset == 0

    serve(check, tmp_path)


@pytest.mark.parametrize("version", [8, 9])
def test_requests_without_records_are_each_refused_and_the_connection_lives(
    tmp_path: Path, version: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        request = produce("t", acks=1, records=b"")
        async with served.client() as client:
            for records in (None, memoryview(b"")):
                request.topic_data[0].partition_data[0].records = records
                for _ in range(3):
                    answer = only(await client.call(request, version))
                    assert answer.error_code == ErrorCode.INVALID_RECORD
            assert only(await client.call(produce("t", b"a"), version)).base_offset == 0

    serve(check, tmp_path)


def test_producer_ids_are_new_and_an_epoch_is_raised(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            ids = set()
            for version in range(6):
                answer = await client.call(InitProducerIdRequest(transactional_id=None), version)
                assert (answer.error_code, answer.producer_epoch) == (0, 0)
                ids.add(answer.producer_id)
            assert len(ids) == 6
            answer = await client.call(InitProducerIdRequest(None, 0, 5, 3), 4)
            assert (answer.producer_id, answer.producer_epoch) == (5, 4)
            answer = await client.call(InitProducerIdRequest(None, 0, 5, 32766), 4)
            assert answer.producer_id not in ids
            assert answer.producer_epoch == 0

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest("tx", 1000), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (InitProducerIdRequest(None, 0, 5, -1), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(None, 0, -1, 5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_producer_id_that_cannot_be_given_is_refused(
    tmp_path: Path, request_: InitProducerIdRequest, code: ErrorCode
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            assert (await client.call(request_, 4)).error_code == code

    serve(check, tmp_path)
