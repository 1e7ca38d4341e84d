"""Raw frames: negotiation, framing, order, and every version that Kumquat shall serve.

What no client lets one send, answered as Apache Kafka answers it. Records: test_wire_records.py.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING

import pytest
from kafka.protocol.admin import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from kafka.protocol.producer import InitProducerIdRequest

from compat_tests.support import eventually
from compat_tests.wire.connection import (
    Message,
    Wire,
    batch,
    describe_topic,
    fetch,
    fetched,
    list_offsets,
    listed,
    produce,
    produced,
    retried,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SERVED = {
    0: (3, 13), 1: (4, 17), 2: (1, 10), 3: (0, 13), 10: (0, 6), 18: (0, 4), 19: (2, 7),
    20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 32: (1, 4), 33: (0, 2), 35: (1, 4),
    37: (0, 3), 44: (0, 1), 60: (0, 1),
}  # fmt: skip
"""API key: the versions that clients in the field use, by kafka_protocol.md."""

UNKNOWN_TOPIC = 3
NO_LEADER = 5
COORDINATOR_LOADING = 14
COORDINATOR_NOT_AVAILABLE = 15


def versions(key: int) -> range:
    low, high = SERVED[key]
    return range(low, high + 1)


def raw_request(key: int, version: int, body: bytes = b"", correlation: int = 7) -> bytes:
    payload = struct.pack(">hhih", key, version, correlation, -1) + body
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize("version", versions(18))
def test_api_versions_offers_what_clients_need(wire: Wire, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    answer = wire.call(request, version)
    assert answer.error_code == 0
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    for key, (low, high) in SERVED.items():
        assert offered[key][0] <= low, key
        assert high <= offered[key][1], key
    assert offered[0][0] == 0, "older librdkafka gives up compression otherwise"


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(wire: Wire) -> None:
    wire.socket.sendall(raw_request(18, 99, b"\x00\x00\x00\x00"))
    answer = wire.read_frame()
    correlation, error, count = struct.unpack_from(">ihi", answer)
    assert (correlation, error, count) == (7, 35, 1)
    key, low, high = struct.unpack_from(">hhh", answer, 10)
    assert (key, low) == (18, 0)
    assert high >= 4
    assert wire.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x7f\xff\xff\xff" + bytes(100), id="claims 2 GB"),
        pytest.param(b"\xff\xff\xff\xff" + bytes(100), id="negative size"),
        pytest.param(raw_request(999, 0), id="unknown API"),
        pytest.param(raw_request(3, 99), id="unknown version"),
        pytest.param(raw_request(3, 1, b"\x00\x00\x00\x05\x00"), id="cut short"),
        pytest.param(raw_request(3, 1, b"\x7f\xff\xff\xff"), id="count beyond the frame"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
    ],
)
def test_a_malformed_frame_closes_its_connection_and_no_other(
    bootstrap: str, wire: Wire, frame: bytes
) -> None:
    with Wire(bootstrap) as bad:
        bad.socket.sendall(frame)
        assert bad.closed_by_broker()
    assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def test_pipelined_requests_are_answered_in_their_order(wire: Wire, topic: str) -> None:
    for index in range(50):
        wire.send(produce(topic, batch(str(index).encode()), acks=(-1, 1)[index % 2]), 9)
        wire.send(MetadataRequest(topics=[]), 1)
    for index in range(50):
        assert produced(wire.receive()).base_offset == index
        assert len(wire.receive().brokers) == 1
    wire.send(fetch(topic, 50, max_wait_ms=200), 12)
    wire.send(MetadataRequest(topics=[]), 1)
    assert len(fetched(wire.receive()).records or b"") == 0
    assert len(wire.receive().brokers) == 1


def test_a_request_that_comes_byte_by_byte_is_answered(wire: Wire) -> None:
    for byte in raw_request(3, 1, b"\x00\x00\x00\x00"):
        wire.socket.sendall(bytes([byte]))
    assert wire.read_frame()[:4] == struct.pack(">i", 7)


@pytest.mark.parametrize("version", versions(3))
def test_metadata_in_every_version(wire: Wire, topic: str, bootstrap: str, version: int) -> None:
    asked = MetadataRequest.MetadataRequestTopic(name=topic, topic_id=None)
    answer = wire.call(MetadataRequest(topics=[asked], allow_auto_topic_creation=False), version)
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap
    (found,) = answer.topics
    assert (found.error_code, found.name) == (0, topic)
    (partition,) = found.partitions
    assert (partition.error_code, partition.leader_id) == (0, broker.node_id)
    if version >= 1:
        assert answer.controller_id == broker.node_id
    if version >= 2:
        assert answer.cluster_id
    if version >= 12:
        by_id = MetadataRequest.MetadataRequestTopic(name=None, topic_id=found.topic_id)
        assert wire.call(MetadataRequest(topics=[by_id]), version).topics[0].name == topic


@pytest.mark.parametrize("version", [0, 1, 12])
def test_metadata_of_all_topics_and_of_none(wire: Wire, topic: str, version: int) -> None:
    every = wire.call(MetadataRequest(topics=[] if version == 0 else None), version)
    assert topic in [each.name for each in every.topics]
    if version:
        assert len(wire.call(MetadataRequest(topics=[]), version).topics) == 0


def test_metadata_creates_a_topic_only_when_it_may(wire: Wire, name: str) -> None:
    assert describe_topic(wire, name).error_code == 3
    asked = MetadataRequest.MetadataRequestTopic(name=name, topic_id=None)
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=True)
    answer = retried(lambda: wire.call(request, 9).topics[0], UNKNOWN_TOPIC, NO_LEADER)
    assert answer.error_code == describe_topic(wire, name).error_code == 0


@pytest.mark.parametrize("bad", ["a b", "..", "x" * 250])
def test_metadata_for_a_name_that_is_not_allowed(wire: Wire, bad: str) -> None:
    asked = MetadataRequest.MetadataRequestTopic(name=bad, topic_id=None)
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=True)
    assert wire.call(request, 9).topics[0].error_code == 17


def test_metadata_for_an_unknown_topic_id(wire: Wire) -> None:
    asked = MetadataRequest.MetadataRequestTopic(name=None, topic_id=uuid.uuid4())
    assert wire.call(MetadataRequest(topics=[asked]), 12).topics[0].error_code == 100


@pytest.mark.parametrize("version", versions(22))
def test_producer_ids_are_new_each_time(wire: Wire, version: int) -> None:
    given = set()
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    for _ in range(5):
        answer = retried(lambda: wire.call(request, version), COORDINATOR_LOADING)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        given.add(answer.producer_id)
    assert len(given) == 5
    assert min(given) >= 0


@pytest.mark.parametrize("version", versions(10))
def test_the_coordinator_is_found(wire: Wire, bootstrap: str, version: int) -> None:
    request = FindCoordinatorRequest(key="group", key_type=0, coordinator_keys=["group"])

    def find() -> Message:
        answer = wire.call(request, version)
        return answer.coordinators[0] if version >= 4 else answer

    found = retried(find, COORDINATOR_NOT_AVAILABLE)
    assert found.error_code == 0
    assert f"{found.host}:{found.port}" == bootstrap


@pytest.mark.parametrize("version", versions(19))
def test_topics_are_created_and_deleted_in_every_version(
    wire: Wire, names: Callable[[], str], version: int
) -> None:
    name = names()
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    assert wire.call(request, version).topics[0].error_code == 0
    assert wire.call(request, version).topics[0].error_code == 36
    state = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None)
    request = DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=10_000)
    lower = max(1, min(version - 1, 6))
    assert wire.call(request, lower).responses[0].error_code == 0


def test_a_topic_named_twice_in_one_request_is_refused(wire: Wire, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = wire.call(CreateTopicsRequest(topics=[topic, topic], timeout_ms=10_000), 7)
    assert {each.error_code for each in answer.topics} == {42}
    assert describe_topic(wire, name).error_code == 3


@pytest.mark.parametrize("version", versions(60))
def test_describe_cluster(wire: Wire, bootstrap: str, version: int) -> None:
    answer = wire.call(DescribeClusterRequest(endpoint_type=1), version)
    (broker,) = answer.brokers
    assert answer.error_code == 0
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert answer.controller_id == broker.broker_id
    assert answer.cluster_id


@pytest.mark.parametrize("version", versions(32))
def test_configs_are_described_with_docs_and_synonyms(wire: Wire, topic: str, version: int) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    keys = ["retention.ms", "max.message.bytes"]
    asked = resource(resource_type=2, resource_name=topic, configuration_keys=keys)
    request = DescribeConfigsRequest(
        resources=[asked], include_synonyms=True, include_documentation=True
    )
    (answer,) = wire.call(request, version).results
    assert (answer.error_code, answer.resource_name) == (0, topic)
    configs = {each.name: each for each in answer.configs}
    assert set(configs) == set(keys)
    assert configs["max.message.bytes"].config_source == 5
    assert configs["max.message.bytes"].synonyms[0].name == "message.max.bytes"
    if version >= 3:
        assert all(len(each.documentation) > 20 for each in answer.configs)
        assert configs["retention.ms"].config_type == 5


def test_broker_configs_are_described(wire: Wire) -> None:
    node = wire.call(MetadataRequest(topics=[]), 1).brokers[0].node_id
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = resource(resource_type=4, resource_name=str(node), configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_documentation=True)
    (answer,) = wire.call(request, 4).results
    assert answer.error_code == 0
    configs = {each.name: each for each in answer.configs}
    assert configs["message.max.bytes"].value == "1048588"
    assert configs["log.dirs"].read_only
    assert configs["log.dirs"].documentation
    assert configs["listeners"].value


def test_configs_of_an_unknown_topic(wire: Wire, name: str) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = resource(resource_type=2, resource_name=name, configuration_keys=None)
    assert wire.call(DescribeConfigsRequest(resources=[asked]), 4).results[0].error_code == 3


@pytest.mark.parametrize("version", versions(44))
def test_configs_of_an_unknown_topic_are_not_altered(wire: Wire, name: str, version: int) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    asked = resource(resource_type=2, resource_name=name, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=False)
    assert wire.call(request, version).responses[0].error_code == 3


@pytest.mark.parametrize("version", versions(33))
def test_the_old_alter_configs_replaces_all(wire: Wire, topic: str, version: int) -> None:
    resource = AlterConfigsRequest.AlterConfigsResource
    for name in ("retention.ms", "segment.bytes"):
        config = resource.AlterableConfig(name=name, value="2000000")
        asked = resource(resource_type=2, resource_name=topic, configs=[config])
        request = AlterConfigsRequest(resources=[asked], validate_only=False)
        assert wire.call(request, version).responses[0].error_code == 0

    def values() -> dict[str, str]:
        described = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=topic, configuration_keys=None
        )
        answer = wire.call(DescribeConfigsRequest(resources=[described]), 4).results[0]
        return {each.name: each.value for each in answer.configs}

    eventually(lambda: values()["segment.bytes"] == "2000000", "is set")
    assert values()["retention.ms"] == "604800000"


@pytest.mark.parametrize("version", versions(35))
def test_log_dirs_in_every_version(wire: Wire, topic: str, version: int) -> None:
    asked = DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[0])
    answer = wire.call(DescribeLogDirsRequest(topics=[asked]), version)
    (folder,) = answer.results
    assert folder.error_code == 0
    assert [each.name for each in folder.topics] == [topic]
    if version >= 4:
        assert folder.total_bytes > folder.usable_bytes > 0


@pytest.mark.parametrize("version", versions(21))
def test_delete_records_in_every_version(wire: Wire, topic: str, version: int) -> None:
    wire.call(produce(topic, batch(b"0", b"1", b"2")), 9)
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    partition = asked.DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(
        topics=[asked(name=topic, partitions=[partition])], timeout_ms=10_000
    )
    answer = wire.call(request, version).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert listed(wire.call(list_offsets(topic, -2), 7)) == (0, -1, 2)
    assert fetched(wire.call(fetch(topic, 1), 12)).error_code == 1


@pytest.mark.parametrize("version", versions(23))
def test_offset_for_leader_epoch(wire: Wire, topic: str, version: int) -> None:
    wire.call(produce(topic, batch(b"0", b"1", b"2")), 9)
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = asked.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[asked(topic=topic, partitions=[partition])]
    )
    answer = wire.call(request, version).topics[0].partitions[0]
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 3)


@pytest.mark.parametrize(
    ("timestamp", "known_from"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-7, 99)]
)
def test_a_special_time_is_refused_by_versions_that_do_not_know_it(
    wire: Wire, topic: str, timestamp: int, known_from: int
) -> None:
    for version in range(1, 11):
        code = listed(wire.call(list_offsets(topic, timestamp), version))[0]
        assert code == (0 if version >= known_from else 35), version
