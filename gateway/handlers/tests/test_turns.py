"""Work on many elements of one request: others get their turn in between, and the answer is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from kumquat.gateway.groups.service import PARTITIONS_AT_A_TIME
from kumquat.gateway.net import turns
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.wire import (
    AlterConfigsRequest,
    AlterConfigsResource,
    ConsumerGroupDescribeRequest,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeGroupsRequest,
    ErrorCode,
    FindCoordinatorRequest,
    LeaveGroupRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    MemberIdentity,
    MetadataRequest,
    MetadataRequestTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from pathlib import Path

MANY = 60
NAMES = [f"n{index}" for index in range(MANY)]
REQUESTS: list[tuple[Any, int]] = [
    (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in NAMES],
            allow_auto_topic_creation=False,
        ),
        12,
    ),
    (FindCoordinatorRequest(coordinator_keys=NAMES), 4),
    (DescribeGroupsRequest(groups=NAMES), 5),
    (ConsumerGroupDescribeRequest(group_ids=NAMES), 0),
    (CreateTopicsRequest(topics=[CreatableTopic(name=n) for n in NAMES], validate_only=True), 7),
    (DeleteTopicsRequest(topic_names=NAMES), 5),
    (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=n, count=2) for n in NAMES]),
        3,
    ),
    (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name=n) for n in NAMES]
        ),
        4,
    ),
    (
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=2, resource_name=n) for n in NAMES]
        ),
        2,
    ),
    (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t",
                    partitions=[DeleteRecordsPartition(partition_index=i) for i in range(MANY)],
                )
            ]
        ),
        2,
    ),
    (
        ListOffsetsRequest(
            topics=[
                ListOffsetsTopic(
                    name="t",
                    partitions=[ListOffsetsPartition(partition_index=i) for i in range(MANY)],
                )
            ]
        ),
        7,
    ),
    (
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic="t",
                    partitions=[OffsetForLeaderPartition(partition=i) for i in range(MANY)],
                )
            ]
        ),
        4,
    ),
    (
        OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(MANY)))],
        ),
        7,
    ),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(n, topics=[]) for n in NAMES]), 8),
    (DeleteGroupsRequest(groups_names=NAMES), 2),
    (LeaveGroupRequest(group_id="g", members=[MemberIdentity(n) for n in NAMES]), 4),
]


@pytest.mark.parametrize(
    ("request_", "version"), REQUESTS, ids=[type(request).__name__ for request, _ in REQUESTS]
)
def test_a_request_with_many_elements_stops_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: Any, version: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client, trio.open_nursery() as nursery:
            turns_of_others = 0

            @nursery.start_soon
            async def other() -> None:
                nonlocal turns_of_others
                while True:
                    await trio.lowlevel.checkpoint()
                    turns_of_others += 1

            await client.call(MetadataRequest(topics=[]), 12)
            monkeypatch.setattr(turns, "TURN_SECONDS", -1.0)
            turns_of_others = 0
            await client.call(request_, version)
            assert turns_of_others >= MANY
            nursery.cancel_scope.cancel()

    serve(check, tmp_path)


def test_a_commit_that_is_done_in_parts_loses_or_moves_a_code(tmp_path: Path) -> None:
    """A topic in the middle exists; all others do not."""
    sizes = [1, PARTITIONS_AT_A_TIME - 1, 3, 2 * PARTITIONS_AT_A_TIME + 1, 1]

    def topic(name: str, count: int) -> OffsetCommitRequestTopic:
        parts = [OffsetCommitRequestPartition(partition_index=i) for i in range(count)]
        return OffsetCommitRequestTopic(name=name, partitions=parts)

    async def check(served: Served) -> None:
        await served.create("n2")
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            topics=[topic(f"n{index}", size) for index, size in enumerate(sizes)],
        )
        async with served.client() as client:
            answer = await client.call(request, 8)
            assert [each.name for each in answer.topics] == [f"n{i}" for i in range(len(sizes))]
            assert [len(each.partitions) for each in answer.topics] == sizes
            good = [
                (each.name, part.partition_index)
                for each in answer.topics
                for part in each.partitions
                if not part.error_code
            ]
            assert good == [("n2", 0)]
            empty = await client.call(OffsetCommitRequest(group_id="g"), 8)
            assert empty.topics == []

    serve(check, tmp_path)


def test_positions_of_a_topic_that_are_fetched_in_parts_are_in_one_answer(tmp_path: Path) -> None:
    many = 3 * PARTITIONS_AT_A_TIME

    async def check(served: Served) -> None:
        await served.create("t")
        asked = [OffsetFetchRequestTopic(name="t", partition_indexes=list(range(many)))]
        async with served.client() as client:
            answer = await client.call(OffsetFetchRequest(group_id="g", topics=asked), 7)
            (topic,) = answer.topics
            assert [part.partition_index for part in topic.partitions] == list(range(many))

    serve(check, tmp_path)


def test_one_group_that_is_asked_for_many_times_is_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        lookups = 0
        fetch_offsets = served.broker.coordinator.fetch_offsets

        def counted(*asked: Any) -> Any:
            nonlocal lookups
            lookups += 1
            return fetch_offsets(*asked)

        monkeypatch.setattr(served.broker.coordinator, "fetch_offsets", counted)
        committed = OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition()])
        commit = OffsetCommitRequest("g", generation_id_or_member_epoch=-1, topics=[committed])
        asked = OffsetFetchRequestGroup(group_id="g", topics=None)
        async with served.client() as client:
            await client.call(commit, 8)
            answer = await client.call(OffsetFetchRequest(groups=[asked] * MANY), 8)
        assert lookups == 1
        first, *others = answer.groups
        assert [topic.name for topic in first.topics] == ["t"]
        assert {group.error_code for group in others} == {ErrorCode.INVALID_REQUEST}

    serve(check, tmp_path)
