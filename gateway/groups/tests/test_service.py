"""Groups over real sockets: what is answered when, in every version, and what a failing disk does to it."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

import pytest
import trio

from kumquat.gateway.groups.assignment.pattern import Pattern
from kumquat.gateway.tests.harness import NO_SPACE, Client, Served, serve
from kumquat.gateway.wire import (
    ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    SyncGroupRequest,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

SESSION_MS = 10_000
CROWD = 250


def joining(
    member_id: str = "",
    *,
    group: str = "g",
    topics: tuple[str, ...] = ("t",),
    protocol: str = "range",
) -> JoinGroupRequest:
    subscription = ConsumerProtocolSubscription(topics=list(topics))
    data = b"\0\0" + b"".join(ConsumerProtocolSubscription.encode(subscription, 0))
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(protocol, data)],
    )


def syncing(joined: Any, group: str = "g") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
    )


def beating(joined: Any) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )


def committing(joined: Any, offset: int, *, group: str = "g") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, -1, "")
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id if joined else -1,
        member_id=joined.member_id if joined else "",
        topics=[OffsetCommitRequestTopic("t", [partition])],
    )


def assigned(answer: Any) -> list[str]:
    decoded, _ = ConsumerProtocolAssignment.decode(answer.assignment, 0, 2)
    return [part.topic for part in decoded.assigned_partitions]


async def join(client: Client, version: int = 5, group: str = "g") -> Any:
    answer = await client.call(joining(group=group), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await client.call(joining(answer.member_id, group=group), version)
    assert answer.error_code == 0
    return answer


async def member(client: Client) -> Any:
    joined = await join(client)
    assert assigned(await client.call(syncing(joined), 3)) == ["t"]
    return joined


def code_of(answer: Any) -> int:
    """Of an OffsetCommit."""
    code: int = answer.topics[0].partitions[0].error_code
    return code


def test_the_life_of_a_member_in_every_version(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        for version in range(10):
            async with served.client() as client:
                group = f"g{version}"
                joined = await join(client, version, group)
                assert joined.protocol_name == "range"
                assert not joined.members
                answer = await client.call(syncing(joined, group), min(version, 5))
                assert assigned(answer) == ["t"]
                request = beating(joined)
                request.group_id = group
                assert (await client.call(request, min(version, 4))).error_code == 0
                commit = committing(joined, 3, group=group)
                assert code_of(await client.call(commit, max(2, version))) == 0
                assert await position(client, group, max(1, version)) == 3
                if version < 3:
                    leave = LeaveGroupRequest(group_id=group, member_id=joined.member_id)
                else:
                    identity = MemberIdentity(joined.member_id)
                    leave = LeaveGroupRequest(group_id=group, members=[identity])
                assert (await client.call(leave, min(version, 5))).error_code == 0
                again = await client.call(leave, min(version, 5))
                codes = [again.error_code, *(each.error_code for each in again.members)]
                assert ErrorCode.UNKNOWN_MEMBER_ID in codes

    serve(check, tmp_path)


async def position(client: Client, group: str, version: int) -> int:
    if version < 8:
        asked = [OffsetFetchRequestTopic("t", [0])]
        answer = await client.call(OffsetFetchRequest(group_id=group, topics=asked), version)
        found = answer
    else:
        several = [
            OffsetFetchRequestGroup(name, topics=[OffsetFetchRequestTopics("t", [0])])
            for name in ("other", group)
        ]
        answer = await client.call(OffsetFetchRequest(groups=several), version)
        assert answer.groups[0].topics[0].partitions[0].committed_offset == -1
        found = answer.groups[1]
    assert found.error_code == 0
    offset: int = found.topics[0].partitions[0].committed_offset
    return offset


def test_a_commit_is_answered_when_it_is_synced_and_not_before(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            joined = await member(client)
            await served.settled()
            served.files.hold_syncs()
            await client.send((committing(joined, 7), 8))
            await served.settled()
            assert not client.has_answer
        async with served.client() as other:  # said again elsewhere, it is no more durable
            await other.send((committing(joined, 7), 8))
            await served.settled()
            assert not other.has_answer
            served.files.release_syncs()
        async with served.client() as third:
            assert code_of(await third.call(committing(joined, 7), 8)) == 0

    serve(check, tmp_path)


def test_a_full_disk_is_told_as_a_coordinator_that_is_not_there(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            joined = await member(client)
            served.files.write_error = NO_SPACE
            away = ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert code_of(await client.call(committing(joined, 7), 8)) == away
            assert (await client.call(joining(joined.member_id), 5)).error_code == away
            assert (await client.call(beating(joined), 3)).error_code == 0
            served.clock.jump(SESSION_MS / 1000 + 2)
            await served.settled()
            served.files.write_error = None
            served.clock.jump(2)
            await served.settled()
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            assert (await client.call(beating(joined), 3)).error_code == unknown

    serve(check, tmp_path)


def test_a_silent_member_makes_room_after_its_session(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"consume.mode": "exclusive"})
        async with served.client() as first, served.client() as second:
            await member(first)
            waiting = await join(second)
            assert assigned(await second.call(syncing(waiting), 3)) == []
            for _ in range(10):
                served.clock.jump(1.5)
                await served.settled()
                code = (await second.call(beating(waiting), 3)).error_code
            assert code == ErrorCode.REBALANCE_IN_PROGRESS
            again = await second.call(joining(waiting.member_id), 5)
            assert assigned(await second.call(syncing(again), 3)) == ["t"]

    serve(check, tmp_path)


def test_a_connection_whose_member_is_gone_is_free_when_it_has_left(tmp_path: Path) -> None:
    """A consumer that was thrown out, unsubscribes and then assigns its topics itself."""

    async def check(served: Served) -> None:
        await served.create("t", **{"consume.mode": "shared"})
        async with served.client() as client:
            joined = await member(client)
            for _ in range(10):
                served.clock.jump(1.5)
                await served.settled()
            identity = MemberIdentity(joined.member_id)
            left = await client.call(LeaveGroupRequest(group_id="g", members=[identity]), 3)
            assert left.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
            asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])])
            answer = await client.call(asked, 5)
            assert answer.topics[0].partitions[0].error_code == 0

    serve(check, tmp_path)


def test_a_held_joiner_is_let_go_when_the_broker_stops(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as owner, served.client() as second:
            for client in (owner, second):
                await client.call(ApiVersionsRequest("kafka-python", "3.0.12"), 4)
            joined = await member(owner)
            await owner.call(committing(joined, 0), 8)
            given = await second.call(joining(), 5)
            await second.send((joining(given.member_id), 5))
            await served.settled()
            served.broker.stop()
            served.broker.end_polls()
            answer = await second.receive()
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    serve(check, tmp_path)


def test_many_members_come_at_once(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t", **{"consume.mode": "shared"})
        held = 0

        async def come() -> None:
            nonlocal held
            async with served.client() as client:
                await member(client)
                held += 1
                await everyone.wait()

        everyone = trio.Event()
        async with trio.open_nursery() as nursery:
            for _ in range(CROWD):
                nursery.start_soon(come)
            while held < CROWD:
                await trio.lowlevel.checkpoint()
            group = served.broker.coordinator.groups.by_name["g"]
            slots = {m.holds[1] for m in group.members.values()}
            assert len(slots) == CROWD
            everyone.set()

    serve(check, tmp_path)


def test_members_are_taken_over_by_the_next_broker(tmp_path: Path) -> None:
    joined: list[Any] = []

    async def before(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            joined.append(await member(client))
            await client.call(committing(joined[0], 4), 8)

    async def after(served: Served) -> None:
        async with served.client() as client:
            assert (await client.call(beating(joined[0]), 3)).error_code == 0
            assert await position(client, "g", 5) == 4
            assert code_of(await client.call(committing(joined[0], 5), 8)) == 0

    serve(before, tmp_path)
    serve(after, tmp_path)


def test_a_deleted_topic_is_forgotten_by_its_groups(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            joined = await member(client)
            await client.call(committing(joined, 4), 8)
            await served.broker.subjects.delete(served.broker.log.subjects.by_name["t"])
            code = (await client.call(beating(joined), 3)).error_code
            assert code == ErrorCode.REBALANCE_IN_PROGRESS
            again = await client.call(joining(joined.member_id), 5)
            assert assigned(await client.call(syncing(again), 3)) == []
            await served.create("t")
            assert (await client.call(beating(again), 3)).error_code == code
            assert await position(client, "g", 5) == -1

    serve(check, tmp_path)


@pytest.mark.parametrize("pattern", ["t.*", "("])
def test_a_pattern_is_looked_for_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    matches, threads = Pattern.matches, set[int]()

    def noted(each: Pattern, name: str) -> bool:
        threads.add(get_ident())
        return matches(each, name)

    monkeypatch.setattr(Pattern, "matches", noted)

    async def check(served: Served) -> None:
        for name in ("t1", "t2", "u"):
            await served.create(name)
        async with served.client() as client:
            answer = await client.call(
                ConsumerGroupHeartbeatRequest(
                    group_id="g",
                    member_id="m",
                    rebalance_timeout_ms=1000,
                    subscribed_topic_regex=pattern,
                    topic_partitions=[],
                ),
                1,
            )
            if pattern == "(":
                assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            else:
                assert len(answer.assignment.topic_partitions) == 2
                assert threads
            assert get_ident() not in threads

    serve(check, tmp_path)


def test_a_commit_that_changes_nothing_is_not_written(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            joined = await member(client)
            before = served.broker.actions.statistics().appends
            for _ in range(3):
                assert code_of(await client.call(committing(joined, 7), 8)) == 0
            assert served.broker.actions.statistics().appends == before + 1

    serve(check, tmp_path)


def test_a_refused_join_leaves_its_reason_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with served.client("app") as client:
            request = joining()
            request.protocols[0].metadata = b"\0\1"
            answer = await client.call(request, 5)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            request.member_id = answer.member_id
            answer = await client.call(request, 5)
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    serve(check, tmp_path)
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "group g: a join of client 'app' from /127.0.0.1 was refused: metadata of" in line


def test_a_group_that_does_not_share_for_a_client_says_so_where_it_is_described(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as named, served.client() as unnamed:
            await named.call(ApiVersionsRequest("kafka-python", "3.0.12"), 4)
            joined = await member(named)
            await named.call(committing(joined, 0), 8)
            stranger = await join(unnamed)
            why = f"the client of member {stranger.member_id} (unnamed) is not known to share"
            (described,) = (await unnamed.call(DescribeGroupsRequest(["g"]), 5)).groups
            assert described.protocol_data == f"range (exclusive: {why})"
            assert served.broker.statistics().sharing.exclusive == {"g": why}

    serve(check, tmp_path)
