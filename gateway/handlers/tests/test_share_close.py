"""A share consumer that closes leaves its group and sends its last acknowledgements at the same time, on
two connections: acks that are lost with the leave, and messages that nobody gets afterwards."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.shares.sessions import Member
from kumquat.gateway.shares.tests.consumers import (
    ACCEPT,
    REJECT,
    RELEASE,
    consumer,
    fetched,
    got,
    only,
    prepare,
    ranges,
)
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.wire import DeleteGroupsRequest, ShareGroupHeartbeatRequest
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kumquat.gateway.shares.tests.consumers import Consumer

REFUSED = ErrorCode.INVALID_RECORD_STATE


async def send(served: Served, *messages: bytes, topic: str = "t") -> None:
    async with served.client() as client:
        answer = await client.call(produce(topic, *messages), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


async def leave(served: Served, made: Consumer) -> Any:
    """On a connection of its own, as librdkafka does."""
    async with served.client() as client:
        answer = await client.call(ShareGroupHeartbeatRequest(made.group, made.member, -1), 1)
        assert answer.error_code == 0, answer.error_message
        return answer


@asynccontextmanager
async def ann_has_three(served: Served, **configs: str) -> AsyncIterator[Consumer]:
    await prepare(served, **configs)
    await send(served, b"a", b"b", b"c")
    async with consumer(served, "ann") as ann:
        assert len(await fetched(ann, 3)) == 3
        yield ann


async def wait_for_more(served: Served, made: Consumer) -> None:
    """It asks, and there is nothing for it."""
    await made.client.send((made.fetch_request(wait=600_000), 2))
    await served.settled()
    assert not made.client.has_answer


def slots(served: Served) -> dict[int, Any]:
    """Logs that members have, or had, of t."""
    broker = served.broker
    return broker.actions.groups.slots.get(broker.log.subjects.by_name["t"].id, {})


@pytest.mark.parametrize("by_fetch", [False, True])
def test_acks_that_come_after_the_leave_count_and_the_rest_is_with_another_at_once(
    tmp_path: Path, by_fetch: bool
) -> None:
    async def check(served: Served) -> None:
        async with ann_has_three(served) as ann, consumer(served, "ben") as ben:
            await wait_for_more(served, ben)
            await leave(served, ann)
            await served.settled()
            assert not ben.client.has_answer, "it is Ann's as long as her session is open"
            if by_fetch:
                answer = await ann.fetch((0, 1, [ACCEPT]), epoch=-1)
                assert only(answer).acknowledge_error_code == 0
            else:
                assert await ann.acked((0, 1, [ACCEPT]), epoch=-1) == 0
            assert ranges(only(await ben.client.receive())) == [(2, 2, 2)]
            assert len(slots(served)) == 1, "the log of who has left is gone"
            assert got(await ben.fetch((2, 2, [ACCEPT]))) == {}

    serve(check, tmp_path)


def test_every_type_of_acknowledgement_counts_after_the_leave(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with ann_has_three(served) as ann, consumer(served, "ben") as ben:
            await leave(served, ann)
            assert await ann.acked((0, 2, [ACCEPT, RELEASE, REJECT])) == 0
            assert await ann.acked((1, 1, [ACCEPT])) == REFUSED, "it holds nothing any more"
            assert ranges(only(await ben.fetch())) == [(1, 1, 2)]

    serve(check, tmp_path)


def test_who_has_left_is_given_nothing_more(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with ann_has_three(served) as ann, consumer(served, "ben") as ben:
            await wait_for_more(served, ann)
            await leave(served, ann)
            await send(served, b"d")
            await served.settled()
            assert not ann.client.has_answer
            assert got(await ben.fetch()) == {3: b"d"}
            served.clock.jump(600)
            await ann.client.receive()
            assert got(await ann.fetch()) == {}

    serve(check, tmp_path)


def test_a_leave_without_a_session_gives_back_at_once(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with ann_has_three(served) as ann, consumer(served, "ben") as ben:
            assert await ann.acked((0, 0, [ACCEPT]), epoch=-1) == 0
            await leave(served, ann)
            assert len(slots(served)) == 1
            assert ranges(only(await ben.fetch())) == [(1, 2, 2)]

    serve(check, tmp_path)


@pytest.mark.parametrize("leaves", [True, False])
def test_what_a_lost_connection_held_is_with_another_at_once_whether_it_left_or_not(
    tmp_path: Path, leaves: bool
) -> None:
    async def check(served: Served) -> None:
        async with ann_has_three(served) as ann, consumer(served, "ben") as ben:
            await wait_for_more(served, ben)
            if leaves:
                await leave(served, ann)
            await ann.client.stream.aclose()
            assert ranges(only(await ben.client.receive())) == [(0, 2, 2)]
            assert len(slots(served)) == (1 if leaves else 2)

    serve(check, tmp_path)


def test_an_ack_after_its_lock_has_ended_is_refused_also_of_who_has_left(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with (
            ann_has_three(served, share_record_lock_duration_ms="15000") as ann,
            consumer(served, "ben") as ben,
        ):
            await wait_for_more(served, ben)
            await leave(served, ann)
            served.clock.jump(15.1)
            assert ranges(only(await ben.client.receive())) == [(0, 2, 2)]
            assert await ann.acked((0, 2, [ACCEPT]), epoch=-1) == REFUSED
            assert len(slots(served)) == 1
            assert await ben.acked((0, 2, [ACCEPT])) == 0

    serve(check, tmp_path)


def test_who_is_fenced_holds_nothing_and_its_acks_are_refused(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        locks = {"share_record_lock_duration_ms": "60000", "share_session_timeout_ms": "45000"}
        async with ann_has_three(served, **locks) as ann, consumer(served, "ben") as ben:
            served.clock.jump(40)
            request = ShareGroupHeartbeatRequest("g", "ben", 0, subscribed_topic_names=["t"])
            assert (await ben.client.call(request, 1)).error_code == 0
            served.clock.jump(6)  # Ann was silent for longer than her session lasts
            await served.settled()
            assert await ann.acked((0, 2, [ACCEPT])) == REFUSED
            assert ranges(only(await ben.fetch())) == [(0, 2, 2)]

    serve(check, tmp_path)


def test_who_comes_back_with_its_session_goes_on_with_what_it_held(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with ann_has_three(served) as ann:
            await leave(served, ann)
            await ann.join("t")
            assert len(slots(served)) == 1
            await send(served, b"d")
            assert got(await ann.fetch((0, 0, [ACCEPT]))) == {3: b"d"}
            assert await ann.acked((1, 3, [ACCEPT]), epoch=-1) == 0
            ann.epoch = 0
            assert got(await ann.fetch()) == {}

    serve(check, tmp_path)


def test_who_comes_back_for_another_topic_can_acknowledge_the_first(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("u")
        await send(served, b"u", topic="u")
        async with ann_has_three(served) as ann, consumer(served, "ben") as ben:
            await leave(served, ann)
            await ann.join("u")
            assert await ann.acked((0, 1, [ACCEPT])) == 0
            await ann.fetch(epoch=-1)
            assert ranges(only(await ben.fetch())) == [(2, 2, 2)]
            assert len(slots(served)) == 1

    serve(check, tmp_path)


@pytest.mark.parametrize("same_connection", [True, False])
def test_a_session_that_is_opened_again_after_the_leave(
    tmp_path: Path, same_connection: bool
) -> None:
    async def check(served: Served) -> None:
        async with (
            ann_has_three(served) as ann,
            consumer(served, "ann", joins=False) as second,
            consumer(served, "ben") as ben,
        ):
            await leave(served, ann)
            if same_connection:  # it is the same client
                ann.epoch = 0
                assert got(await ann.fetch()) == {}
                assert await ann.acked((0, 2, [ACCEPT]), epoch=-1) == 0
                assert got(await ben.fetch()) == {}
            else:
                assert got(await second.fetch()) == {}
                assert await second.acked((0, 2, [ACCEPT])) == REFUSED
                assert ranges(only(await ben.fetch())) == [(0, 2, 2)]
            assert len(slots(served)) == 1

    serve(check, tmp_path)


@pytest.mark.parametrize("clean", [True, False])
def test_what_who_has_left_held_is_there_for_others_after_a_restart(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(served: Served) -> None:
        async with ann_has_three(served) as ann:
            await leave(served, ann)
            assert await ann.acked((0, 0, [ACCEPT])) == 0
            if clean:
                served.broker.stop()
            else:
                served.files.write_error = 5  # what its end would write is lost, as with kill -9

    async def after(served: Served) -> None:
        assert slots(served) == {}
        async with consumer(served, "ben") as ben:
            assert ranges(only(await ben.fetch())) == [(1, 2, 1)], "not the consumer's fault"

    serve(before, tmp_path)
    caplog.clear()
    serve(after, tmp_path)
    if clean:
        assert not [record for record in caplog.records if "unclean" in record.message]


def test_a_group_that_is_deleted_before_its_last_session_closes(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with ann_has_three(served) as ann:
            await leave(served, ann)
            answer = await ann.client.call(DeleteGroupsRequest(groups_names=["g"]), 2)
            assert answer.results[0].error_code == 0
            assert slots(served) == {}
            assert await ann.acked((0, 2, [ACCEPT]), epoch=-1) == REFUSED
            assert served.broker.shares.sessions.get(Member("g", "ann")) is None
        async with consumer(served, "ben") as ben:  # with the same name, and another's progress
            assert ranges(only(await ben.fetch())) == [(0, 2, 1)]

    serve(check, tmp_path)


def test_the_policy_forgets_who_has_left(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with ann_has_three(served) as ann, consumer(served, "ben") as ben:
            await wait_for_more(served, ben)
            sharing, subject_id = served.broker.sharing, served.broker.log.subjects.by_name["t"].id
            policy = sharing.policies.of(sharing.groups.by_name["g"].id, subject_id)
            assert policy.readers == 2
            await leave(served, ann)
            assert policy.readers == 1
            assert await ann.acked((0, 2, [ACCEPT]), epoch=-1) == 0
            await served.settled()
            assert policy.members == {"ben"}

    serve(check, tmp_path)
