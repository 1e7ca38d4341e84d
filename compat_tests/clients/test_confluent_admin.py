"""confluent-kafka (librdkafka): its admin client on topics, configs, records and the cluster."""

# The package is typed, but exports its admin names implicitly and leaves OffsetSpec bare.
# mypy: disable-error-code="attr-defined,no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from compat_tests.clients.test_confluent import consumer, fill, producer, send, take, values
from compat_tests.support import DEADLINE, T0, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

T = TypeVar("T")


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def only(answers: dict[Any, Future[T]]) -> T:
    """The one result, or the KafkaException that it failed with."""
    (answer,) = answers.values()
    return answer.result(DEADLINE)


def refusal(answers: dict[Any, Future[Any]]) -> KafkaError:
    with pytest.raises(KafkaException) as refused:
        only(answers)
    error = refused.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def configs_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    return only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))


def altered(
    topic: str, name: str, value: str | None, operation: AlterConfigOpType
) -> ConfigResource:
    entry = ConfigEntry(name, value, incremental_operation=operation)
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])


@pytest.mark.differs("a subject has one partition, however many are asked for")
def test_topics_are_created_listed_described_and_deleted(
    admin: AdminClient, name: str, is_kafka: bool
) -> None:
    new = NewTopic(name, num_partitions=3, replication_factor=1)
    only(admin.create_topics([new]))
    assert refusal(admin.create_topics([new])).code() == KafkaError.TOPIC_ALREADY_EXISTS
    eventually(lambda: name in admin.list_topics(timeout=DEADLINE).topics, "is listed")
    partitions = 3 if is_kafka else 1
    assert len(admin.list_topics(name, timeout=DEADLINE).topics[name].partitions) == partitions
    described = only(admin.describe_topics(TopicCollection([name])))
    assert len(described.partitions) == partitions
    assert described.topic_id is not None
    only(admin.delete_topics([name]))
    eventually(lambda: name not in admin.list_topics(timeout=DEADLINE).topics, "is gone")
    assert refusal(admin.delete_topics([name])).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only_creates_nothing(admin: AdminClient, name: str) -> None:
    only(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=DEADLINE).topics
    bad = admin.create_topics([NewTopic("a b", 1, 1)], validate_only=True)
    assert refusal(bad).code() == KafkaError.TOPIC_EXCEPTION


def test_an_unknown_topic_is_described_as_such(admin: AdminClient, name: str) -> None:
    described = admin.describe_topics(TopicCollection([name]))
    assert refusal(described).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    cluster = admin.describe_cluster().result(DEADLINE)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == bootstrap
    assert cluster.controller.id == node.id
    assert cluster.cluster_id


@pytest.mark.differs("a subject keeps its one partition")
def test_more_partitions_are_refused_with_the_reason(admin: AdminClient, topic: str) -> None:
    error = refusal(admin.create_partitions([NewPartitions(topic, 4)]))
    assert error.code() == KafkaError.INVALID_PARTITIONS
    assert "partition" in str(error.str())


def test_configs_are_set_and_unset_one_by_one(admin: AdminClient, topic: str) -> None:
    before = configs_of(admin, topic)["retention.ms"]
    assert before.is_default
    assert before.value == "604800000"
    only(
        admin.incremental_alter_configs(
            [altered(topic, "retention.ms", "3600000", AlterConfigOpType.SET)]
        )
    )
    eventually(lambda: configs_of(admin, topic)["retention.ms"].value == "3600000", "is set")
    source = ConfigSource(configs_of(admin, topic)["retention.ms"].source)
    assert source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    only(
        admin.incremental_alter_configs(
            [altered(topic, "retention.ms", None, AlterConfigOpType.DELETE)]
        )
    )
    eventually(lambda: configs_of(admin, topic)["retention.ms"].value == "604800000", "is unset")


def test_configs_that_change_nothing_visible_are_stored_and_shown(
    admin: AdminClient, name: str
) -> None:
    given = {"min.insync.replicas": "2", "segment.bytes": "2097152", "segment.ms": "60000"}
    only(admin.create_topics([NewTopic(name, 1, 1, config=given)]))
    eventually(lambda: name in admin.list_topics(timeout=DEADLINE).topics, "is listed")
    configs = configs_of(admin, name)
    assert {key: configs[key].value for key in given} == given


@pytest.mark.differs("Kumquat does not compact, so it does not promise to")
def test_compaction_is_refused_with_the_reason(admin: AdminClient, topic: str) -> None:
    change = altered(topic, "cleanup.policy", "compact", AlterConfigOpType.SET)
    error = refusal(admin.incremental_alter_configs([change]))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "cleanup.policy" in str(error.str())


def test_a_bad_value_is_refused_with_the_reason(admin: AdminClient, topic: str) -> None:
    change = altered(topic, "retention.ms", "soon", AlterConfigOpType.SET)
    error = refusal(admin.incremental_alter_configs([change]))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "retention.ms" in str(error.str())


def test_max_message_bytes_takes_effect(admin: AdminClient, bootstrap: str, topic: str) -> None:
    change = altered(topic, "max.message.bytes", "1000", AlterConfigOpType.SET)
    only(admin.incremental_alter_configs([change]))
    eventually(lambda: configs_of(admin, topic)["max.message.bytes"].value == "1000", "is set")
    writer = producer(bootstrap)
    with pytest.raises(KafkaException) as refused:
        send(writer, topic, {"value": bytes(5000)})
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert send(writer, topic, {"value": bytes(500)})[0].offset() == 0


def test_deleted_records_are_gone_and_earliest_moves(
    admin: AdminClient, bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, 10)
    deleted = only(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4
    with consumer(bootstrap, topic) as reader:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE) == (4, 10)
        assert values(take(reader, 1)) == [b"4"]


def test_offsets_are_listed_by_every_spec(admin: AdminClient, bootstrap: str, topic: str) -> None:
    messages = [{"value": b"x", "timestamp": T0 + each} for each in (10, 30, 20)]
    send(producer(bootstrap, linger_ms=100), topic, *messages)

    def listed(spec: OffsetSpec) -> tuple[int, int]:
        found = only(admin.list_offsets({TopicPartition(topic, 0): spec}))
        return found.offset, found.timestamp

    assert listed(OffsetSpec.earliest()) == (0, -1)
    assert listed(OffsetSpec.latest()) == (3, -1)
    assert listed(OffsetSpec.max_timestamp()) == (1, T0 + 30)
    assert listed(OffsetSpec.for_timestamp(T0 + 11)) == (1, T0 + 30)
    assert listed(OffsetSpec.for_timestamp(T0 + 31)) == (-1, -1)


def test_a_replication_factor_that_no_cluster_has_is_refused(
    admin: AdminClient, names: Callable[[], str]
) -> None:
    new = NewTopic(names(), num_partitions=1, replication_factor=9090)
    assert refusal(admin.create_topics([new])).code() == KafkaError.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("codec", ["producer", "gzip", "uncompressed"])
def test_a_codec_for_a_topic_is_taken_and_shown(
    bootstrap: str, admin: AdminClient, make_topic: Callable[..., str], codec: str
) -> None:
    name = make_topic(**{"compression.type": codec})
    assert configs_of(admin, name)["compression.type"].value == codec
    fill(bootstrap, name, 20, compression_type="lz4")
    with consumer(bootstrap, name) as reader:
        assert values(take(reader, 20)) == [str(number).encode() for number in range(20)]
