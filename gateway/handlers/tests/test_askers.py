"""A pull offset answered to a client that is no member, or a plain one to a member, which would reset."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.handlers.common.askers import READING_SECONDS
from kumquat.gateway.tests.harness import Client, Served, serve
from kumquat.gateway.tests.members import fetch_request
from kumquat.gateway.tests.sharing.test_sharing import fill
from kumquat.gateway.wire import (
    ApiVersionsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

EARLIEST, LATEST = -2, -1
SHORT = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff"
"""What kafka-go says of its subscription."""
WRITTEN = 1


async def ask(client: Client, timestamp: int, version: int = 1) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("t", [partition])])
    return (await client.call(request, version)).topics[0].partitions[0]


async def ends(client: Client, version: int = 1) -> tuple[int, int]:
    """As a kafka-go reader asks for them."""
    first, last = await ask(client, EARLIEST, version), await ask(client, LATEST, version)
    assert first.error_code == last.error_code == 0
    return first.offset, last.offset


async def join(client: Client, version: int, metadata: bytes = SHORT) -> int:
    """A member of `g`; gives the pull offset that it is to begin at."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata)],
    )
    answer = await client.call(request, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = await client.call(request, version)
    assert answer.error_code == 0
    synced = await client.call(SyncGroupRequest("g", answer.generation_id, answer.member_id), 0)
    assert b"t" in synced.assignment
    asked = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
    offset: int = (await client.call(asked, 1)).topics[0].partitions[0].committed_offset
    assert offset >> 48
    return offset


@asynccontextmanager
async def clients(served: Served, *names: str) -> AsyncIterator[list[Client]]:
    await served.create("t", **{"consume.mode": "shared"})
    await fill(served, "t", WRITTEN)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(served.client(name)) for name in names]


async def kafka_go(client: Client) -> int:
    await client.call(ApiVersionsRequest(), 0)
    return await join(client, 2)


def test_a_member_is_told_its_own_end_on_the_connection_on_which_it_joined(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with clients(served, "app", "app") as (member, other):
            for client in (member, other):
                await client.call(ApiVersionsRequest("sarama", "v1.61.1"), 3)
            begin = await join(member, 7, SHORT + b"\0\0\0\0")
            assert await ends(member, 6) == (0, begin)
            await member.call(fetch_request("t", begin, max_wait_ms=0), 11)
            assert await ends(member, 6) == (0, begin + WRITTEN), "it was handed all there is"
            assert await ends(other, 6) == (0, WRITTEN), "a monitor of the same name"

    serve(check, tmp_path)


def test_a_sarama_that_cannot_be_told_is_made_to_ask_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with clients(served, "app", "app", "other") as (member, cut, other):
            for client in (member, cut, other):
                await client.call(ApiVersionsRequest("sarama", "v1.61.1"), 3)
            await join(member, 7, SHORT + b"\0\0\0\0")
            answer = await ask(cut, LATEST, 6)
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await ends(other, 6) == (0, WRITTEN)

    serve(check, tmp_path)


def test_a_reader_of_kafka_go_is_told_its_members_end_until_it_reads(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with clients(served, "app", "app") as (member, another):
            begin = await kafka_go(member)
            async with served.client("app") as reader:
                assert await ends(reader) == (0, begin)
                assert await ends(reader) == (0, begin), "it asks twice"
                await reader.call(ApiVersionsRequest(), 0)
                await reader.call(fetch_request("t", begin, max_wait_ms=0), 10)
                assert await ends(another) == (0, WRITTEN), "somebody reads: this one is another"
                assert await ends(reader) == (0, begin + WRITTEN)
                served.clock.jump(READING_SECONDS + 1)
                assert await ends(another) == (0, begin + WRITTEN), "its connection may be dead"
            await served.settled()
            async with served.client("app") as again:
                assert await ends(again) == (0, begin + WRITTEN), "it has lost its connection"

    serve(check, tmp_path)


def test_each_of_several_members_in_one_program_finds_its_offset_below_the_end(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        async with clients(served, "app", "app", "app", "app") as (one, two, reader, last):
            first, second = await kafka_go(one), await kafka_go(two)
            assert first < second
            assert await ends(reader) == (0, second)
            await reader.call(fetch_request("t", second, max_wait_ms=0), 10)
            assert await ends(last) == (0, first)

    serve(check, tmp_path)


@pytest.mark.parametrize(
    "sign", ["client id", "address", "name", "ApiVersions", "version", "earliest", "bound"]
)
def test_who_lacks_one_sign_of_a_reader_is_told_sequences(tmp_path: Path, sign: str) -> None:
    async def check(served: Served) -> None:
        name = "other" if sign == "client id" else "app"
        async with clients(served, "app", name) as (member, asker):
            await kafka_go(member)
            version = 1
            if sign == "address":
                (known,) = served.broker.coordinator.groups.by_name["g"].members.values()
                known.host = "/10.0.0.9"
            elif sign == "name":  # Spark, or an admin client, of the same client id and host
                await asker.call(ApiVersionsRequest("apache-kafka-java", "3.9.1"), 4)
            elif sign == "ApiVersions":
                await asker.call(ApiVersionsRequest(), 2)
            elif sign == "version":
                version = 2
            elif sign == "bound":
                elsewhere = await asker.call(
                    JoinGroupRequest(
                        group_id="h",
                        session_timeout_ms=60_000,
                        protocol_type="consumer",
                        protocols=[
                            JoinGroupRequestProtocol("range", SHORT.replace(b"\1t", b"\1u"))
                        ],
                    ),
                    2,
                )
                assert elsewhere.error_code == 0
            if sign == "earliest":
                assert (await ask(asker, LATEST)).offset == WRITTEN
            else:
                assert await ends(asker, version) == (0, WRITTEN)

    serve(check, tmp_path)


def test_members_that_do_not_share_are_told_sequences(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", WRITTEN)
        async with served.client("app") as member, served.client("app") as reader:
            await member.call(ApiVersionsRequest(), 0)
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", SHORT)],
            )
            assert (await member.call(request, 2)).error_code == 0
            assert await ends(reader) == await ends(member) == (0, WRITTEN)

    serve(check, tmp_path)
