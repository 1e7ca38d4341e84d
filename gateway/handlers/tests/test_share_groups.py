"""Share groups over real sockets: joins that are answered before they are durable, groups that admins are
shown wrongly, offsets that are altered when they must not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.delivery import engine
from kumquat.core.delivery.ranges import Range
from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.handlers.tests.test_groups_admin import commit_simply, join_consumer, listed
from kumquat.gateway.tests.harness import NO_SPACE, Client, Served, produce, serve
from kumquat.gateway.wire import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeGroupsRequest,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    OffsetDeleteRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.gateway.wire.declare import ZERO_UUID

if TYPE_CHECKING:
    from pathlib import Path

MEMBER = "m" * 22


async def beat(client: Client, group: str, epoch: int, *topics: str, member: str = MEMBER) -> Any:
    names = list(topics) or None
    request = ShareGroupHeartbeatRequest(group, member, epoch, subscribed_topic_names=names)
    return await client.call(request, 1)


async def join(client: Client, group: str, *topics: str, member: str = MEMBER) -> Any:
    answer = await beat(client, group, 0, *topics, member=member)
    assert answer.error_code == 0, answer.error_message
    return answer


async def leave(client: Client, group: str, member: str = MEMBER) -> None:
    assert (await beat(client, group, -1, member=member)).error_code == 0


async def describe(client: Client, group: str) -> Any:
    answer = await client.call(ShareGroupDescribeRequest([group], True), 1)
    (found,) = answer.groups
    return found


async def offsets(
    client: Client, group: str, topics: list[str] | None, version: int = 1
) -> dict[str, tuple[int, int, int, int]]:
    """Topic → start offset, lag, leader epoch, error."""
    asked = None
    if topics is not None:
        asked = [DescribeShareGroupOffsetsRequestTopic(topic, [0]) for topic in topics]
    request = DescribeShareGroupOffsetsRequest(
        [DescribeShareGroupOffsetsRequestGroup(group, asked)]
    )
    (found,) = (await client.call(request, version)).groups
    assert (found.group_id, found.error_code) == (group, 0)
    return {
        topic.topic_name: (p.start_offset, p.lag, p.leader_epoch, p.error_code)
        for topic in found.topics
        for p in topic.partitions
    }


async def alter(client: Client, group: str, **starts: int) -> Any:
    topics = [
        AlterShareGroupOffsetsRequestTopic(t, [AlterShareGroupOffsetsRequestPartition(0, offset)])
        for t, offset in starts.items()
    ]
    return await client.call(AlterShareGroupOffsetsRequest(group, topics), 0)


async def delete(client: Client, group: str, *topics: str) -> Any:
    asked = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
    return await client.call(DeleteShareGroupOffsetsRequest(group, asked), 0)


async def fill(client: Client, topic: str, count: int) -> None:
    values = [str(number).encode() for number in range(count)]
    answer = await client.call(produce(topic, *values), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def lease(served: Served, group_name: str, topic: str, count: int, member: str = MEMBER) -> None:
    """As a ShareFetch does."""
    coordinator, subject_id = (
        served.broker.coordinator,
        served.broker.log.subjects.by_name[topic].id,
    )
    group = coordinator.groups.by_name[group_name]
    progress = group.progress[subject_id]
    log = progress.pull_logs[group.members[member].holds[subject_id]]
    given = [Range(progress.cursor, count, 1)]
    served.broker.sharing.append([engine.pull_action(group.id, subject_id, log, given)])


# --- heartbeats --------------------------------------------------------------------------------------


def test_a_join_is_answered_with_its_assignment_when_it_is_durable(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            served.files.hold_syncs()
            request = ShareGroupHeartbeatRequest("s", MEMBER, 0, subscribed_topic_names=["t"])
            await client.send((request, 1))
            await served.settled()
            assert not client.has_answer, "a crash could forget the member"
            served.files.release_syncs()
            answer = await client.receive()
            topic_id = served.broker.log.subjects.by_name["t"].topic_id
            (part,) = answer.assignment.topic_partitions
            assert (part.topic_id, part.partitions) == (topic_id, [0])
            assert (answer.member_id, answer.member_epoch > 0) == (MEMBER, True)
            assert answer.heartbeat_interval_ms == 5_000
            again = await beat(client, "s", answer.member_epoch)
            assert (again.error_code, again.assignment) == (0, None)
            assert again.member_epoch == answer.member_epoch

    serve(check, tmp_path)


def test_a_join_that_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            served.files.write_error = NO_SPACE
            answer = await beat(client, "s", 0, "t")
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert answer.error_message
            assert await listed(client) == {}
            served.files.write_error = None
            await join(client, "s", "t")

    serve(check, tmp_path)


def test_members_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    epochs: list[int] = []

    async def before(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            epochs.append((await join(client, "s", "t")).member_epoch)
            await fill(client, "t", 5)
            lease(served, "s", "t", 2)
            assert (await alter(client, "other", t=3)).error_code == 0

    async def after(served: Served) -> None:
        async with served.client() as client:
            answer = await beat(client, "s", epochs[0])
            assert (answer.error_code, answer.member_epoch) == (0, epochs[0])
            assert len(answer.assignment.topic_partitions) == 1
            assert (await offsets(client, "s", None))["t"][:2] == (0, 5)
            assert (await offsets(client, "other", None))["t"][:2] == (3, 2)
            share = {"s": ("share", "Stable", "share"), "other": ("share", "Empty", "share")}
            assert await listed(client) == share

    serve(before, tmp_path)
    serve(after, tmp_path)


@pytest.mark.parametrize(
    ("reset", "first"), [("latest", 3), ("earliest", 0), ("by_duration:PT1H", 1)]
)
def test_a_group_begins_where_its_config_says(tmp_path: Path, reset: str, first: int) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.broker.registry.alter_group("s", {"share.auto.offset.reset": reset})
        now = served.broker.actions.now_ms()
        async with served.client() as client:
            for age in (7_200_000, 60_000, 0):
                records = bytes(batch(b"x", timestamp=now - age))
                await client.call(produce("t", records=records), 9)
            await join(client, "s", "t")
            assert (await offsets(client, "s", ["t"]))["t"][:2] == (first, 3 - first)

    serve(check, tmp_path)


# --- what admins see -----------------------------------------------------------------------------------


def test_a_share_group_is_listed_and_described_as_one_and_as_nothing_else(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.create("u")
        async with served.client() as client:
            await join(client, "s", "t", "u", "nowhere")
            await join(client, "s", "t", member="n" * 22)
            await join_consumer(client, "c", "t")
            share = {"s": ("share", "Stable", "share")}
            assert await listed(client, types_filter=["Share"]) == share
            assert await listed(client, types_filter=["classic"]) == {}
            both = await listed(client, states_filter=["stable"], types_filter=["SHARE"])
            assert both == share
            found = await describe(client, "s")
            assert (found.error_code, found.group_state, found.assignor_name) == (
                *(0, "Stable"),
                "simple",
            )
            assert found.group_epoch == max(member.member_epoch for member in found.members)
            assert found.authorized_operations > 0
            first, second = found.members
            assert first.member_id == MEMBER
            assert first.subscribed_topic_names == ["nowhere", "t", "u"]
            shown = [(p.topic_name, p.partitions) for p in first.assignment.topic_partitions]
            assert shown == [("t", [0]), ("u", [0])]
            shown = [(p.topic_name, p.partitions) for p in second.assignment.topic_partitions]
            assert shown == [("t", [0])]
            assert (first.client_id, first.client_host) == ("tests", "/127.0.0.1")
            for group in ("c", "nobody", ""):
                code = (await describe(client, group)).error_code
                missing = ErrorCode.GROUP_ID_NOT_FOUND if group else ErrorCode.INVALID_GROUP_ID
                assert code == missing
            answer = await client.call(DescribeGroupsRequest(["s"]), 6)
            assert answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
            answer = await client.call(DescribeGroupsRequest(["s"]), 5)
            assert (answer.groups[0].error_code, answer.groups[0].group_state) == (0, "Dead")
            answer = await client.call(ConsumerGroupDescribeRequest(["s"]), 1)
            assert answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
            answer = await client.call(OffsetDeleteRequest("s", []), 0)
            assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    serve(check, tmp_path)


def test_an_empty_share_group_is_deleted_with_all_it_knows(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await join(client, "s", "t")
            answer = await client.call(DeleteGroupsRequest(["s"]), 2)
            assert answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
            await leave(client, "s")
            assert (await describe(client, "s")).group_state == "Empty"
            answer = await client.call(DeleteGroupsRequest(["s"]), 2)
            assert answer.results[0].error_code == 0
            assert (await describe(client, "s")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert await offsets(client, "s", None) == {}
            await join_consumer(client, "s", "t")

    serve(check, tmp_path)


# --- offsets -------------------------------------------------------------------------------------------


def test_the_start_offset_is_the_lowest_that_is_not_settled_and_the_lag_counts_what_is_not(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        for topic in ("t", "u"):
            await served.create(topic)
        async with served.client() as client:
            await join(client, "s", "t")
            await fill(client, "t", 10)
            assert await offsets(client, "s", None) == {"t": (0, 10, 0, 0)}
            lease(served, "s", "t", 4)
            assert await offsets(client, "s", None) == {"t": (0, 10, 0, 0)}
            assert await offsets(client, "s", None, version=0) == {"t": (0, -1, 0, 0)}
            nothing = (-1, -1, 0, 0)
            found = await offsets(client, "s", ["t", "u", "nowhere"])
            assert found == {"t": (0, 10, 0, 0), "u": nothing, "nowhere": nothing}
            assert await offsets(client, "nobody", ["t"]) == {"t": nothing}
            assert await offsets(client, "nobody", None) == {}
            await commit_simply(client, "c", "u", 0)
            assert await offsets(client, "c", ["u"]) == {"u": nothing}
            asked = [DescribeShareGroupOffsetsRequestTopic("nowhere", [0, 1])]
            request = DescribeShareGroupOffsetsRequest(
                [
                    DescribeShareGroupOffsetsRequestGroup("s", asked),
                    DescribeShareGroupOffsetsRequestGroup("", None),
                ]
            )
            first, second = (await client.call(request, 1)).groups
            assert first.topics[0].topic_id == ZERO_UUID
            assert [p.partition_index for p in first.topics[0].partitions] == [0, 1]
            assert second.error_code == ErrorCode.INVALID_GROUP_ID

    serve(check, tmp_path)


def test_offsets_are_altered_only_while_nobody_is_there(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await fill(client, "t", 10)
            await join(client, "s", "t")
            assert (await alter(client, "s", t=4)).error_code == ErrorCode.NON_EMPTY_GROUP
            assert (await delete(client, "s", "t")).error_code == ErrorCode.NON_EMPTY_GROUP
            await leave(client, "s")
            answer = await alter(client, "s", t=4)
            assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
            topic_id = served.broker.log.subjects.by_name["t"].topic_id
            assert answer.responses[0].topic_id == topic_id
            assert (await offsets(client, "s", None))["t"][:2] == (4, 6)
            await alter(client, "s", t=400)
            assert (await offsets(client, "s", None))["t"][:2] == (10, 0)
            await alter(client, "s", t=7)
            await join(client, "s", "t")
            assert (await offsets(client, "s", None))["t"][:2] == (7, 3), "a join does not move it"
            assert (await alter(client, "", t=1)).error_code == ErrorCode.INVALID_GROUP_ID

    serve(check, tmp_path)


def test_an_offset_that_is_altered_makes_a_share_group_and_a_refused_one_does_not(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await fill(client, "t", 10)
            for starts, code in (
                ({"nowhere": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ({"t": -1}, ErrorCode.INVALID_REQUEST),
            ):
                answer = await alter(client, "s", **starts)
                (topic,) = answer.responses
                assert (answer.error_code, topic.partitions[0].error_code) == (0, code)
                assert topic.partitions[0].error_message
            assert await listed(client) == {}
            assert (await alter(client, "s", t=4)).error_code == 0
            assert await listed(client) == {"s": ("share", "Empty", "share")}
            await commit_simply(client, "c", "t", 1)
            assert (await alter(client, "c", t=4)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            await join(client, "s", "t")
            assert (await offsets(client, "s", None))["t"][:2] == (4, 6)

    serve(check, tmp_path)


def test_a_deleted_offset_is_begun_again_by_the_config(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        for topic in ("t", "u"):
            await served.create(topic)
        async with served.client() as client:
            await fill(client, "t", 10)
            assert (await delete(client, "s", "t")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            await commit_simply(client, "c", "t", 1)
            assert (await delete(client, "c", "t")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            await alter(client, "s", t=4)
            answer = await delete(client, "s", "t", "u", "nowhere")
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [t.error_code for t in answer.responses] == [0, unknown, unknown]
            assert await offsets(client, "s", None) == {}
            assert await listed(client, types_filter=["share"]) == {
                "s": ("share", "Empty", "share")
            }
            await join(client, "s", "t")
            assert (await offsets(client, "s", None))["t"][:2] == (10, 0)

    serve(check, tmp_path)
