"""CreateTopics, DeleteTopics, CreatePartitions, DescribeLogDirs: the life of a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from kumquat.gateway.tests.harness import NO_SPACE, Client, Served, create_topic, produce, serve
from kumquat.gateway.wire import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    ErrorCode,
)
from kumquat.meta.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


async def create(client: Client, *topics: CreatableTopic, version: int = 7, **fields: Any) -> Any:
    return (await client.call(CreateTopicsRequest(topics=list(topics), **fields), version)).topics


@pytest.mark.parametrize("version", range(2, 8))
def test_any_number_of_partitions_and_replicas_is_accepted_and_the_answer_says_one(
    tmp_path: Path, version: int
) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            (made,) = await create(client, CreatableTopic("t", 12, 3), version=version)
            subject = served.broker.log.subjects.by_name["t"]
            assert made.error_code == 0
            if version >= 5:
                assert (made.num_partitions, made.replication_factor) == (1, 1)
                shown = {config.name: config.value for config in made.configs}
                assert shown["cleanup.policy"] == "delete"
            if version >= 7:
                assert made.topic_id == subject.topic_id

    serve(check, tmp_path)


def test_a_topic_with_configs_has_them_in_effect(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        configs = [CreatableTopicConfig("max.message.bytes", "500")]
        async with served.client() as client:
            (made,) = await create(client, CreatableTopic("t", -1, -1, [], configs))
            assert made.error_code == 0
            subject = served.broker.log.subjects.by_name["t"]
            assert served.broker.registry.configs(subject.id) == {"max.message.bytes": "500"}
            answer = await client.call(produce("t", bytes(500)), 9)
            (partition,) = answer.responses[0].partition_responses
            assert partition.error_code == ErrorCode.MESSAGE_TOO_LARGE

    serve(check, tmp_path)


def config(name: str, value: str | None) -> CreatableTopic:
    return CreatableTopic("t", 1, 1, [], [CreatableTopicConfig(name, value)])


def assigned(*brokers: list[int], partitions: int = -1) -> CreatableTopic:
    given = [CreatableReplicaAssignment(index, ids) for index, ids in enumerate(brokers)]
    return CreatableTopic("t", partitions, -1, given)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic("there", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(".", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("no spaces", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("ä", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("line\n", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("dotted_name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, 17), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, 9090), ErrorCode.INVALID_REPLICATION_FACTOR),
        (config("cleanup.policy", "compact"), ErrorCode.INVALID_CONFIG),
        (config("no.such.config", "1"), ErrorCode.INVALID_CONFIG),
        (config("retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
        (config("retention.ms", None), ErrorCode.INVALID_CONFIG),
        (assigned([1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned([1], partitions=1), ErrorCode.INVALID_REQUEST),
    ],
    ids=lambda value: str(getattr(value, "name", value))[:20],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_that_cannot_be_is_refused_with_the_reason(
    tmp_path: Path, topic: CreatableTopic, code: ErrorCode, validate_only: bool
) -> None:
    async def check(served: Served) -> None:
        await served.create("there")
        await served.create("dotted.name")
        async with served.client() as client:
            (made,) = await create(client, topic, validate_only=validate_only)
            assert made.error_code == code
            assert len(made.error_message) > 10
            assert len(served.broker.log.subjects) == 2

    serve(check, tmp_path)


def test_the_longest_name_and_a_replica_assignment_to_this_broker_are_taken(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            made = await create(client, CreatableTopic("x" * 249, 1, 1), assigned([1], [1]))
            assert [topic.error_code for topic in made] == [0, 0]

    serve(check, tmp_path)


def test_validate_only_makes_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            (made,) = await create(client, CreatableTopic("t", 1, 1), validate_only=True)
            assert (made.error_code, made.topic_id) == (0, bytes(16))
            assert not len(served.broker.log.subjects)

    serve(check, tmp_path)


def test_a_topic_that_is_asked_for_twice_in_one_request_is_not_made(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            twice = CreatableTopic("t", 1, 1)
            made = await create(client, twice, CreatableTopic("u", 1, 1), twice)
            codes = {topic.name: topic.error_code for topic in made}
            assert codes == {"t": ErrorCode.INVALID_REQUEST, "u": 0}
            assert set(served.broker.log.subjects.by_name) == {"u"}

    serve(check, tmp_path)


def test_two_names_of_one_request_that_collide_are_not_both_made(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            made = await create(client, CreatableTopic("a.b", 1, 1), CreatableTopic("a_b", 1, 1))
            assert sorted(topic.error_code for topic in made) == [0, 17]
            assert len(served.broker.log.subjects) == 1

    serve(check, tmp_path)


def test_a_creation_that_sql_fails_is_an_error_and_leaves_default_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        async def broken(*_: object) -> None:
            raise StoreError("the disk is full")

        monkeypatch.setattr(served.broker.registry, "put_subject", broken)
        async with served.client() as client:
            (made,) = await create(client, config("max.message.bytes", "500"))
            assert made.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "default configs" in made.error_message
            answer = await client.call(produce("t", bytes(500)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

    serve(check, tmp_path)


def test_a_creation_that_the_log_cannot_write_leaves_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            served.files.write_error = NO_SPACE
            (made,) = (await client.call(create_topic("t"), 7)).topics
            assert made.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            served.files.write_error = None
            (made,) = (await client.call(create_topic("t"), 7)).topics
            assert made.error_code == 0

    serve(check, tmp_path)


async def delete(client: Client, *topics: DeleteTopicState) -> Any:
    return (await client.call(DeleteTopicsRequest(topics=list(topics)), 6)).responses


def test_topics_are_deleted_by_name_and_by_id_and_may_be_recreated(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        for name in ("a.1", "b"):
            await served.create(name)
        by_name = served.broker.log.subjects.by_name
        old = by_name["a.1"].topic_id
        async with served.client() as client:
            await client.call(produce("a.1", b"x"), 9)
            gone = await delete(
                client,
                DeleteTopicState("a.1"),
                DeleteTopicState(None, by_name["b"].topic_id),
                DeleteTopicState("nowhere"),
                DeleteTopicState(None, b"?" * 16),
                DeleteTopicState("b", old),
            )
            assert [(topic.name, topic.error_code) for topic in gone] == [
                ("a.1", 0),
                ("b", 0),
                ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (None, ErrorCode.UNKNOWN_TOPIC_ID),
                ("b", ErrorCode.INVALID_REQUEST),
            ]
            assert not by_name
            (made,) = await create(client, CreatableTopic("a_1", 1, 1))
            assert made.error_code == 0, "the name that it looked like is free again"
            assert made.topic_id != old
            answer = await client.call(produce("a_1", b"x"), 9)
            assert answer.responses[0].partition_responses[0].base_offset == 0

    serve(check, tmp_path)


def test_two_clients_that_delete_the_same_topics_are_both_answered_for_each(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        for name in ("a", "b", "c"):
            await served.create(name)
        answers: list[dict[str, int]] = []

        async def delete_all(client: Client) -> None:
            gone = await delete(client, *map(DeleteTopicState, ("a", "b", "c")))
            answers.append({topic.name: topic.error_code for topic in gone})

        async with served.client() as one, served.client() as two, trio.open_nursery() as both:
            both.start_soon(delete_all, one)
            both.start_soon(delete_all, two)
        for name in ("a", "b", "c"):
            codes = sorted(answer[name] for answer in answers)
            assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    serve(check, tmp_path)


def test_a_topic_that_is_deleted_while_another_client_is_about_to_is_refused_to_that_one(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.create("u")
        subjects = served.broker.log.subjects.by_name
        t, u = subjects["t"], subjects["u"]
        await served.broker.subjects.delete(t)
        failed = await served.broker.subjects.delete_all([t, u])
        assert {s.name: e.error_code for s, e in failed.items()} == {
            "t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert u.deleted

    serve(check, tmp_path)


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_their_names_alone_in_old_versions(
    tmp_path: Path, version: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            request = DeleteTopicsRequest(topic_names=["t", "u"])
            gone = (await client.call(request, version)).responses
            assert [topic.error_code for topic in gone] == [0, 3]

    serve(check, tmp_path)


def test_a_deleted_topic_leaves_no_configs_to_the_next_of_its_name(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"retention.ms": "1000"})
        async with served.client() as client:
            await delete(client, DeleteTopicState("t"))
            await client.call(create_topic("t"), 7)
        subject = served.broker.log.subjects.by_name["t"]
        assert served.broker.registry.configs(subject.id) == {}
        assert subject.config is served.broker.log.subjects.defaults

    serve(check, tmp_path)


def test_partitions_cannot_be_added_and_the_answer_says_why(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic("t", 4, None), CreatePartitionsTopic("u", 4, None)]
            )
            results = (await client.call(request, 3)).results
            assert results[0].error_code == ErrorCode.INVALID_PARTITIONS
            assert "any number of consumers" in results[0].error_message
            assert results[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    serve(check, tmp_path)


def test_log_dirs_tell_the_size_of_each_topic_and_the_room_on_the_volume(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        for name in ("empty", "full"):
            await served.create(name)
        async with served.client() as client:
            await client.call(produce("full", bytes(1000)), 9)
            (result,) = (await client.call(DescribeLogDirsRequest(topics=None), 4)).results
            sizes = {t.name: t.partitions[0].partition_size for t in result.topics}
            assert sizes["empty"] == 0
            assert 1000 < sizes["full"] < 1200
            assert 0 < result.usable_bytes <= result.total_bytes
            some = [DescribableLogDirTopic("full", [0]), DescribableLogDirTopic("nowhere", [0])]
            (result,) = (await client.call(DescribeLogDirsRequest(topics=some), 4)).results
            assert [topic.name for topic in result.topics] == ["full"]

    serve(check, tmp_path)


def test_a_text_that_quotes_a_long_name_is_cut(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client("c" * 1000) as client:
            for name in ("n" * 32_767, "é" * 16_383, "\n" * 32_767):
                request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name, 4, None)])
                for version in (0, 3):
                    (result,) = (await client.call(request, version)).results
                    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    assert result.name == name
                    assert len(result.error_message.encode()) <= 4096
                    assert result.error_message.startswith("there is no topic")
                    assert result.error_message.endswith("…")

    serve(check, tmp_path)
