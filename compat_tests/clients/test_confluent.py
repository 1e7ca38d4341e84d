"""confluent-kafka (librdkafka): producing and reading. Its admin client: test_confluent_admin.py."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from compat_tests.support import CODECS, DEADLINE, LARGE, T0, TOO_LARGE
from compat_tests.wire.connection import Wire, create_topic, delete_topic, describe_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def producer(bootstrap: str, **settings: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **named})


def send(writer: Producer, topic: str, *messages: dict[str, Any]) -> list[Message]:
    """Sends all and waits for all; gives what was delivered. Raises on the first error."""
    delivered: list[Message] = []
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        delivered.append(message)

    for message in messages:
        writer.produce(topic, **message, on_delivery=on_delivery)
    assert writer.flush(DEADLINE) == 0, "not answered in time"
    if errors:
        raise KafkaException(errors[0])
    return delivered


def fill(bootstrap: str, topic: str, count: int, **settings: Any) -> None:
    """One batch: values b"0", b"1", …, timestamps T0, T0 + 10, …"""
    messages = [
        {"value": str(index).encode(), "timestamp": T0 + 10 * index} for index in range(count)
    ]
    send(producer(bootstrap, **{"linger_ms": 100, **settings}), topic, *messages)


@contextmanager
def consumer(
    bootstrap: str, *topics: str, offset: int = OFFSET_BEGINNING, **settings: Any
) -> Iterator[Consumer]:
    """Reads by assignment; librdkafka wants a group's name all the same."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **named,
        }
    )
    try:
        made.assign([TopicPartition(topic, 0, offset) for topic in topics])
        yield made
    finally:
        made.close()


def take(reader: Consumer, count: int) -> list[Message]:
    got: list[Message] = []
    while len(got) < count:
        message = reader.poll(DEADLINE)
        assert message is not None, f"only {len(got)} of {count} came"
        if (error := message.error()) is not None:
            raise KafkaException(error)
        got.append(message)
    return got


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_what_is_produced_is_read_at_every_level_of_acks(
    bootstrap: str, topic: str, acks: str
) -> None:
    messages = [{"value": f"v{index}".encode(), "key": b"k"} for index in range(20)]
    send(producer(bootstrap, acks=acks), topic, *messages)
    with consumer(bootstrap, topic) as reader:
        got = take(reader, 20)
    assert values(got) == [message["value"] for message in messages]
    assert [message.offset() for message in got] == list(range(20))
    assert {message.key() for message in got} == {b"k"}


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_round_trips(bootstrap: str, topic: str, codec: str) -> None:
    messages = [{"value": f"{index}-".encode() * 200} for index in range(50)]
    send(producer(bootstrap, compression_type=codec), topic, *messages)
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 50)) == [message["value"] for message in messages]


def test_keys_values_headers_and_timestamps_come_back_as_they_went(
    bootstrap: str, topic: str
) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("nul", None), ("ü", b"\x00\xff")]
    send(
        producer(bootstrap),
        topic,
        {"value": None, "key": b"tombstone", "timestamp": T0 + 5},
        {"value": b"", "headers": headers, "timestamp": T0},
    )
    with consumer(bootstrap, topic) as reader:
        tombstone, empty = take(reader, 2)
    assert (tombstone.key(), tombstone.value()) == (b"tombstone", None)
    assert tombstone.timestamp() == (TIMESTAMP_CREATE_TIME, T0 + 5)
    assert (empty.key(), empty.value()) == (None, b"")
    assert empty.timestamp() == (TIMESTAMP_CREATE_TIME, T0)
    assert empty.headers() == headers


def test_a_large_message_passes_and_a_larger_one_is_refused(bootstrap: str, topic: str) -> None:
    value = bytes(range(256)) * (LARGE // 256)
    writer = producer(bootstrap, message_max_bytes=4_000_000)
    send(writer, topic, {"value": value})
    with pytest.raises(KafkaException) as refused:
        send(writer, topic, {"value": bytes(TOO_LARGE)})
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert send(writer, topic, {"value": b"fits"})[0].offset() == 1
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 2)) == [value, b"fits"]


def test_an_idempotent_producer_gets_dense_offsets(bootstrap: str, topic: str) -> None:
    writer = producer(bootstrap, enable_idempotence=True, batch_num_messages=7)
    messages = [{"value": str(index).encode()} for index in range(500)]
    delivered = send(writer, topic, *messages)
    assert [message.offset() for message in delivered] == list(range(500))
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 500)) == [message["value"] for message in messages]


