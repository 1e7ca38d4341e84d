"""Registration, and the promise that every API in every advertised version gets an answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.net.dispatch import Api, Dispatch, Session, dispatch, handles
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.wire import (
    AlterableConfig,
    AlterConfigsResource,
    ApiVersionsRequest,
    CreatableTopic,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsTopic,
    DeleteTopicState,
    DescribableLogDirTopic,
    DescribeConfigsResource,
    DescribeShareGroupOffsetsRequestGroup,
    FetchPartition,
    FetchTopic,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsResource,
    ListOffsetsPartition,
    ListOffsetsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    PartitionProduceData,
    TopicProduceData,
)

if TYPE_CHECKING:
    from pathlib import Path

ROUTES = [(key, version) for key, api in dispatch.apis.items() for version in api.versions]


def name_of(route: tuple[int, int]) -> str:
    return dispatch.describe(*route)


RECORDS = memoryview(batch(b"value"))


def asking(key: int, version: int) -> Any:
    """A request of this API and version that asks for something, about a topic "t"."""
    api = dispatch.apis[key]
    fields: dict[str, dict[str, Any]] = {
        "Produce": {
            "acks": 1,
            "topic_data": [TopicProduceData("t", bytes(16), [PartitionProduceData(0, RECORDS)])],
        },
        "Fetch": {"topics": [FetchTopic("t", bytes(16), [FetchPartition()])]},
        "ListOffsets": {"topics": [ListOffsetsTopic("t", [ListOffsetsPartition(timestamp=-1)])]},
        "Metadata": {"topics": [MetadataRequestTopic(name="t")]},
        "CreateTopics": {"topics": [CreatableTopic("t", 1, 1)]},
        "CreatePartitions": {"topics": [CreatePartitionsTopic("t", 2, None)]},
        "DeleteRecords": {"topics": [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, -1)])]},
        "DescribeConfigs": {"resources": [DescribeConfigsResource(2, "t", None)]},
        "AlterConfigs": {
            "resources": [AlterConfigsResource(2, "t", [AlterableConfig("retention.ms", "1000")])]
        },
        "IncrementalAlterConfigs": {
            "resources": [
                IncrementalAlterConfigsResource(
                    2, "t", [IncrementalAlterableConfig("retention.ms", 0, "1000")]
                )
            ]
        },
        "DescribeLogDirs": {"topics": [DescribableLogDirTopic("t", [0])]},
        "OffsetForLeaderEpoch": {
            "topics": [OffsetForLeaderTopic("t", [OffsetForLeaderPartition()])]
        },
        "FindCoordinator": {"key": "g"} if version < 4 else {"coordinator_keys": ["g", "h"]},
        "DeleteTopics": (
            {"topic_names": ["t"]} if version < 6 else {"topics": [DeleteTopicState("t")]}
        ),
        "InitProducerId": {"transactional_id": None},
        "DescribeGroups": {"groups": ["g"]},
        "ConsumerGroupDescribe": {"group_ids": ["g"]},
        "ShareGroupDescribe": {"group_ids": ["g"]},
        "DescribeShareGroupOffsets": {
            "groups": [DescribeShareGroupOffsetsRequestGroup("g", topics=None)]
        },
        "DeleteGroups": {"groups_names": ["g"]},
        "OffsetCommit": {
            "group_id": "g",
            "topics": [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition()])],
        },
        "OffsetFetch": (
            {"group_id": "g", "topics": [OffsetFetchRequestTopic("t", [0])]}
            if version < 8
            else {"groups": [OffsetFetchRequestGroup("g", topics=None)]}
        ),
    }
    return api.request(**fields.get(api.name, {}))


TOLD = ("kumquat.gateway.groups.membership.refusals",)
"""An empty join is refused, and that is logged."""


def test_every_api_in_every_version_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        for key, version in ROUTES:
            if "t" not in served.broker.log.subjects.by_name:
                await served.create("t")
            async with served.client() as client:
                await client.call(asking(key, version), version)
            bad = [
                r.getMessage()
                for r in caplog.records
                if r.levelno >= logging.WARNING and r.name not in TOLD
            ]
            assert not bad, dispatch.describe(key, version)

    serve(check, tmp_path)


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_every_api_in_every_version_can_say_that_it_failed(route: tuple[int, int]) -> None:
    found = dispatch.find(*route)
    assert found is not None
    refused = found.refuse(asking(*route), -1, "out of order")
    buffers = found.encode(7, refused)
    data = b"".join(buffers)
    answer, _ = found.api.response.decode(data, route[1], 9 if found.has_tags else 8)
    assert -1 in error_codes(answer)


def error_codes(answer: Any) -> list[int]:
    """All error codes in an answer, however deep."""
    found = []
    for name in answer.__slots__:
        value = getattr(answer, name)
        if name == "error_code":
            found.append(value)
        elif isinstance(value, list):
            found += [
                code for item in value if hasattr(item, "__slots__") for code in error_codes(item)
            ]
    return found


def test_two_handlers_for_one_api_fail_when_they_are_registered() -> None:
    def handler(session: Session, request: object) -> None: ...

    with pytest.raises(ValueError, match="Metadata has two handlers"):
        handles(
            request=MetadataRequest,
            response=MetadataResponse,
            versions=range(1),
            refuse=lambda *_: None,
        )(handler)


def registered(**changed: Any) -> Api:
    values: dict[str, Any] = {
        "key": 3,
        "name": "Metadata",
        "request": MetadataRequest,
        "response": MetadataResponse,
        "versions": range(14),
        "advertised": range(14),
        "handler": lambda *_: None,
        "appends": False,
        "refusal": None,
        "fallback": None,
        "template": None,
    }
    return Api(**{**values, **changed})


def test_a_version_that_the_schema_lacks_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match="lacks some of the versions"):
        Dispatch().register(registered(versions=range(99)))


def test_an_api_that_could_not_say_an_error_cannot_be_registered() -> None:
    produce = dispatch.apis[0]
    with pytest.raises(ValueError, match="refuse= is needed"):
        Dispatch().register(
            registered(request=produce.request, response=produce.response, versions=range(3, 14))
        )


def test_what_is_advertised_is_what_is_registered(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            answer = await client.call(ApiVersionsRequest("client", "1.0"), 4)
        ranges = {k.api_key: range(k.min_version, k.max_version + 1) for k in answer.api_keys}
        assert ranges == {key: api.advertised for key, api in dispatch.apis.items()}
        assert ranges[0] == range(14), "Produce is advertised from 0"
        assert [k.api_key for k in answer.api_keys] == sorted(ranges)

    serve(check, tmp_path)
