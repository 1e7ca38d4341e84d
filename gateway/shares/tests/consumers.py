"""A share consumer by hand: one connection, one member, every field of its requests in the test's hand."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka.record import MemoryRecords

from kumquat.gateway.handlers.common.resources import Resource
from kumquat.gateway.wire import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ShareAcknowledgeRequest,
    ShareFetchAcknowledgement,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
    ShareForgottenTopic,
    ShareGroupHeartbeatRequest,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kumquat.gateway.tests.harness import Client, Served
    from kumquat.gateway.wire import SharePartitionData

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Batch: TypeAlias = tuple[int, int, list[int]]
"""First and last offset, and the types."""


class Consumer:
    def __init__(self, client: Client, topic_id: bytes, member: str, group: str) -> None:
        self.client = client
        self.topic_id = topic_id
        self.member = member
        self.group = group
        self.epoch = 0

    async def join(self, *topics: str) -> Any:
        request = ShareGroupHeartbeatRequest(
            self.group, self.member, 0, subscribed_topic_names=list(topics)
        )
        answer = await self.client.call(request, 1)
        assert answer.error_code == 0, answer.error_message
        return answer

    def fetch_request(
        self,
        *acks: Batch,
        epoch: int | None = None,
        wait: int = 0,
        most: int = 500,
        partition: int = 0,
        topic_id: bytes | None = None,
        forgets: bool = False,
        **more: Any,
    ) -> ShareFetchRequest:
        """`epoch`: the next one when it is None."""
        topic_id = self.topic_id if topic_id is None else topic_id
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        batches = [ShareFetchAcknowledgement(*batch) for batch in acks]
        named = [ShareFetchTopic(topic_id, [ShareFetchPartition(partition, batches)])]
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=epoch,
            max_wait_ms=wait,
            min_bytes=more.pop("min_bytes", 1),
            max_records=most,
            batch_size=most,
            topics=named if epoch == 0 or batches or more.pop("names", False) else [],
            forgotten_topics_data=[ShareForgottenTopic(topic_id, [partition])] if forgets else [],
            **more,
        )

    async def fetch(self, *acks: Batch, version: int = 2, **how: Any) -> Any:
        return await self.client.call(self.fetch_request(*acks, **how), version)

    def acknowledge_request(
        self,
        *acks: Batch,
        epoch: int | None = None,
        partition: int = 0,
        topic_id: bytes | None = None,
        renews: bool = False,
    ) -> ShareAcknowledgeRequest:
        if epoch is None:
            epoch, self.epoch = self.epoch, self.epoch + 1
        batches = [AcknowledgementBatch(*batch) for batch in acks]
        topic_id = self.topic_id if topic_id is None else topic_id
        return ShareAcknowledgeRequest(
            self.group,
            self.member,
            epoch,
            renews,
            [AcknowledgeTopic(topic_id, [AcknowledgePartition(partition, batches)])],
        )

    async def acknowledge(self, *acks: Batch, version: int = 2, **how: Any) -> Any:
        return await self.client.call(self.acknowledge_request(*acks, **how), version)

    async def acked(self, *acks: Batch, **how: Any) -> int:
        """The error of the only partition."""
        answer = await self.acknowledge(*acks, **how)
        assert answer.error_code == 0, answer.error_message
        return int(only(answer).error_code)


def only(answer: Any) -> Any:
    """What an answer says of its only partition."""
    ((data,),) = [topic.partitions for topic in answer.responses]
    return data


def values(data: SharePartitionData) -> dict[int, bytes]:
    """Offset → value of what was acquired: clients leave out records that were not."""
    taken = {
        offset
        for one in data.acquired_records
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    found = {}
    records = MemoryRecords(bytes(data.records))
    while (batch := records.next_batch()) is not None:
        for record in batch:
            if record.offset in taken:
                found[record.offset] = record.value
    return found


def ranges(data: SharePartitionData) -> list[tuple[int, int, int]]:
    return [
        (one.first_offset, one.last_offset, one.delivery_count) for one in data.acquired_records
    ]


def got(answer: Any) -> dict[int, bytes]:
    """Offset → value, of an answer without errors."""
    assert answer.error_code == 0, answer.error_message
    found = {}
    for topic in answer.responses:
        for data in topic.partitions:
            assert (data.error_code, data.acknowledge_error_code) == (0, 0), data
            found.update(values(data))
    return found


async def fetched(made: Consumer, count: int, version: int = 2) -> dict[int, bytes]:
    """Fetch until there are so many: a member is given a part at a time."""
    found: dict[int, bytes] = {}
    while len(found) < count:
        more = got(await made.fetch(version=version))
        assert more, f"{found} and nothing more"
        found |= more
    return found


@asynccontextmanager
async def consumer(
    served: Served, member: str, topic: str = "t", group: str = "g", *, joins: bool = True
) -> AsyncIterator[Consumer]:
    """Connected, and a member that reads the topic."""
    topic_id = served.broker.log.subjects.by_name[topic].topic_id
    async with served.client() as client:
        made = Consumer(client, topic_id, member, group)
        if joins:
            await made.join(topic)
        yield made


async def prepare(served: Served, *names: str, group: str = "g", **configs: str) -> None:
    """Topics, and a group that reads from the beginning and retries at once, with these configs (with _
    for each dot)."""
    for name in names or ("t",):
        await served.create(name)
    wanted = {"share.auto.offset.reset": "earliest", "retry.backoff.ms": "0"}
    wanted |= {name.replace("_", "."): value for name, value in configs.items()}
    resource = IncrementalAlterConfigsResource(
        Resource.GROUP,
        group,
        [
            IncrementalAlterableConfig(name=name, config_operation=0, value=value)
            for name, value in wanted.items()
        ],
    )
    async with served.client() as client:
        answer = await client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        (outcome,) = answer.responses
        assert outcome.error_code == 0, outcome.error_message
