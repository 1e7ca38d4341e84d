"""Configs and options that a restart, a crash or a lost SQL file takes away, or messages with them."""

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


def test_retention_beyond_the_brokers_is_refused_over_the_wire_with_the_reason() -> None:
    with broker(log_retention_hours=1) as b:
        create(b, "orders")
        assert configs(b, "orders")["retention.ms"] == "3600000"
        assert "longer than the broker's log.retention.ms=3600000" in alter(
            b, "orders", "retention.ms", "3600001"
        )
        assert configs(b, "orders")["retention.ms"] == "3600000"


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
