"""A doomed message gets its dead letter, whatever an admin, or time, does to its group.

The letters' subject takes small records only, so the large messages of these tests stay doomed until an
operator raises its `max.message.bytes`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import REJECTED
from kumquat.core.delivery.dead_letters.letters import origin_of
from kumquat.core.delivery.state import SHARE
from kumquat.gateway.admin.routes import answer as ask_admin
from kumquat.gateway.handlers.tests.test_groups_admin import commit_simply
from kumquat.gateway.tests.harness import Client, Served, produce, serve
from kumquat.gateway.tests.members import SESSION_MS, sharing
from kumquat.gateway.tests.sharing.test_dead_letters import letters
from kumquat.gateway.wire import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteGroupsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from kumquat.core.delivery.state import Progress

LARGE = 5000
DAY = 86_400
DOOMED = 3
"""The message that was rejected, of ten."""


async def prepare(served: Served) -> None:
    await served.create("t", **{"max.message.bytes": "100000"})
    await served.create("t.g.dlq", **{"max.message.bytes": "1000"})
    async with served.client() as client:
        for number in range(10):
            await client.call(produce("t", bytes([number]) * LARGE), 9)


@asynccontextmanager
async def doomed(served: Served) -> AsyncIterator[Client]:
    """Group g has read all ten messages, acked nine, rejected DOOMED, and left."""
    await prepare(served)
    async with sharing(served, "g", "t", 1) as (member,):
        await member.drain()
        state = served.broker.actions.groups.by_name["g"]
        slot = next(iter(state.progress[1].pull_logs))
        reject = actions.Doom(state.id, 1, slot, [[DOOMED, 1, 1]], REJECTED, "no")
        served.broker.sharing.append([reject])
        await member.commit()
        await member.leave()
    await served.settled()
    assert progress_of(served).dying == 1
    async with served.client() as client:
        yield client


async def share_group(served: Served) -> None:
    """The same of a share group."""
    await prepare(served)
    await served.broker.coordinator.change(
        [
            actions.Group(1, "g"),
            actions.Emptied(1, SHARE, SHARE, served.broker.actions.now_ms()),
            actions.Share(1, 1, 10),
            actions.Again(1, 1, DOOMED, 1, 2, 1),
            actions.Doom(1, 1, 0, [[DOOMED, 1, 1]], REJECTED, "no"),
        ]
    )
    await served.settled()


def progress_of(served: Served) -> Progress:
    return served.broker.actions.groups.by_name["g"].progress[1]


async def room_is_made(served: Served) -> list[int]:
    """The letters' subject takes large records now; gives which messages are letters soon after."""
    subject = served.broker.log.subjects.by_name["t.g.dlq"]
    await served.broker.subjects.alter(subject, {"max.message.bytes": "200000"})
    served.clock.jump(61)
    await served.settled()
    return [origin_of(letter).sequence for letter in letters(served, "t.g.dlq")]


async def read_all(served: Served) -> list[int]:
    """What a member that shares is given now."""
    async with sharing(served, "g", "t", 1) as (member,):
        found = [record.value[0] for record in await member.drain()]
        await member.commit()
        await member.leave()
    return found


async def reset_by_commit(served: Served, to: int) -> None:
    async with served.client() as client:
        await commit_simply(client, "g", "t", to)


async def reset_by_http(served: Served, to: int) -> None:
    told = await ask_admin(
        served.broker, "POST", "/groups/reset", {"group": "g", "subject": "t", "to": str(to)}
    )
    assert told.status == 200


RESETS: list[Callable[[Served, int], Awaitable[None]]] = [reset_by_commit, reset_by_http]


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_doomed_message_below_the_new_position_becomes_a_letter(
    tmp_path: Path, reset: Callable[[Served, int], Awaitable[None]], restarts: bool
) -> None:
    async def reset_forward(served: Served) -> None:
        async with doomed(served):
            await reset(served, 8)
            assert (progress_of(served).dying, progress_of(served).position) == (1, 8)
            if not restarts:
                await check(served)

    async def check(served: Served) -> None:
        assert await room_is_made(served) == [DOOMED]
        assert await read_all(served) == [8, 9]

    serve(reset_forward, tmp_path)
    if restarts:
        serve(check, tmp_path)


@pytest.mark.parametrize("reset", RESETS)
def test_a_doomed_message_from_the_new_position_on_comes_again_and_is_no_letter(
    tmp_path: Path, reset: Callable[[Served, int], Awaitable[None]]
) -> None:
    async def check(served: Served) -> None:
        async with doomed(served):
            await reset(served, DOOMED - 1)
            assert progress_of(served).dying == 0
            assert await room_is_made(served) == []
            assert await read_all(served) == list(range(DOOMED - 1, 10))

    serve(check, tmp_path)


def test_a_commit_that_names_no_place_leaves_a_message_doomed(tmp_path: Path) -> None:
    """-1 is `latest`, as KafkaJS says it: nobody would read the message again."""

    async def check(served: Served) -> None:
        async with doomed(served):
            await reset_by_commit(served, -1)
            assert await room_is_made(served) == [DOOMED]
            assert await read_all(served) == []

    serve(check, tmp_path)


