"""Groups that admins are shown wrongly, or that are deleted when they must not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.groups.membership.protocol import assignment_bytes
from kumquat.gateway.tests.harness import Client, Served, serve
from kumquat.gateway.tests.members import sharing
from kumquat.gateway.tests.sharing.test_sharing import fill
from kumquat.gateway.wire import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path


async def commit_simply(client: Client, group: str, topic: str, offset: int) -> None:
    """As a consumer that assigns itself does: a group without members comes of it."""
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata="")
    topics = [OffsetCommitRequestTopic(topic, [partition])]
    answer = await client.call(OffsetCommitRequest(group, -1, "", topics=topics), 7)
    assert answer.topics[0].partitions[0].error_code == 0


async def join_consumer(client: Client, group: str, topic: str) -> str:
    """A KIP-848 member; gives its id."""
    request = ConsumerGroupHeartbeatRequest(
        group,
        "m" * 22,
        0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    answer = await client.call(request, 1)
    assert answer.error_code == 0, answer.error_message
    return str(answer.member_id)


async def listed(client: Client, **filters: list[str]) -> dict[str, tuple[str, str, str]]:
    answer = await client.call(ListGroupsRequest(**filters), 5)
    assert answer.error_code == 0
    return {g.group_id: (g.protocol_type, g.group_state, g.group_type) for g in answer.groups}


def test_offsets_past_their_retention_are_forgotten_by_a_running_broker(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await commit_simply(client, "old", "t", 0)
            began = served.broker.actions.now_ms()
            served.broker.actions.now_ms = lambda: began + 3_600_000
            await commit_simply(client, "new", "t", 0)
            served.broker.coordinator.groups.by_name["new"].progress[1].committed_at = began + 5000
            served.clock.jump(0.9)
            await served.settled()
            assert (await listed(client)).keys() == {"old", "new"}
            served.clock.jump(0.2)
            await served.settled()
            assert (await listed(client)).keys() == {"new"}

    options = {
        "offsets_retention_minutes": 60,
        "offsets_retention_check_interval_ms": 1000,
    }
    serve(check, tmp_path, **options)


def test_groups_are_listed_by_state_and_type_in_any_case(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "classic", "t", 1), served.client() as client:
            await commit_simply(client, "empty", "t", 0)
            await join_consumer(client, "new", "t")
            stable, empty = ("consumer", "Stable", "classic"), ("", "Empty", "classic")
            new = ("consumer", "Stable", "consumer")
            everything = {"classic": stable, "empty": empty, "new": new}
            assert await listed(client) == everything
            assert await listed(client, states_filter=["eMPTY"]) == {"empty": empty}
            assert await listed(client, types_filter=["Consumer"]) == {"new": new}
            both = await listed(client, states_filter=["Stable"], types_filter=["CLASSIC"])
            assert both == {"classic": stable}
            assert await listed(client, states_filter=["Nonsense"]) == {}
            for version in range(4):
                answer = await client.call(ListGroupsRequest(), version)
                assert {group.group_id for group in answer.groups} == everything.keys()

    serve(check, tmp_path)


def test_the_lag_of_a_group_that_shares_is_not_shown_once_for_each_member(tmp_path: Path) -> None:
    """The one partition is with the member that the group's position waits for."""

    async def assigned(client: Client) -> list[str]:
        answer = await client.call(DescribeGroupsRequest(["g"], True), 5)
        return [
            member.member_id
            for member in answer.groups[0].members
            if member.member_assignment == assignment_bytes(["t"])
        ]

    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "g", "t", 3) as members, served.client() as client:
            assert await assigned(client) == [members[0].id]
            await fill(served, "t", 30)
            for member in (members[1], members[2], members[0]):
                assert await member.fetch()
            assert await assigned(client) == [members[1].id]
            await members[1].commit()
            assert await assigned(client) == [members[2].id]
            described = await client.call(DescribeGroupsRequest(["g"]), 5)
            assert len(described.groups[0].members) == 3

    serve(check, tmp_path)


def test_sharing_members_are_all_described(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "g", "t", 2) as members, served.client() as client:
            answer = await client.call(DescribeGroupsRequest(["g"], True), 5)
            (group,) = answer.groups
            assert (group.error_code, group.group_state, group.protocol_data) == (
                0,
                "Stable",
                "range",
            )
            assert group.authorized_operations > 0
            assert {member.member_id for member in group.members} == {m.id for m in members}
            for member in group.members:
                assert b"t" in member.member_metadata
                assert member.client_host == "/127.0.0.1"
                assert member.client_id in ("c0", "c1")

    serve(check, tmp_path)


