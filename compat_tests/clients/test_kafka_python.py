"""kafka-python: producing and reading. (Its admin client: test_kafka_python_admin.py.)"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from compat_tests.support import CODECS, DEADLINE, LARGE, T0, TOO_LARGE
from compat_tests.wire.connection import Wire, create_topic, delete_topic, describe_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLOSE = 5


@contextmanager
def producer(bootstrap: str, **settings: Any) -> Iterator[KafkaProducer]:
    made = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    try:
        yield made
    finally:
        made.close(timeout=CLOSE)


@contextmanager
def consumer(bootstrap: str, *topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    """Reads by assignment, from the beginning unless it seeks."""
    defaults = {"group_id": None, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    made = KafkaConsumer(bootstrap_servers=bootstrap, **(defaults | settings))
    try:
        made.assign([TopicPartition(topic, 0) for topic in topics])
        yield made
    finally:
        made.close()


def take(reader: KafkaConsumer, count: int) -> list[Any]:
    """The next `count` records, or as many as came within the deadline."""
    got: list[Any] = []
    while len(got) < count:
        polled = reader.poll(timeout_ms=int(DEADLINE * 1000), max_records=count - len(got))
        if not polled:
            break
        got += [record for records in polled.values() for record in records]
    return got


def fill(bootstrap: str, topic: str, count: int, **settings: Any) -> None:
    """`count` records with the values b"0", b"1", … and the timestamps T0, T0 + 10, …"""
    with producer(bootstrap, **settings) as writer:
        for index in range(count):
            writer.send(topic, str(index).encode(), timestamp_ms=T0 + 10 * index)
        writer.flush(DEADLINE)


def values(records: list[Any]) -> list[bytes]:
    return [record.value for record in records]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_what_is_produced_is_read_at_every_level_of_acks(
    bootstrap: str, topic: str, acks: int | str
) -> None:
    with producer(bootstrap, acks=acks, enable_idempotence=acks == "all") as writer:
        for index in range(20):
            writer.send(topic, f"v{index}".encode(), key=b"k")
        writer.flush(DEADLINE)
    with consumer(bootstrap, topic) as reader:
        got = take(reader, 20)
    assert values(got) == [f"v{index}".encode() for index in range(20)]
    assert [record.offset for record in got] == list(range(20))
    assert {record.key for record in got} == {b"k"}


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_round_trips(bootstrap: str, topic: str, codec: str) -> None:
    compression = None if codec == "none" else codec
    sent = [f"{index}-".encode() * 200 for index in range(50)]
    with producer(bootstrap, compression_type=compression, linger_ms=50) as writer:
        for value in sent:
            writer.send(topic, value)
        writer.flush(DEADLINE)
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 50)) == sent


def test_keys_values_headers_and_timestamps_come_back_as_they_went(
    bootstrap: str, topic: str
) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("ü", b"\x00\xff")]
    with producer(bootstrap) as writer:
        first = writer.send(topic, None, key=b"tombstone", timestamp_ms=T0 + 5)
        first = first.get(DEADLINE)
        writer.send(topic, b"", key=None, headers=headers, timestamp_ms=T0).get(DEADLINE)
    assert (first.offset, first.partition, first.timestamp) == (0, 0, T0 + 5)
    with consumer(bootstrap, topic) as reader:
        tombstone, empty = take(reader, 2)
    assert (tombstone.key, tombstone.value, tombstone.timestamp) == (b"tombstone", None, T0 + 5)
    assert (empty.key, empty.value, empty.timestamp) == (None, b"", T0)
    assert list(empty.headers) == headers
    assert empty.timestamp_type == 0


def test_a_large_message_passes(bootstrap: str, topic: str) -> None:
    value = bytes(range(256)) * (LARGE // 256)
    with producer(bootstrap) as writer:
        writer.send(topic, value).get(DEADLINE)
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 1)) == [value]


def test_a_message_over_the_limit_is_refused_and_the_next_one_is_not(
    bootstrap: str, topic: str
) -> None:
    with producer(bootstrap, max_request_size=4_000_000, enable_idempotence=False) as writer:
        with pytest.raises(MessageSizeTooLargeError):
            writer.send(topic, bytes(TOO_LARGE)).get(DEADLINE)
        assert writer.send(topic, b"fits").get(DEADLINE).offset == 0


def test_an_idempotent_producer_gets_dense_offsets(bootstrap: str, topic: str) -> None:
    with producer(
        bootstrap, enable_idempotence=True, batch_size=200, max_in_flight_requests_per_connection=5
    ) as writer:
        sent = [writer.send(topic, str(index).encode()) for index in range(500)]
        assert [each.get(DEADLINE).offset for each in sent] == list(range(500))
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 500)) == [str(index).encode() for index in range(500)]


def test_one_producer_and_one_consumer_work_on_many_topics(
    bootstrap: str, wire: Wire, names: Callable[[], str]
) -> None:
    topics = [names() for _ in range(30)]
    for each in topics:
        create_topic(wire, each)
    with producer(bootstrap) as writer:
        for each in topics:
            writer.send(each, each.encode())
            writer.send(each, b"2")
        writer.flush(DEADLINE)
    with consumer(bootstrap, *topics) as reader:
        got = take(reader, 60)
    assert sorted((record.topic, record.offset) for record in got) == sorted(
        (each, offset) for each in topics for offset in (0, 1)
    )


def test_producing_to_an_unknown_topic_creates_it(bootstrap: str, name: str) -> None:
    with producer(bootstrap) as writer:
        assert writer.send(name, b"first").get(DEADLINE).offset == 0
    with consumer(bootstrap, name) as reader:
        assert values(take(reader, 1)) == [b"first"]


def test_reading_from_an_offset_and_again_gives_the_same_records(
    bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, 100, linger_ms=20)
    partition = TopicPartition(topic, 0)
    with consumer(bootstrap, topic) as reader:
        everything = [(record.offset, record.value) for record in take(reader, 100)]
        for start in (0, 37, 99):
            reader.seek(partition, start)
            again = [(record.offset, record.value) for record in take(reader, 100 - start)]
            assert again == everything[start:]
        assert reader.position(partition) == 100
        assert reader.highwater(partition) == 100


def test_reading_from_the_end_gives_only_what_comes_after(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 5)
    with consumer(bootstrap, topic) as reader, producer(bootstrap) as writer:
        reader.seek_to_end()
        assert reader.position(TopicPartition(topic, 0)) == 5
        writer.send(topic, b"new").get(DEADLINE)
        assert [(record.offset, record.value) for record in take(reader, 1)] == [(5, b"new")]


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_for_times_finds_the_record_within_its_batch(
    bootstrap: str, topic: str, codec: str
) -> None:
    compression = None if codec == "none" else codec
    fill(bootstrap, topic, 10, linger_ms=100, compression_type=compression)
    partition = TopicPartition(topic, 0)
    with consumer(bootstrap, topic) as reader:
        for asked, offset, timestamp in [
            (-T0, 0, 0), (0, 0, 0), (1, 1, 10), (45, 5, 50), (90, 9, 90)
        ]:  # fmt: skip
            found = reader.offsets_for_times({partition: T0 + asked})[partition]
            assert (found.offset, found.timestamp) == (offset, T0 + timestamp)
        assert reader.offsets_for_times({partition: T0 + 91})[partition] is None


def test_earliest_and_latest_offsets(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with consumer(bootstrap, topic) as reader:
        assert reader.beginning_offsets([partition]) == {partition: 0}
        assert reader.end_offsets([partition]) == {partition: 0}
        fill(bootstrap, topic, 7)
        assert reader.beginning_offsets([partition]) == {partition: 0}
        assert reader.end_offsets([partition]) == {partition: 7}


def test_a_waiting_poll_ends_when_a_message_arrives(bootstrap: str, topic: str) -> None:
    got: list[Any] = []
    settings = {"fetch_max_wait_ms": 120_000, "request_timeout_ms": 180_000}
    with producer(bootstrap) as writer, consumer(bootstrap, topic, **settings) as reader:
        reader.position(TopicPartition(topic, 0))
        waiting = threading.Thread(target=lambda: got.extend(take(reader, 1)))
        waiting.start()
        writer.send(topic, b"wake up").get(DEADLINE)
        waiting.join(DEADLINE)
        assert values(got) == [b"wake up"]


@pytest.mark.parametrize("setting", ["fetch_max_bytes", "max_partition_fetch_bytes"])
def test_a_tiny_fetch_limit_still_yields_a_whole_batch(
    bootstrap: str, topic: str, setting: str
) -> None:
    with producer(bootstrap) as writer:
        for index in range(3):
            writer.send(topic, bytes([index]) * 5000).get(DEADLINE)
    with consumer(bootstrap, topic, **{setting: 1}) as reader:
        assert values(take(reader, 3)) == [bytes([index]) * 5000 for index in range(3)]


def test_an_offset_out_of_range_resets_as_the_client_was_told(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3)
    partition = TopicPartition(topic, 0)
    with consumer(bootstrap, topic, auto_offset_reset="earliest") as reader:
        reader.seek(partition, 1_000_000)
        assert [record.offset for record in take(reader, 3)] == [0, 1, 2]
    with consumer(bootstrap, topic, auto_offset_reset="none") as reader:
        reader.seek(partition, 1_000_000)
        with pytest.raises(OffsetOutOfRangeError):
            take(reader, 1)


def test_a_producer_outlives_the_deletion_of_its_topic(
    bootstrap: str, wire: Wire, topic: str
) -> None:
    before = describe_topic(wire, topic)
    with producer(bootstrap, retry_backoff_ms=50) as writer:
        for index in range(3):
            assert writer.send(topic, b"old").get(DEADLINE).offset == index
        delete_topic(wire, topic)
        assert writer.send(topic, b"new").get(DEADLINE).offset == 0
    assert describe_topic(wire, topic).topic_id != before.topic_id
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 1)) == [b"new"]