def test_one_producer_and_one_consumer_work_on_many_topics(
    bootstrap: str, wire: Wire, names: Callable[[], str]
) -> None:
    topics = [names() for _ in range(30)]
    for each in topics:
        create_topic(wire, each)
    writer = producer(bootstrap)
    for each in topics:
        writer.produce(each, each.encode())
        writer.produce(each, b"2")
    assert writer.flush(DEADLINE) == 0
    with consumer(bootstrap, *topics) as reader:
        got = [(message.topic(), message.offset()) for message in take(reader, 60)]
    assert sorted(got) == sorted((each, offset) for each in topics for offset in (0, 1))


def test_producing_to_an_unknown_topic_creates_it(bootstrap: str, name: str) -> None:
    assert send(producer(bootstrap), name, {"value": b"first"})[0].offset() == 0
    with consumer(bootstrap, name) as reader:
        assert values(take(reader, 1)) == [b"first"]


def test_reading_from_an_offset_and_again_gives_the_same_records(
    bootstrap: str, topic: str
) -> None:
    for _ in range(3):
        fill(bootstrap, topic, 30)
    with consumer(bootstrap, topic) as reader:
        everything = [(message.offset(), message.value()) for message in take(reader, 90)]
        assert [offset for offset, _ in everything] == list(range(90))
        for start in (0, 37, 89):
            reader.seek(TopicPartition(topic, 0, start))
            again = [(message.offset(), message.value()) for message in take(reader, 90 - start)]
            assert again == everything[start:]
        assert reader.get_watermark_offsets(TopicPartition(topic, 0)) == (0, 90)


def test_reading_from_the_end_waits_for_what_comes_after(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 5)
    got: list[Message] = []
    settings = {"fetch_wait_max_ms": 120_000, "socket_timeout_ms": 180_000}
    with consumer(bootstrap, topic, offset=5, **settings) as reader:
        waiting = threading.Thread(target=lambda: got.extend(take(reader, 1)))
        waiting.start()
        send(producer(bootstrap), topic, {"value": b"new"})
        waiting.join(DEADLINE)
        assert [(message.offset(), message.value()) for message in got] == [(5, b"new")]


def test_assigning_the_end_starts_behind_what_is_there(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 5)
    writer = producer(bootstrap)
    with consumer(bootstrap, topic, offset=OFFSET_END, enable_partition_eof=True) as reader:
        with pytest.raises(KafkaException) as eof:
            take(reader, 1)
        assert eof.value.args[0].code() == KafkaError._PARTITION_EOF
        send(writer, topic, {"value": b"new"})
        (message,) = take(reader, 1)
        assert (message.offset(), message.value()) == (5, b"new")


@pytest.mark.parametrize("codec", CODECS)
def test_offsets_for_times_finds_the_record_within_its_batch(
    bootstrap: str, topic: str, codec: str
) -> None:
    fill(bootstrap, topic, 100, compression_type=codec)
    with consumer(bootstrap, topic) as reader:

        def find(timestamp: int) -> int:
            asked = TopicPartition(topic, 0, timestamp)
            return int(reader.offsets_for_times([asked], DEADLINE)[0].offset)

        assert [find(T0 + each) for each in (-T0, 0, 1, 45, 990)] == [0, 0, 1, 5, 99]
        assert find(T0 + 991) == OFFSET_END
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE) == (0, 100)


def test_a_tiny_fetch_limit_still_yields_a_whole_batch(bootstrap: str, topic: str) -> None:
    for index in range(3):
        send(producer(bootstrap), topic, {"value": bytes([index]) * 5000})
    limits = {"fetch_message_max_bytes": 1000, "fetch_max_bytes": 1000, "message_max_bytes": 1000}
    with consumer(bootstrap, topic, **limits) as reader:
        assert values(take(reader, 3)) == [bytes([index]) * 5000 for index in range(3)]


def test_an_offset_out_of_range_resets_as_the_client_was_told(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3)
    with consumer(bootstrap, topic, offset=1_000_000) as reader:
        assert [message.offset() for message in take(reader, 3)] == [0, 1, 2]
    with consumer(bootstrap, topic, offset=1_000_000, auto_offset_reset="error") as reader:
        with pytest.raises(KafkaException) as failed:
            take(reader, 1)
        assert failed.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_a_producer_outlives_the_deletion_of_its_topic(
    bootstrap: str, wire: Wire, topic: str
) -> None:
    before = describe_topic(wire, topic).topic_id
    writer = producer(bootstrap)
    for index in range(3):
        assert send(writer, topic, {"value": b"old"})[0].offset() == index
    delete_topic(wire, topic)
    create_topic(wire, topic)
    assert send(writer, topic, {"value": b"new"})[0].offset() == 0
    assert describe_topic(wire, topic).topic_id != before
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 1)) == [b"new"]
