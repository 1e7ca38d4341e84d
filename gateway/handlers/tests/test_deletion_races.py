"""What an admin deletes while others come: looked at and deleted in one step, however long the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from kumquat.gateway.handlers.tests.test_groups_admin import commit_simply
from kumquat.gateway.net import turns
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.tests.members import SESSION_MS, Member
from kumquat.gateway.wire import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path


class Interrupted(turns.Turn):
    """Each turn is over at once, and others have theirs until nobody has anything to do."""

    __slots__ = ()

    @property
    def over(self) -> bool:
        return True

    async def give_way(self) -> None:
        await trio.testing.wait_all_tasks_blocked(0.01)


def delete_offsets(count: int) -> OffsetDeleteRequest:
    """Of t, and of so many partitions that do not exist."""
    partitions = [OffsetDeleteRequestPartition(index) for index in range(count)]
    return OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", partitions)])


@pytest.mark.parametrize("mode", ["exclusive", "shared"])
def test_a_member_that_joins_while_offsets_are_deleted_is_no_ghost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("kumquat.gateway.handlers.offset_delete.Turn", Interrupted)

    async def check(served: Served) -> None:
        await served.create("t")
        await served.broker.registry.alter_group("g", {"consume.mode": mode})
        async with (
            served.client() as admin,
            served.client() as client,
            served.client() as coordinator,
            served.client() as data,
        ):
            await client.call(produce("t", *[b"v"] * 8), 9)
            await commit_simply(client, "g", "t", 0)
            await admin.send((delete_offsets(20), 0))
            member = Member("g", "t", coordinator, data)
            assert await member.join()
            answer = await admin.receive()
            codes = [partition.error_code for partition in answer.topics[0].partitions]
            assert codes[0] == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            assert set(codes[1:]) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            if member.position < 0:
                member.position = 0
            assert len(await member.drain()) == 8
            assert await member.commit() == 0
            assert await member.heartbeat() == 0
            served.clock.jump(SESSION_MS / 1000 + 1)
            await served.settled()
            group = served.broker.coordinator.groups.by_name["g"]
            assert not group.members
            assert group.progress[1].lowest_unacked() == 8

    serve(check, tmp_path)


def test_an_empty_group_that_shared_stays_forgotten_after_its_offsets_are_deleted(
    tmp_path: Path,
) -> None:
    """What is left of how the subject was divided must not begin to share it again by itself."""

    async def check(served: Served) -> None:
        await served.create("t")
        await served.broker.registry.alter_group("g", {"consume.mode": "shared"})
        async with (
            served.client() as admin,
            served.client() as coordinator,
            served.client() as data,
        ):
            await admin.call(produce("t", b"v"), 9)
            member = Member("g", "t", coordinator, data)
            assert await member.join()
            await member.drain()
            await member.leave()
            answer = await admin.call(delete_offsets(1), 0)
            assert answer.topics[0].partitions[0].error_code == 0
            served.broker.coordinator.config_changed("g")
            served.clock.jump(60)
            await served.settled()
            assert not served.broker.coordinator.groups.by_name["g"].progress

    serve(check, tmp_path)


def test_a_group_that_gets_a_member_while_its_letters_are_awaited_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")

        async def slow(_names: Any, _seconds: float) -> None:
            await trio.testing.wait_all_tasks_blocked(0.01)

        monkeypatch.setattr(served.broker.dead_letters, "wait_written", slow)
        async with (
            served.client() as admin,
            served.client() as coordinator,
            served.client() as data,
        ):
            await commit_simply(admin, "g", "t", 0)
            await admin.send((DeleteGroupsRequest(["g"]), 2))
            member = Member("g", "t", coordinator, data)
            assert await member.join()
            (result,) = (await admin.receive()).results
            assert result.error_code == ErrorCode.NON_EMPTY_GROUP
            assert await member.heartbeat() == 0

    serve(check, tmp_path)
