"""ApiVersions, Metadata, DescribeCluster, FindCoordinator: what a client asks before anything else."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.gateway.config.kinds import Listener
from kumquat.gateway.net.dispatch import dispatch
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.topics.table import CHUNK
from kumquat.gateway.wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    ErrorCode,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("version", [5, 6, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    tmp_path: Path, version: int
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            body = struct.pack(">hhihbb", 18, version, 42, -1, 0, 77) + b"whatever comes"
            await client.stream.send_all(struct.pack(">i", len(body)) + body)
            data = await client.receive_frame()
            assert data[:4] == struct.pack(">i", 42)
            answer, end = ApiVersionsResponse.decode(data, 0, 4)
            assert end == len(data)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            (only,) = answer.api_keys
            assert (only.api_key, only.min_version, only.max_version) == (18, 0, 4)
            assert len((await client.call(ApiVersionsRequest(), 4)).api_keys) > 10

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("name", "code"), [("apache-kafka-java", 0), ("rd.kafka", 0), ("-x", 42), ("a b", 42)]
)
def test_the_name_of_the_clients_software_is_checked(tmp_path: Path, name: str, code: int) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            answer = await client.call(ApiVersionsRequest(name, "4.3.1"), 3)
            assert answer.error_code == code
            assert answer.finalized_features_epoch == -1

    serve(check, tmp_path)


@pytest.mark.parametrize("version", range(14))
def test_the_broker_and_all_topics(tmp_path: Path, version: int) -> None:
    async def check(served: Served) -> None:
        for name in ("a", "b"):
            await served.create(name)
        async with served.client() as client:
            request = MetadataRequest(topics=[] if version == 0 else None)
            answer = await client.call(request, version)
            (broker,) = answer.brokers
            assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", served.port)
            assert sorted(topic.name for topic in answer.topics) == ["a", "b"]
            for topic in answer.topics:
                (partition,) = topic.partitions
                assert (partition.partition_index, partition.leader_id) == (0, 1)
                assert partition.replica_nodes == partition.isr_nodes == [1]
                if version >= 10:
                    subject = served.broker.log.subjects.by_name[topic.name]
                    assert topic.topic_id == subject.topic_id
            if version >= 1:
                assert answer.controller_id == 1
            if version >= 2:
                assert answer.cluster_id == served.broker.cluster_id

    serve(check, tmp_path)


def named(*names: str, **fields: bool) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def test_no_topics_are_asked_for_and_none_are_given(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("a")
        async with served.client() as client:
            assert (await client.call(MetadataRequest(topics=[]), 1)).topics == []

    serve(check, tmp_path)


def test_a_topic_that_is_not_there_is_made_if_client_and_broker_allow_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            answer = await client.call(named("a", allow_auto_topic_creation=False), 9)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = await client.call(named("a", "not allowed", "b", "b"), 9)
            codes = [(topic.name, topic.error_code) for topic in answer.topics]
            invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
            assert codes == [("a", 0), ("not allowed", invalid), ("b", 0), ("b", 0)]
            assert set(served.broker.log.subjects.by_name) == {"a", "b"}

    serve(check, tmp_path)


def test_no_topic_is_made_when_the_broker_does_not_allow_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            answer = await client.call(named("a"), 1)
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not len(served.broker.log.subjects)

    serve(check, tmp_path, auto_create_topics_enable=False)


def test_two_clients_that_ask_for_the_same_new_topic_both_get_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as first, served.client() as second:
            served.files.hold_syncs()
            await first.send((named("a"), 12))
            await served.settled()
            await second.send((named("a"), 12))
            await served.settled()
            served.files.release_syncs()
            ids = {(await client.receive()).topics[0].topic_id for client in (first, second)}
            assert ids == {served.broker.log.subjects.by_name["a"].topic_id}

    serve(check, tmp_path)


@pytest.mark.parametrize("name", [None, "", "another"])
def test_a_topic_is_found_by_its_id(tmp_path: Path, name: str | None) -> None:
    async def check(served: Served) -> None:
        await served.create("a")
        topic_id = served.broker.log.subjects.by_name["a"].topic_id
        async with served.client() as client:
            asked = [MetadataRequestTopic(topic_id, name), MetadataRequestTopic(b"?" * 16, name)]
            topics = (await client.call(MetadataRequest(topics=asked), 12)).topics
            assert (topics[0].error_code, topics[0].name) == (0, "a")
            assert (topics[1].error_code, topics[1].name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
            assert topics[1].topic_id == b"?" * 16

    serve(check, tmp_path)


def test_what_a_client_may_do_is_told_when_it_asks(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("a")
        async with served.client() as client:
            request = MetadataRequest(
                topics=None,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            )
            answer = await client.call(request, 9)
            assert answer.topics[0].topic_authorized_operations == 3576
            assert answer.cluster_authorized_operations == 8096
            answer = await client.call(MetadataRequest(topics=None), 9)
            assert answer.topics[0].topic_authorized_operations == -(2**31)

    serve(check, tmp_path)


def test_a_kept_answer_follows_every_creation_and_deletion(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        keeper = served.broker.subjects
        names = {f"t{number}" for number in range(2 * CHUNK + 10)}
        await keeper.create_all({name: {} for name in names})

        async with served.client() as client:

            async def listed() -> set[str]:
                answer = await client.call(MetadataRequest(topics=None), 12)
                return {topic.name for topic in answer.topics}

            assert await listed() == names
            await keeper.delete(served.broker.log.subjects.by_name["t7"])
            assert await listed() == names - {"t7"}
            await keeper.create("new", {})
            assert await listed() == names - {"t7"} | {"new"}
            for version in range(5, 13):
                await client.call(MetadataRequest(topics=None), version)
            await keeper.delete(served.broker.log.subjects.by_name["new"])
            assert await listed() == names - {"t7"}

    serve(check, tmp_path)


def test_a_full_answer_is_whole_though_topics_go_and_other_forms_push_it_out(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        keeper = served.broker.subjects
        names = {f"t{number}" for number in range(8 * CHUNK)}
        await keeper.create_all({name: {} for name in names})
        table, answers = keeper.table, []
        first = min(served.broker.log.subjects, key=lambda subject: subject.id)

        async def listed() -> None:
            answers.append(await table.encoded(12, 1, 0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listed)
            for _ in range(3):
                await trio.lowlevel.checkpoint()  # some of it is encoded by now
            async with trio.open_nursery() as others:
                for operations in range(1, 7):
                    others.start_soon(table.encoded, 12, 1, operations)
                for _ in range(2):
                    await trio.lowlevel.checkpoint()
                served.broker.log.delete_subject_nowait(first)
                keeper._removed(first)
        (answer,) = answers
        response = MetadataResponse(topics=answer)
        decoded, _ = MetadataResponse.decode(
            memoryview(b"".join(MetadataResponse.encode(response, 12))), 12
        )
        assert {topic.name for topic in decoded.topics} == names - {first.name}

    serve(check, tmp_path)


def test_clients_are_told_the_advertised_address(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            brokers = [
                (await client.call(MetadataRequest(topics=[]), 9)).brokers[0],
                (await client.call(DescribeClusterRequest(), 1)).brokers[0],
                (await client.call(FindCoordinatorRequest(key="g"), 2)),
            ]
            assert {(b.host, b.port) for b in brokers} == {("broker.example", 1234)}

    serve(check, tmp_path, advertised_listeners=(Listener("broker.example", 1234),))


def test_controllers_are_not_listed(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            answer = await client.call(DescribeClusterRequest(endpoint_type=2), 1)
            assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            assert "controllers" in answer.error_message
            answer = await client.call(DescribeClusterRequest(), 0)
            assert answer.cluster_id == served.broker.cluster_id

    serve(check, tmp_path)


def test_the_coordinator_of_every_group_is_this_broker(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            for version in range(7):
                keys = ["g", "h", ""] if version >= 4 else []
                request = FindCoordinatorRequest(key="" if keys else "g", coordinator_keys=keys)
                answer = await client.call(request, version)
                for found in answer.coordinators or [answer]:
                    assert (found.error_code, found.node_id, found.port) == (0, 1, served.port)
                assert [c.key for c in answer.coordinators] == keys
            empty = await client.call(FindCoordinatorRequest(coordinator_keys=[]), 5)
            assert empty.coordinators == []

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("key_type", "up_to_2", "from_3"),
    [
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST),
        (2, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_coordinator_of_anything_else_is_refused(
    tmp_path: Path, key_type: int, up_to_2: ErrorCode, from_3: ErrorCode
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            for key in ("x", ""):
                for version, code in ((1, up_to_2), (2, up_to_2), (3, from_3)):
                    answer = await client.call(FindCoordinatorRequest(key, key_type), version)
                    assert (answer.error_code, answer.node_id) == (code, -1)
                    assert answer.error_message
            request = FindCoordinatorRequest("", key_type, ["x", "y"])
            answer = await client.call(request, 4)
            assert [c.error_code for c in answer.coordinators] == [from_3, from_3]
            assert all(c.error_message for c in answer.coordinators)

    serve(check, tmp_path)


def test_each_transactional_id_of_a_client_is_in_the_log_once_with_what_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            for _ in range(5):
                await client.call(FindCoordinatorRequest("payments", 1), 2)
                await client.call(FindCoordinatorRequest("", 1, ["payments", "bills"]), 4)
                await client.call(InitProducerIdRequest("payments", 1000), 4)
                await client.call(FindCoordinatorRequest("", 1, [f"id-{i}" for i in range(50)]), 4)
            await client.call(FindCoordinatorRequest("", 1, ["x" * 30_000]), 4)

    serve(check, tmp_path)
    told = [r.getMessage() for r in caplog.records if "transactional id" in r.getMessage()]
    named = [line.split("transactional id ")[1].split()[0] for line in told]
    assert named == ["'payments'", "'bills'", "'id-0'", "'id-1'", "'id-2'", "'" + "x" * 100 + "'"]
    for line in told:
        assert "127.0.0.1" in line
        assert "client id" in line
        assert "Leave transactional.id unset" in line


def test_keys_that_librdkafka_takes_features_from_are_advertised() -> None:
    wanted = {0: (3, 7), 1: (4, 10), 10: (0, 0), 22: (0, 0)}
    for key, (low, high) in wanted.items():
        advertised = dispatch.apis[key].advertised
        assert advertised.start <= low
        assert high in advertised


def test_the_offsets_topic_is_internal_and_cannot_be_written(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        name = "__consumer_offsets"
        async with served.client() as client:
            assert not (await client.call(MetadataRequest(topics=None), 12)).topics
            found = await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            assert found.coordinators[0].error_code == 0
            (topic,) = (await client.call(MetadataRequest(topics=None), 12)).topics
            assert (topic.name, topic.is_internal, len(topic.partitions)) == (name, True, 1)
            for _ in range(3):
                answer = await client.call(produce(name, b"x"), 9)
                partition = answer.responses[0].partition_responses[0]
                assert partition.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            await served.create("mine")
            topics = (await client.call(MetadataRequest(topics=None), 12)).topics
            assert {topic.name: topic.is_internal for topic in topics} == {
                name: True,
                "mine": False,
            }

    serve(check, tmp_path)
