"""Members of groups that speak raw frames, for tests in which the broker runs in this process.

    async with sharing(served, "g", "t", 3) as members:      # three members, with a pull log each
        got = await members[0].fetch()                        # [Record], from where the last ended
        await members[0].commit()

A member has a connection for the group and another for Fetch, as real clients do. Nothing is done behind a
test's back: no heartbeats, no commits.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from kumquat.core.records import records_of
from kumquat.core.records.batch import OVERHEAD, read_head
from kumquat.gateway.wire import (
    ConsumerProtocolSubscription,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kumquat.gateway.tests.harness import Client, Served

MAX_WAIT_MS = 500
SESSION_MS = 10_000


class Record(NamedTuple):
    offset: int
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...] = ()


def records_in(data: bytes | memoryview | None) -> list[Record]:
    """The records of the batches in a Fetch's answer, all of which must be whole."""
    view, found = memoryview(data or b""), []
    while len(view):
        size = read_head(view).length + OVERHEAD
        found += [
            Record(r.offset, r.value or b"", tuple(r.headers))
            for r in records_of(view[:size], 1 << 20)
        ]
        view = view[size:]
    return found


def fetch_request(
    topic: str, offset: int, *, max_wait_ms: int = MAX_WAIT_MS, max_bytes: int = 1 << 20
) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


class Member:
    """A classic member, subscribed to one topic."""

    def __init__(self, group: str, topic: str, coordinator: Client, data: Client) -> None:
        self.group = group
        self.topic = topic
        self.data = data
        self._coordinator = coordinator
        self.id = ""
        self.generation = -1
        self.position = -1
        """Where the next Fetch begins."""
        self.high_watermark = -1

    async def join(self) -> bool:
        """Join and sync, and ask for the position if the topic was assigned; whether it was."""
        subscription = ConsumerProtocolSubscription(topics=[self.topic])
        metadata = b"\0\0" + b"".join(ConsumerProtocolSubscription.encode(subscription, 0))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        answer = await self._call(request, 5)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = await self._call(request, 5)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.id, self.generation = answer.member_id, answer.generation_id
        return await self.synced()

    async def synced(self) -> bool:
        """Its JoinGroup was answered: the rest of `join`."""
        synced = await self._call(SyncGroupRequest(self.group, self.generation, self.id), 3)
        assert synced.error_code == 0, ErrorCode(synced.error_code)
        if self.topic.encode() not in synced.assignment:
            return False
        self.position = await self.committed()
        return True

    async def committed(self) -> int:
        topics = [OffsetFetchRequestTopic(self.topic, [0])]
        answer = await self._call(OffsetFetchRequest(self.group, topics), 5)
        partition = answer.topics[0].partitions[0]
        assert partition.error_code == 0, ErrorCode(partition.error_code)
        return int(partition.committed_offset)

    async def heartbeat(self) -> int:
        answer = await self._call(HeartbeatRequest(self.group, self.generation, self.id), 3)
        return int(answer.error_code)

    async def commit(self, offset: int | None = None) -> int:
        """Commit what was read, or up to another offset; gives the partition's code."""
        partition = OffsetCommitRequestPartition(
            0, self.position if offset is None else offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            self.group,
            self.generation,
            self.id,
            topics=[OffsetCommitRequestTopic(self.topic, [partition])],
        )
        answer = await self._call(request, 7)
        return int(answer.topics[0].partitions[0].error_code)

    async def leave(self) -> None:
        assert (await self._call(LeaveGroupRequest(self.group, self.id), 1)).error_code == 0

    async def fetch(self, *, max_wait_ms: int = 0, max_bytes: int = 1 << 20) -> list[Record]:
        await self.ask(max_wait_ms=max_wait_ms, max_bytes=max_bytes)
        return await self.receive()

    async def ask(self, *, max_wait_ms: int = MAX_WAIT_MS, max_bytes: int = 1 << 20) -> None:
        """Send a Fetch and leave it at that."""
        request = fetch_request(
            self.topic, self.position, max_wait_ms=max_wait_ms, max_bytes=max_bytes
        )
        await self.data.send((request, 11))

    async def receive(self) -> list[Record]:
        """The answer to the Fetch that was sent; the position moves past it."""
        answer = await self.data.receive()
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == 0, ErrorCode(partition.error_code)
        self.high_watermark = partition.high_watermark
        found = [r for r in records_in(partition.records) if r.offset >= self.position]
        if found:
            self.position = found[-1].offset + 1
        return found

    async def drain(self, **options: int) -> list[Record]:
        """Fetch until nothing comes."""
        found: list[Record] = []
        while got := await self.fetch(**options):
            found += got
        return found

    async def _call(self, request: Any, version: int) -> Any:
        return await self._coordinator.call(request, version)


@asynccontextmanager
async def sharing(
    served: Served, group: str, topic: str, count: int, **configs: str
) -> AsyncIterator[list[Member]]:
    """Members that share a topic from its beginning; group configs with _ for each dot."""
    wanted = {"consume.mode": "shared", **{k.replace("_", "."): v for k, v in configs.items()}}
    await served.broker.registry.alter_group(group, wanted)
    async with AsyncExitStack() as stack:
        members = []
        for n in range(count):
            coordinator = await stack.enter_async_context(served.client(f"c{n}"))
            data = await stack.enter_async_context(served.client(f"c{n}"))
            member = Member(group, topic, coordinator, data)
            assert await member.join(), "the topic was not assigned"
            members.append(member)
        yield members
