"""Configs and options that a restart, a crash or a lost SQL file takes away, or messages with them."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from kumquat.gateway.testing.broker import TestBroker, broker

LOG_APPEND_TIME = 2
DEADLINE = 90


def client(b: TestBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": b.bootstrap})


def create(b: TestBroker, name: str, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    admin = client(b)  # its futures fail when it is gone
    (created,) = admin.create_topics([NewTopic(name, config=named)]).values()
    created.result(DEADLINE)


def configs(b: TestBroker, name: str) -> dict[str, str]:
    admin = client(b)
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    return {key: entry.value for key, entry in described.result(DEADLINE).items()}


def alter(b: TestBroker, name: str, config: str, value: str) -> str:
    """Sets a config; gives why it was refused, or nothing."""
    entry = ConfigEntry(config, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin = client(b)
    (altered,) = admin.incremental_alter_configs([resource]).values()
    try:
        altered.result(DEADLINE)
    except KafkaException as error:
        return str(error)
    return ""


def write(b: TestBroker, name: str, value: bytes, timestamp: int = 0) -> None:
    producer = Producer({"bootstrap.servers": b.bootstrap})
    producer.produce(name, value, timestamp=timestamp)
    assert producer.flush(DEADLINE) == 0


def read(b: TestBroker, name: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": b.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(name, 0, 0)])
    try:
        return consumer.consume(count, timeout=DEADLINE)
    finally:
        consumer.close()


def test_configs_that_were_answered_outlive_a_kill(kumquat: TestBroker) -> None:
    create(kumquat, "orders", segment_ms="1000")
    assert alter(kumquat, "orders", "retention.ms", "60000") == ""
    kumquat.kill()
    kumquat.start()
    found = configs(kumquat, "orders")
    assert (found["segment.ms"], found["retention.ms"]) == ("1000", "60000")


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
def test_a_limit_out_of_bounds_is_refused_over_the_wire_with_the_bounds(name: str) -> None:
    with broker(log_retention_hours=1) as b:
        create(b, "orders")
        before = configs(b, "orders")[name]
        for value in ("-2", str(1 << 63)):
            refusal = alter(b, "orders", name, value)
            assert f"{name}='{value}'" in refusal
            assert "a whole number from 0 to 9223372036854775807, or -1 for no limit" in refusal
        assert configs(b, "orders")[name] == before


SMALL_AND_SHORT: dict[str, Any] = {
    "log_segment_bytes": 1 << 20,
    "log_retention_ms": 1000,
    "log_retention_check_interval_ms": 50,
}
"""Segments end with a few messages, and go a second later."""


def fill_a_segment(b: TestBroker, name: str) -> None:
    write(b, name, os.urandom(600_000))
    write(b, name, os.urandom(600_000))


def first_segment(b: TestBroker) -> Path:
    return b.directory / "messages" / f"{0:020d}.log"


def ends(b: TestBroker, name: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": b.bootstrap, "group.id": "unused"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=DEADLINE)
        return low, high
    finally:
        consumer.close()


def until_others_are_gone(b: TestBroker, name: str) -> None:
    """Until retention has looked at all that was there when this was called, and found it old."""
    fill_a_segment(b, name)
    _, written = ends(b, name)
    deadline = time.monotonic() + DEADLINE
    while ends(b, name)[0] < written:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("retention", ["-1", str((1 << 63) - 1), "86400000"])
@pytest.mark.parametrize("way", ["created", "altered"])
def test_what_is_kept_longer_than_the_log_stays_until_its_subject_lets_go(
    way: str, retention: str
) -> None:
    """Streams' repartition topics, ksqlDB, Apicurio and Debezium ask for it; Streams uses DeleteRecords."""
    with broker(**SMALL_AND_SHORT) as b:
        if way == "created":
            create(b, "history", retention_ms=retention, retention_bytes="-1")
        else:
            create(b, "history")
            assert alter(b, "history", "retention.ms", retention) == ""
            assert alter(b, "history", "retention.bytes", "-1") == ""
        create(b, "other")
        write(b, "history", b"for ever")
        fill_a_segment(b, "other")
        until_others_are_gone(b, "other")
        b.kill()
        b.start()
        until_others_are_gone(b, "other")
        found = configs(b, "history")
        assert (found["retention.ms"], found["retention.bytes"]) == (retention, "-1")
        assert [m.value() for m in read(b, "history", 1)] == [b"for ever"]
        assert first_segment(b).exists()
        assert "history keep their messages longer" in b.log_text()

        admin = client(b)
        (deleted,) = admin.delete_records([TopicPartition("history", 0, 1)]).values()
        deleted.result(DEADLINE)
        deadline = time.monotonic() + DEADLINE
        while first_segment(b).exists():
            assert time.monotonic() < deadline, "DeleteRecords did not let the segment go"
            time.sleep(0.05)


def test_a_lost_sql_file_has_nothing_deleted_that_was_kept_longer_than_the_log() -> None:
    with broker(**SMALL_AND_SHORT) as b:
        create(b, "history", retention_ms="-1")
        create(b, "other")
        write(b, "history", b"for ever")
        until_others_are_gone(b, "other")
        b.kill()
        for file in b.directory.glob("meta.db*"):
            file.unlink()
        b.start()
        assert "history) nothing is deleted" in b.log_text()
        assert configs(b, "history")["retention.ms"] == "-1"
        create(b, "later")
        until_others_are_gone(b, "later")
        assert [m.value() for m in read(b, "history", 1)] == [b"for ever"]


def test_the_brokers_timestamp_type_holds_for_subjects_after_a_restart() -> None:
    with broker(log_message_timestamp_type="LogAppendTime") as b:
        write(b, "orders", b"1", timestamp=5)
        b.stop()
        b.start()
        write(b, "orders", b"2", timestamp=5)
        assert [m.timestamp()[0] for m in read(b, "orders", 2)] == [LOG_APPEND_TIME] * 2


def test_a_lost_sql_file_costs_configs_and_no_message(kumquat: TestBroker) -> None:
    create(kumquat, "orders", segment_ms="1000")
    write(kumquat, "orders", b"1")
    kumquat.kill()
    for file in kumquat.directory.glob("meta.db*"):
        file.unlink()
    kumquat.start()
    assert [m.value() for m in read(kumquat, "orders", 1)] == [b"1"]
    assert configs(kumquat, "orders")["segment.ms"] == "604800000"
    assert (
        "2 subjects (__kumquat_retry, orders) that the meta store lacked: put back"
        in kumquat.log_text()
    )


def test_a_damaged_sql_file_is_set_aside_and_costs_no_message(kumquat: TestBroker) -> None:
    create(kumquat, "orders", segment_ms="1000")
    write(kumquat, "orders", b"1")
    kumquat.stop()
    (kumquat.directory / "meta.db").write_bytes(b"\x00garbage" * 5000)
    kumquat.start()
    assert [m.value() for m in read(kumquat, "orders", 1)] == [b"1"]
    assert alter(kumquat, "orders", "segment.ms", "2000") == ""
    assert len(list(kumquat.directory.glob("meta.db.corrupt-*"))) == 1
    assert "is damaged" in kumquat.log_text()