def test_a_group_that_is_not_there_is_dead_and_from_version_6_on_an_error(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with served.client() as client:
            for version, missing in ((4, 0), (5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
                answer = await client.call(DescribeGroupsRequest(["nobody", ""]), version)
                assert [(g.error_code, g.group_state) for g in answer.groups] == [
                    (missing, "Dead"),
                    (ErrorCode.INVALID_GROUP_ID, "Dead"),
                ]

    serve(check, tmp_path)


def test_a_group_of_the_consumer_protocol_is_described_and_others_are_not_found_there(
    tmp_path: Path,
) -> None:
    """So that clients ask DescribeGroups for those."""

    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "classic", "t", 1), served.client() as client:
            member_id = await join_consumer(client, "new", "t")
            names = ["new", "classic", "nobody", ""]
            answer = await client.call(ConsumerGroupDescribeRequest(names), 1)
            codes = [group.error_code for group in answer.groups]
            missing = ErrorCode.GROUP_ID_NOT_FOUND
            assert codes == [0, missing, missing, ErrorCode.INVALID_GROUP_ID]
            new = answer.groups[0]
            assert (new.group_state, new.group_epoch > 0) == ("Stable", True)
            (member,) = new.members
            assert (member.member_id, member.member_type) == (member_id, 1)
            assert member.subscribed_topic_names == ["t"]
            (held,) = member.assignment.topic_partitions
            subject = served.broker.log.subjects.by_name["t"]
            assert (held.topic_id, held.topic_name, held.partitions) == (
                subject.topic_id,
                "t",
                [0],
            )
            old = await client.call(DescribeGroupsRequest(["new"]), 5)
            assert [m.member_id for m in old.groups[0].members] == [member_id]

    serve(check, tmp_path)


def test_only_groups_without_members_are_deleted_and_for_good(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 4)
        async with sharing(served, "busy", "t", 1) as (member,), served.client() as client:
            await commit_simply(client, "empty", "t", 3)
            names = ["empty", "busy", "nobody", "", "empty"]
            answer = await client.call(DeleteGroupsRequest(names), 2)
            assert {r.group_id: r.error_code for r in answer.results} == {
                "empty": 0,
                "busy": ErrorCode.NON_EMPTY_GROUP,
                "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
                "": ErrorCode.INVALID_GROUP_ID,
            }
            await member.drain()
            await member.leave()
            answer = await client.call(DeleteGroupsRequest(["busy"]), 2)
            assert answer.results[0].error_code == 0
            assert await listed(client) == {}
            assert await member.fetch() == [], "its slot is gone"

    async def after(served: Served) -> None:
        async with served.client() as client:
            assert await listed(client) == {}

    serve(check, tmp_path)
    serve(after, tmp_path)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_deleted_group_begins_again(tmp_path: Path, version: int) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 4)
        async with sharing(served, "g", "t", 1) as (member,):
            assert len(await member.drain()) == len(written)
            assert await member.commit() == 0
            await member.leave()
        async with served.client() as client:
            assert (await client.call(DeleteGroupsRequest(["g"]), version)).results[
                0
            ].error_code == 0
        async with sharing(served, "g", "t", 1) as (member,):
            assert len(await member.drain()) == len(written)

    serve(check, tmp_path)


def test_positions_are_deleted_only_where_nobody_is_subscribed(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.create("u")

        async def delete(group: str, *topics: str) -> tuple[int, list[int]]:
            asked = [
                OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])
                for topic in topics
            ]
            answer = await client.call(OffsetDeleteRequest(group, asked), 0)
            return answer.error_code, [t.partitions[0].error_code for t in answer.topics]

        async with served.client() as client:
            await commit_simply(client, "g", "t", 1)
            await commit_simply(client, "g", "u", 1)
            async with sharing(served, "g", "t", 1) as (member,):
                assert await delete("g", "t", "u", "nothing") == (
                    0,
                    [
                        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                        0,
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    ],
                )
                progress = served.broker.actions.groups.by_name["g"].progress
                assert list(progress) == [served.broker.log.subjects.by_name["t"].id]
                await member.leave()
            assert await delete("g", "t", "u") == (0, [0, 0])
            assert (await delete("nobody", "t"))[0] == ErrorCode.GROUP_ID_NOT_FOUND
            assert (await delete("", "t"))[0] == ErrorCode.INVALID_GROUP_ID

    serve(check, tmp_path)
