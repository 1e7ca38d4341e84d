"""aiokafka: producing, reading and its admin client. It never uses a flexible version on the data
path and always opens with ApiVersions 0, so it keeps the old encodings honest."""

from __future__ import annotations

import asyncio
import functools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

from compat_tests.support import CODECS, DEADLINE, LARGE, T0, TOO_LARGE
from compat_tests.wire.connection import Wire, create_topic, delete_topic, describe_topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

P = ParamSpec("P")


def story(function: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """A coroutine as a pytest test, with a deadline."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(function(*args, **kwargs), 2 * DEADLINE)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def producer(bootstrap: str, **settings: Any) -> AsyncIterator[Any]:
    made = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def consumer(bootstrap: str, *topics: str, **settings: Any) -> AsyncIterator[Any]:
    """Reads by assignment, from the beginning unless it seeks."""
    defaults = {"group_id": None, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    made = AIOKafkaConsumer(bootstrap_servers=bootstrap, **(defaults | settings))
    await made.start()
    try:
        made.assign([TopicPartition(topic, 0) for topic in topics])
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[Any]:
    made = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def take(reader: Any, count: int) -> list[Any]:
    return [await reader.getone() for _ in range(count)]


async def fill(bootstrap: str, topic: str, count: int, **settings: Any) -> None:
    """One batch of `count` records: values b"0", b"1", …, timestamps T0, T0 + 10, …

    With acks=all, which is not aiokafka's default: Kumquat shows readers only what is synced, so
    after acks=1 an offset looked up at once may be the one before."""
    async with producer(bootstrap, acks="all", **settings) as writer:
        made = writer.create_batch()
        for index in range(count):
            value = str(index).encode()
            assert made.append(key=None, value=value, timestamp=T0 + 10 * index) is not None
        sent = await writer.send_batch(made, topic, partition=0)
        await sent


def values(records: list[Any]) -> list[bytes]:
    return [record.value for record in records]


@story
async def test_a_topic_that_is_not_there_is_created_by_producing(bootstrap: str, name: str) -> None:
    async with producer(bootstrap) as writer:
        assert (await writer.send_and_wait(name, b"first")).offset == 0
    async with consumer(bootstrap, name) as reader:
        assert values(await take(reader, 1)) == [b"first"]


@pytest.mark.parametrize("acks", [0, 1, "all"])
@story
async def test_what_is_produced_is_read_at_every_level_of_acks(
    bootstrap: str, topic: str, acks: int | str
) -> None:
    async with producer(bootstrap, acks=acks) as writer:
        for index in range(20):
            await writer.send(topic, f"v{index}".encode(), key=b"k")
        await writer.flush()
    async with consumer(bootstrap, topic) as reader:
        got = await take(reader, 20)
    assert values(got) == [f"v{index}".encode() for index in range(20)]
    assert [record.offset for record in got] == list(range(20))


@pytest.mark.parametrize("codec", CODECS)
@story
async def test_every_compression_round_trips(bootstrap: str, topic: str, codec: str) -> None:
    compression = None if codec == "none" else codec
    sent = [f"{index}-".encode() * 200 for index in range(50)]
    async with producer(bootstrap, compression_type=compression, linger_ms=20) as writer:
        for value in sent:
            await writer.send(topic, value)
        await writer.flush()
    async with consumer(bootstrap, topic) as reader:
        assert values(await take(reader, 50)) == sent


@story
async def test_keys_values_headers_and_timestamps_come_back_as_they_went(
    bootstrap: str, topic: str
) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("nul", None), ("ü", b"\x00\xff")]
    async with producer(bootstrap) as writer:
        first = await writer.send_and_wait(topic, None, key=b"tombstone", timestamp_ms=T0 + 5)
        await writer.send_and_wait(topic, b"", headers=headers, timestamp_ms=T0)
    assert (first.offset, first.timestamp) == (0, T0 + 5)
    async with consumer(bootstrap, topic) as reader:
        tombstone, empty = await take(reader, 2)
    assert (tombstone.key, tombstone.value, tombstone.timestamp) == (b"tombstone", None, T0 + 5)
    assert (empty.key, empty.value, empty.timestamp) == (None, b"", T0)
    assert list(empty.headers) == headers


@story
async def test_a_large_message_passes_and_a_larger_one_is_refused(
    bootstrap: str, topic: str
) -> None:
    value = bytes(range(256)) * (LARGE // 256)
    async with producer(bootstrap, max_request_size=4_000_000) as writer:
        await writer.send_and_wait(topic, value)
        with pytest.raises(MessageSizeTooLargeError):
            await writer.send_and_wait(topic, bytes(TOO_LARGE))
        assert (await writer.send_and_wait(topic, b"fits")).offset == 1
    async with consumer(bootstrap, topic) as reader:
        assert values(await take(reader, 2)) == [value, b"fits"]


@story
async def test_an_idempotent_producer_gets_dense_offsets(bootstrap: str, topic: str) -> None:
    async with producer(bootstrap, enable_idempotence=True, max_batch_size=200) as writer:
        sent = [await writer.send(topic, str(index).encode()) for index in range(300)]
        assert [(await each).offset for each in sent] == list(range(300))
    async with consumer(bootstrap, topic) as reader:
        assert values(await take(reader, 300)) == [str(index).encode() for index in range(300)]


@story
async def test_one_producer_and_one_consumer_work_on_many_topics(
    bootstrap: str, wire: Wire, names: Callable[[], str]
) -> None:
    topics = [names() for _ in range(20)]
    for each in topics:
        create_topic(wire, each)
    async with producer(bootstrap) as writer:
        await asyncio.gather(*[writer.send_and_wait(each, each.encode()) for each in topics])
    async with consumer(bootstrap, *topics) as reader:
        assert sorted(values(await take(reader, 20))) == sorted(each.encode() for each in topics)


@story
async def test_reading_from_an_offset_and_again_gives_the_same_records(
    bootstrap: str, topic: str
) -> None:
    for _ in range(3):
        await fill(bootstrap, topic, 30)
    partition = TopicPartition(topic, 0)
    async with consumer(bootstrap, topic) as reader:
        everything = [(record.offset, record.value) for record in await take(reader, 90)]
        assert [offset for offset, _ in everything] == list(range(90))
        for start in (0, 37, 89):
            reader.seek(partition, start)
            again = [(record.offset, record.value) for record in await take(reader, 90 - start)]
            assert again == everything[start:]
        assert await reader.position(partition) == 90
        assert reader.highwater(partition) == 90


@story
async def test_reading_from_the_end_waits_for_what_comes_after(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 5)
    settings = {"fetch_max_wait_ms": 120_000, "request_timeout_ms": 180_000}
    async with consumer(bootstrap, topic, **settings) as reader, producer(bootstrap) as writer:
        await reader.seek_to_end()
        assert await reader.position(TopicPartition(topic, 0)) == 5
        waiting = asyncio.create_task(reader.getone())
        await writer.send_and_wait(topic, b"new")
        record = await asyncio.wait_for(waiting, DEADLINE)
        assert (record.offset, record.value) == (5, b"new")


@pytest.mark.parametrize("codec", CODECS)
@story
async def test_offsets_for_times_finds_the_record_within_its_batch(
    bootstrap: str, topic: str, codec: str
) -> None:
    await fill(bootstrap, topic, 100, compression_type=None if codec == "none" else codec)
    partition = TopicPartition(topic, 0)
    async with consumer(bootstrap, topic) as reader:
        for asked, offset in [(-T0, 0), (0, 0), (1, 1), (45, 5), (990, 99)]:
            found = (await reader.offsets_for_times({partition: T0 + asked}))[partition]
            assert (found.offset, found.timestamp) == (offset, T0 + 10 * offset)
        assert (await reader.offsets_for_times({partition: T0 + 991}))[partition] is None
        assert await reader.beginning_offsets([partition]) == {partition: 0}
        assert await reader.end_offsets([partition]) == {partition: 100}


@story
async def test_a_tiny_fetch_limit_still_yields_a_whole_batch(bootstrap: str, topic: str) -> None:
    async with producer(bootstrap) as writer:
        for index in range(3):
            await writer.send_and_wait(topic, bytes([index]) * 5000)
    limits = {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1}
    async with consumer(bootstrap, topic, **limits) as reader:
        got = values(await take(reader, 3))
    assert got == [bytes([index]) * 5000 for index in range(3)]


@story
async def test_an_offset_out_of_range_resets_as_the_client_was_told(
    bootstrap: str, topic: str
) -> None:
    await fill(bootstrap, topic, 3)
    partition = TopicPartition(topic, 0)
    async with consumer(bootstrap, topic) as reader:
        reader.seek(partition, 1_000_000)
        assert [record.offset for record in await take(reader, 3)] == [0, 1, 2]
    async with consumer(bootstrap, topic, auto_offset_reset="none") as reader:
        reader.seek(partition, 1_000_000)
        with pytest.raises(OffsetOutOfRangeError):
            await take(reader, 1)


@story
async def test_a_producer_outlives_the_deletion_of_its_topic(
    bootstrap: str, wire: Wire, topic: str
) -> None:
    before = describe_topic(wire, topic).topic_id
    async with producer(bootstrap) as writer:
        for index in range(3):
            assert (await writer.send_and_wait(topic, b"old")).offset == index
        delete_topic(wire, topic)
        assert (await writer.send_and_wait(topic, b"new")).offset == 0
    assert describe_topic(wire, topic).topic_id != before


@pytest.mark.differs("a subject has one partition, however many are asked for")
@story
async def test_topics_are_created_described_and_deleted(
    bootstrap: str, name: str, is_kafka: bool
) -> None:
    async with admin(bootstrap) as client:
        answer = await client.create_topics([NewTopic(name, 3, 1)])
        assert [error[:2] for error in answer.topic_errors] == [(name, 0)]
        answer = await client.create_topics([NewTopic(name, 3, 1)])
        assert [error[:2] for error in answer.topic_errors] == [(name, 36)]
        while name not in await client.list_topics():
            pass
        (described,) = await client.describe_topics([name])
        assert len(described["partitions"]) == (3 if is_kafka else 1)
        cluster = await client.describe_cluster()
        assert cluster["controller_id"] == cluster["brokers"][0]["node_id"]
        answer = await client.delete_topics([name])
        assert list(answer.topic_error_codes) == [(name, 0)]


@story
async def test_validate_only_creates_nothing(bootstrap: str, wire: Wire, name: str) -> None:
    async with admin(bootstrap) as client:
        answer = await client.create_topics([NewTopic(name, 1, 1)], validate_only=True)
        assert [error[:2] for error in answer.topic_errors] == [(name, 0)]
        answer = await client.create_topics([NewTopic("a b", 1, 1)], validate_only=True)
        assert [error[:2] for error in answer.topic_errors] == [("a b", 17)]
    assert describe_topic(wire, name).error_code == 3


@pytest.mark.differs("a subject keeps its one partition")
@story
async def test_more_partitions_are_refused_with_the_reason(bootstrap: str, topic: str) -> None:
    async with admin(bootstrap) as client:
        with pytest.raises(InvalidPartitionsError, match="partition"):
            await client.create_partitions({topic: NewPartitions(4)})


@story
async def test_more_partitions_for_an_unknown_topic_are_refused(bootstrap: str, name: str) -> None:
    async with admin(bootstrap) as client:
        with pytest.raises(UnknownTopicOrPartitionError):
            await client.create_partitions({name: NewPartitions(4)})


@story
async def test_configs_are_altered_the_old_way_and_described(bootstrap: str, topic: str) -> None:
    wanted = {"retention.ms": "3600000", "min.insync.replicas": "2"}
    async with admin(bootstrap) as client:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=wanted)
        (answer,) = await client.alter_configs([resource])
        assert [each[0] for each in answer.resources] == [0]

        async def described() -> dict[str, str]:
            everything = ConfigResource(ConfigResourceType.TOPIC, topic)
            (answer,) = await client.describe_configs([everything])
            (found,) = answer.resources
            assert found[0] == 0
            return {config[0]: config[1] for config in found[4]}

        while not wanted.items() <= (await described()).items():
            pass
        assert (await described())["max.message.bytes"] == "1048588"


@story
async def test_deleted_records_are_gone_and_earliest_moves(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)
    async with admin(bootstrap) as client:
        deleted = await client.delete_records({partition: RecordsToDelete(before_offset=4)})
        assert deleted == {partition: 4}
    async with consumer(bootstrap, topic) as reader:
        assert await reader.beginning_offsets([partition]) == {partition: 4}
        assert (await reader.getone()).offset == 4
