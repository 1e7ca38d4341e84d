"""kafka-python: its admin client on topics, configs, records and the cluster."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from kafka.admin import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    OffsetSpec,
)
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from compat_tests.clients.test_kafka_python import consumer, fill, producer, take, values
from compat_tests.support import DEADLINE, T0, eventually
from compat_tests.wire.connection import Wire, create_topic, delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as made:
        yield made


@contextmanager
def closing(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        client.close()


def configs_of(admin: KafkaAdminClient, topic: str) -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    described = admin.describe_configs([resource], config_filter="all")
    found: dict[str, Any] = described["topic"][topic]
    return found


def alter(admin: KafkaAdminClient, topic: str, **kwargs: Any) -> str:
    """Gives "OK", or what the broker said against it."""
    settings: dict[str, Any] = kwargs.pop("settings")
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)
    said: str = admin.alter_configs([resource], **kwargs)["topic"][topic]
    return said


@pytest.mark.differs("a subject has one partition, however many are asked for; the answer says so")
def test_a_topic_with_many_partitions_is_created(
    admin: KafkaAdminClient, name: str, is_kafka: bool
) -> None:
    made = admin.create_topics({name: {"num_partitions": 6, "replication_factor": 1}})["topics"][0]
    assert (made["error_code"], made["name"]) == (0, name)
    assert made["num_partitions"] == (6 if is_kafka else 1)
    assert made["replication_factor"] == 1
    admin.wait_for_topics([name])
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == (6 if is_kafka else 1)
    assert described["topic_id"] == made["topic_id"]
    assert uuid.UUID(described["topic_id"]).int != 0


@pytest.mark.differs("any replication factor is accepted, since everyday scripts ask for 3")
def test_a_replication_factor_of_three_is_answered_with_one(
    admin: KafkaAdminClient, name: str
) -> None:
    made = admin.create_topics({name: {"num_partitions": 1, "replication_factor": 3}})["topics"][0]
    assert (made["error_code"], made["replication_factor"]) == (0, 1)


def test_a_topic_that_exists_is_not_created_again(admin: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])


def test_validate_only_creates_nothing(admin: KafkaAdminClient, name: str, topic: str) -> None:
    answer = admin.create_topics([name], validate_only=True)["topics"][0]
    assert answer["error_code"] == 0
    assert name not in admin.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic], validate_only=True)


@pytest.mark.parametrize("bad", ["", "a b", "ü", "x" * 250, ".", "..", "a/b"])
def test_a_topic_name_that_is_not_allowed_is_refused(admin: KafkaAdminClient, bad: str) -> None:
    with pytest.raises(InvalidTopicError):
        admin.create_topics([bad])


def test_topics_are_listed_and_described(
    admin: KafkaAdminClient, wire: Wire, names: Callable[[], str]
) -> None:
    mine = [names() for _ in range(5)]
    for each in mine:
        create_topic(wire, each)
    assert set(mine) <= set(admin.list_topics())
    for described in admin.describe_topics(mine):
        (partition,) = described["partitions"]
        assert described["error_code"] == 0
        assert not described["is_internal"]
        assert partition["replica_nodes"] == partition["isr_nodes"] == [partition["leader_id"]]


def test_describing_an_unknown_topic_says_so(admin: KafkaAdminClient, name: str) -> None:
    (described,) = admin.describe_topics([name])
    assert described["error_code"] == UnknownTopicOrPartitionError.errno
    assert name not in admin.list_topics()


def test_the_cluster_is_described(admin: KafkaAdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster()
    (broker,) = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert cluster["controller_id"] == broker["broker_id"]
    assert cluster["cluster_id"]


def test_a_topic_deleted_and_recreated_is_another_topic(
    admin: KafkaAdminClient, bootstrap: str, wire: Wire, topic: str
) -> None:
    fill(bootstrap, topic, 5)
    before = admin.describe_topics([topic])[0]["topic_id"]
    delete_topic(wire, topic)
    create_topic(wire, topic)
    after = admin.describe_topics([topic])[0]["topic_id"]
    assert before != after
    with producer(bootstrap) as writer:
        assert writer.send(topic, b"new").get(DEADLINE).offset == 0
    with consumer(bootstrap, topic) as reader:
        assert values(take(reader, 1)) == [b"new"]


def test_a_topic_is_deleted_by_its_id(admin: KafkaAdminClient, topic: str) -> None:
    topic_id = uuid.UUID(admin.describe_topics([topic])[0]["topic_id"])
    answer = admin.delete_topics([topic_id])["topics"][0]
    assert (answer["error_code"], answer["name"]) == (0, topic)
    eventually(lambda: topic not in admin.list_topics(), "the topic is gone")
    answer = admin.delete_topics([uuid.uuid4()], raise_errors=False)["topics"][0]
    assert answer["error_code"] == 100


def test_deleting_an_unknown_topic_says_so(admin: KafkaAdminClient, name: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


@pytest.mark.differs("a subject keeps its one partition")
def test_more_partitions_are_refused_with_the_reason(admin: KafkaAdminClient, topic: str) -> None:
    answer = admin.create_partitions({topic: 4}, raise_errors=False).results[0]
    assert answer.error_code == InvalidPartitionsError.errno
    assert answer.error_message
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 1


def test_more_partitions_for_an_unknown_topic_are_refused(
    admin: KafkaAdminClient, name: str
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.create_partitions({name: 4})


def test_configs_are_described_with_their_defaults(admin: KafkaAdminClient, topic: str) -> None:
    configs = configs_of(admin, topic)
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
    }
    assert {key: configs[key]["value"] for key in expected} == expected
    for key in ("max.message.bytes", "message.timestamp.type"):
        assert configs[key]["config_source"] == "DEFAULT_CONFIG"
        assert not configs[key]["read_only"]
    assert configs["retention.ms"]["config_type"] == "LONG"


def test_configs_given_at_creation_are_stored_and_shown(admin: KafkaAdminClient, name: str) -> None:
    given = {"min.insync.replicas": "2", "segment.bytes": "2097152", "retention.ms": "3600000"}
    admin.create_topics({name: {"configs": given}}, wait_for_metadata=True)
    configs = configs_of(admin, name)
    assert {key: configs[key]["value"] for key in given} == given
    assert {configs[key]["config_source"] for key in given} == {"DYNAMIC_TOPIC_CONFIG"}


def test_configs_are_set_and_unset_one_by_one(admin: KafkaAdminClient, topic: str) -> None:
    settings: dict[str, Any] = {"retention.ms": "3600000", "segment.bytes": "2097152"}
    assert alter(admin, topic, settings=settings) == "OK"
    eventually(lambda: configs_of(admin, topic)["segment.bytes"]["value"] == "2097152", "is set")
    settings = {"segment.bytes": (AlterConfigOp.DELETE, None)}
    assert alter(admin, topic, settings=settings) == "OK"
    eventually(lambda: configs_of(admin, topic)["segment.bytes"]["value"] == "1073741824", "unset")
    assert configs_of(admin, topic)["retention.ms"]["value"] == "3600000"


def test_the_old_way_of_altering_configs_works(admin: KafkaAdminClient, topic: str) -> None:
    settings = {"retention.ms": "3600000"}
    assert alter(admin, topic, settings=settings, incremental=False) == "OK"
    eventually(lambda: configs_of(admin, topic)["retention.ms"]["value"] == "3600000", "is set")


def test_altering_with_validate_only_changes_nothing(admin: KafkaAdminClient, topic: str) -> None:
    settings = {"retention.ms": "3600000"}
    assert alter(admin, topic, settings=settings, validate_only=True) == "OK"
    assert configs_of(admin, topic)["retention.ms"]["value"] == "604800000"


@pytest.mark.parametrize(
    "setting",
    [("retention.ms", "soon"), ("max.message.bytes", "-7"), ("message.timestamp.type", "Sundial")],
)
def test_a_bad_value_is_refused_with_the_reason(
    admin: KafkaAdminClient, topic: str, name: str, setting: tuple[str, str]
) -> None:
    key, value = setting
    said = alter(admin, topic, settings={key: value})
    assert "[Error 40]" in said
    assert key in said
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({name: {"configs": {key: value}}})


def test_an_unknown_config_is_refused(admin: KafkaAdminClient, topic: str, name: str) -> None:
    said = alter(admin, topic, settings={"no.such.config": "1"}, raise_on_unknown=False)
    assert "[Error 40]" in said
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({name: {"configs": {"no.such.config": "1"}}})


@pytest.mark.differs("Kumquat does not compact, so it does not promise to")
def test_compaction_is_refused_with_the_reason(
    admin: KafkaAdminClient, topic: str, name: str
) -> None:
    said = alter(admin, topic, settings={"cleanup.policy": "compact"})
    assert "[Error 40]" in said
    assert "cleanup.policy" in said
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({name: {"configs": {"cleanup.policy": "compact"}}})


def test_max_message_bytes_takes_effect(
    admin: KafkaAdminClient, bootstrap: str, topic: str
) -> None:
    with producer(bootstrap, enable_idempotence=False, retries=0) as writer:
        assert writer.send(topic, bytes(5000)).get(DEADLINE).offset == 0
        assert alter(admin, topic, settings={"max.message.bytes": "1000"}) == "OK"
        configured = "max.message.bytes"
        eventually(lambda: configs_of(admin, topic)[configured]["value"] == "1000", "is set")
        with pytest.raises(MessageSizeTooLargeError):
            writer.send(topic, bytes(5000)).get(DEADLINE)
        assert writer.send(topic, bytes(500)).get(DEADLINE).offset == 1


def test_log_append_time_takes_effect(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    with producer(bootstrap) as writer:
        sent = writer.send(topic, b"x", timestamp_ms=T0).get(DEADLINE)
    assert sent.timestamp >= T0 + 60_000
    with consumer(bootstrap, topic) as reader:
        (record,) = take(reader, 1)
        assert (record.timestamp, record.timestamp_type) == (sent.timestamp, 1)
        partition = TopicPartition(topic, 0)
        assert reader.offsets_for_times({partition: T0 + 1})[partition].offset == 0
        assert reader.offsets_for_times({partition: sent.timestamp + 1})[partition] is None


def test_retention_ms_takes_effect(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    assert alter(admin, topic, settings={"retention.ms": "1000"}) == "OK"
    partition = TopicPartition(topic, 0)
    with consumer(bootstrap, topic) as reader:
        eventually(lambda: reader.beginning_offsets([partition])[partition] == 10, "all expired")
        assert reader.end_offsets([partition])[partition] == 10
    with producer(bootstrap) as writer:
        assert writer.send(topic, b"next").get(DEADLINE).offset == 10


def test_deleted_records_are_gone_and_earliest_moves(
    admin: KafkaAdminClient, bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)
    assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    with consumer(bootstrap, topic) as reader:
        assert reader.beginning_offsets([partition]) == {partition: 4}
        assert [record.offset for record in take(reader, 6)] == [4, 5, 6, 7, 8, 9]
        reader.seek(partition, 0)
        assert take(reader, 1)[0].offset == 4
        with pytest.raises(OffsetOutOfRangeError):
            admin.delete_records({partition: 11})
        assert admin.delete_records({partition: 2})[partition]["low_watermark"] == 4
        assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 10
        assert reader.beginning_offsets([partition]) == {partition: 10}


def test_offsets_are_listed_by_every_spec(
    admin: KafkaAdminClient, bootstrap: str, topic: str
) -> None:
    partition = TopicPartition(topic, 0)

    def listed(spec: int) -> tuple[int, int]:
        found = admin.list_partition_offsets({partition: spec})[partition]
        return found.offset, found.timestamp

    assert listed(OffsetSpec.MAX_TIMESTAMP) == (-1, -1)
    with producer(bootstrap, linger_ms=100) as writer:
        for offset in (10, 30, 20):
            writer.send(topic, b"x", timestamp_ms=T0 + offset)
        writer.flush(DEADLINE)
    assert listed(OffsetSpec.EARLIEST) == (0, -1)
    assert listed(OffsetSpec.LATEST) == (3, -1)
    assert listed(OffsetSpec.MAX_TIMESTAMP) == (1, T0 + 30)
    assert listed(T0 + 15) == (1, T0 + 30)
    assert listed(T0 + 31) == (-1, -1)


def test_log_dirs_are_described(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 10)
    (broker,) = admin.describe_log_dirs({topic: [0]})
    (folder,) = broker["log_dirs"]
    assert folder["error_code"] == 0
    assert folder["log_dir"].startswith("/")
    (described,) = folder["topics"]
    assert described["name"] == topic
    assert described["partitions"][0]["partition_size"] > 10