def test_a_reset_says_what_becomes_of_doomed_messages(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with doomed(served):
            asked = {"group": "g", "subject": "t", "dry_run": True}
            forward = await ask_admin(served.broker, "POST", "/groups/reset", {**asked, "to": "8"})
            back = await ask_admin(served.broker, "POST", "/groups/reset", {**asked, "to": "2"})
            names = ("from", "to", "passed", "again", "retries", "doomed")
            assert [forward.payload[name] for name in names] == [DOOMED, 8, 0, 2, 0, 1]
            assert [back.payload[name] for name in names] == [DOOMED, 2, 0, 8, 0, 0]
            assert progress_of(served).dying == 1

    serve(check, tmp_path)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_doomed_message_becomes_a_letter_although_the_offsets_are_deleted(
    tmp_path: Path, restarts: bool
) -> None:
    async def delete(served: Served) -> None:
        async with doomed(served) as client:
            assert await offset_delete(client) == [ErrorCode.NONE]
            assert progress_of(served).lowest_unacked() is None
            fetched = await client.call(OffsetFetchRequest("g", None), 5)
            assert fetched.topics == []
            if not restarts:
                await check(served)

    async def check(served: Served) -> None:
        assert await room_is_made(served) == [DOOMED]
        others = [number for number in range(10) if number != DOOMED]
        assert await read_all(served) == others

    serve(delete, tmp_path)
    if restarts:
        serve(check, tmp_path)


async def offset_delete(client: Client) -> list[int]:
    topic = OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])
    answer = await client.call(OffsetDeleteRequest("g", [topic]), 0)
    assert answer.error_code == 0
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def test_a_group_with_a_doomed_message_is_deleted_when_its_letter_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with doomed(served) as client:
            await client.send((DeleteGroupsRequest(["g"]), 2))
            await served.settled()
            assert not client.has_answer
            served.clock.jump(60)
            (result,) = (await client.receive()).results
            assert result.error_code == ErrorCode.NON_EMPTY_GROUP
            assert "group g is not deleted: 1 messages are to become dead letters" in caplog.text
            assert await room_is_made(served) == [DOOMED]
            (result,) = (await client.call(DeleteGroupsRequest(["g"]), 2)).results
            assert result.error_code == ErrorCode.NONE
            assert "g" not in served.broker.actions.groups.by_name

    serve(check, tmp_path)


def test_a_group_is_deleted_as_soon_as_its_letters_are_written(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with doomed(served) as client:
            await client.send((DeleteGroupsRequest(["g", "h"]), 2))
            await served.settled()
            assert not client.has_answer
            subject = served.broker.log.subjects.by_name["t.g.dlq"]
            await served.broker.subjects.alter(subject, {"max.message.bytes": "200000"})
            served.clock.jump(2)
            codes = [result.error_code for result in (await client.receive()).results]
            assert codes == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
            assert len(letters(served, "t.g.dlq")) == 1

    serve(check, tmp_path)


async def a_year_passes(served: Served) -> None:
    later = served.broker.actions.now_ms() + 400 * DAY * 1000
    served.broker.actions.now_ms = lambda: later
    await served.broker.coordinator.expire_offsets()


def test_offsets_with_a_doomed_message_do_not_expire_before_its_letter_is_written(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        async with doomed(served):
            await a_year_passes(served)
            assert progress_of(served).dying == 1
            assert await room_is_made(served) == [DOOMED]
            await served.broker.coordinator.expire_offsets()
            assert "g" not in served.broker.actions.groups.by_name

    serve(check, tmp_path)


def test_offsets_with_a_retry_that_waits_do_not_expire(tmp_path: Path) -> None:
    """A client may ask for a retry in two years."""

    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await client.call(produce("t", b"\0", b"\1"), 9)
        ages = str(1000 * DAY * 1000)
        configs = {"retry_backoff_ms": ages, "retry_backoff_max_ms": ages}
        async with sharing(served, "g", "t", 1, **configs) as (member,):
            got = await member.drain()
            await member.commit(got[0].offset + 1)
            served.clock.jump(SESSION_MS / 1000 + 1)
            await served.settled()
        assert progress_of(served).waiting.total == 1
        await a_year_passes(served)
        assert progress_of(served).waiting.total == 1

    serve(check, tmp_path)


def test_share_group_offsets_that_are_altered_leave_doomed_messages_below_them(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await share_group(served)
        async with served.client() as client:
            for offset, dying in ((8, 1), (0, 0)):
                asked = AlterShareGroupOffsetsRequestPartition(0, offset)
                topics = [AlterShareGroupOffsetsRequestTopic("t", [asked])]
                done = await client.call(AlterShareGroupOffsetsRequest("g", topics), 0)
                assert done.responses[0].partitions[0].error_code == 0
                assert progress_of(served).dying == dying

    serve(check, tmp_path)


def test_share_group_offsets_that_are_deleted_leave_doomed_messages(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await share_group(served)
        topics = [DeleteShareGroupOffsetsRequestTopic("t")]
        request = DeleteShareGroupOffsetsRequest("g", topics)
        every = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup("g", None)])
        async with served.client() as client:
            (done,) = (await client.call(request, 0)).responses
            assert done.error_code == 0
            assert (await client.call(every, 1)).groups[0].topics == []
            (again,) = (await client.call(request, 0)).responses
            assert again.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await room_is_made(served) == [DOOMED]

    serve(check, tmp_path)


def test_a_doomed_message_that_is_deleted_becomes_a_letter_without_a_value(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        async with doomed(served) as client:
            topic = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 10)])
            await client.call(DeleteRecordsRequest([topic]), 2)
            served.clock.jump(61)
            await served.settled()
            (letter,) = letters(served, "t.g.dlq")
            assert (letter.value, origin_of(letter).sequence) == (None, DOOMED)

    serve(check, tmp_path)


def test_a_deleted_topic_takes_its_doomed_messages_along_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with doomed(served):
            await served.broker.subjects.delete_all([served.broker.log.subjects.by_name["t"]])
            said = (
                "subject t is deleted with 1 messages that were to become dead letters of group g"
            )
            assert said in caplog.text
            assert not served.broker.statistics().dead_letters.waiting

    serve(check, tmp_path)
