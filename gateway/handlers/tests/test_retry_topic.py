"""The topic for retry commands: missing, deleted, changed, or taken for one that holds messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.commands import TOPIC
from kumquat.gateway.handlers.common.resources import Resource
from kumquat.gateway.testing.broker import broker
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.wire import (
    DeleteTopicsRequest,
    DeleteTopicState,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    MetadataRequest,
    MetadataRequestTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path


def test_the_topic_is_there_from_the_first_start_and_after_a_restart() -> None:
    with broker() as b:
        for _ in range(2):
            assert f"topic {TOPIC} created" in b.log_text()
            b.stop()
            b.start()
        assert b.log_text().count(f"topic {TOPIC} created") == 1


def test_the_topic_is_internal_and_empty(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.broker.subjects.make_retry()
        async with served.client() as client:
            (topic,) = (await client.call(MetadataRequest(topics=None), 12)).topics
            assert (topic.name, topic.is_internal, len(topic.partitions)) == (TOPIC, True, 1)
            named = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            (topic,) = (await client.call(named, 12)).topics
            assert not topic.is_internal, "kafka-python would not write to it"
            asked = FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0)])
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[asked])
            (found,) = (await client.call(request, 11)).responses[0].partitions
            assert (found.error_code, found.high_watermark, found.records) == (0, 0, b"")

    serve(check, tmp_path)


def test_the_topic_cannot_be_deleted_or_changed(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.broker.subjects.make_retry()
        subject = served.broker.log.subjects.by_name[TOPIC]
        async with served.client() as client:
            for topic in (
                DeleteTopicState(name=TOPIC),
                DeleteTopicState(topic_id=subject.topic_id),
            ):
                answer = await client.call(DeleteTopicsRequest(topics=[topic]), 6)
                assert answer.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
                assert "the broker's own" in answer.responses[0].error_message
            config = IncrementalAlterableConfig("retention.ms", 0, "1000")
            resource = IncrementalAlterConfigsResource(Resource.TOPIC, TOPIC, [config])
            answer = await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert answer.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert served.broker.log.subjects.by_name[TOPIC] is subject
        assert served.broker.registry.configs(subject.id) == {}

    serve(check, tmp_path)
