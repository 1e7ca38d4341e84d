"""ShareFetch over a socket: records that are lost or doubled, sessions that get confused, waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.shares.sessions import Member
from kumquat.gateway.shares.tests.consumers import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    consumer,
    fetched,
    got,
    only,
    prepare,
    ranges,
    values,
)
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.wire import ShareFetchPartition, ShareFetchTopic
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.shares.tests.consumers import Consumer


async def send(served: Served, topic: str, *messages: bytes) -> None:
    async with served.client() as client:
        answer = await client.call(produce(topic, *messages), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_records_are_given_once_with_their_ranges_and_the_time_of_their_lock(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a", b"b")
        await send(served, "t", b"c")
        async with consumer(served, "ann") as ann, consumer(served, "ben", joins=False) as ben:
            answer = await ann.fetch()
            assert answer.acquisition_lock_timeout_ms == 30_000
            ((first, last, count),) = ranges(only(answer))
            assert (first, count) == (0, 1)
            taken = values(only(answer))
            assert len(taken) == last + 1
            taken |= await fetched(ann, 3 - len(taken))
            assert taken == {0: b"a", 1: b"b", 2: b"c"}
            await ben.join("t")
            assert got(await ben.fetch()) == {}
            assert await ann.acked((0, 2, [ACCEPT])) == 0
            assert got(await ann.fetch()) == {}

    serve(check, tmp_path)


def test_a_partition_without_records_has_zero_bytes_and_is_left_out_later(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann:
            first = only(await ann.fetch())
            assert (bytes(first.records), first.acquired_records) == (b"", [])
            assert (await ann.fetch()).responses == []

    serve(check, tmp_path)


@pytest.mark.parametrize("version", [1, 2])
def test_piggybacked_acknowledgements_count_before_the_fetch_and_are_answered(
    tmp_path: Path, version: int
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a", b"b", b"c", b"d")
        async with consumer(served, "ann") as ann:
            assert len(await fetched(ann, 4, version=version)) == 4
            answer = await ann.fetch((0, 2, [ACCEPT, RELEASE, REJECT]), version=version)
            assert only(answer).acknowledge_error_code == 0
            assert values(only(answer)) == {1: b"b"}
            assert ranges(only(answer)) == [(1, 1, 2)]
            answer = await ann.fetch((1, 1, [ACCEPT]), (3, 3, [ACCEPT]), version=version)
            assert got(answer) == {}
            assert len(answer.responses) == 1  # though it has nothing else to say

    serve(check, tmp_path)


def test_an_acknowledgement_that_is_answered_before_it_is_durable(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a", b"b")
        async with consumer(served, "ann") as ann:
            await fetched(ann, 2)
            await served.settled()
            served.files.hold_syncs()
            await ann.client.send((ann.fetch_request((0, 0, [ACCEPT])), 2))
            await served.settled()
            assert not ann.client.has_answer
            served.files.release_syncs()
            assert only(await ann.client.receive()).acknowledge_error_code == 0
            await served.settled()
            served.files.hold_syncs()
            await ann.client.send((ann.acknowledge_request((1, 1, [ACCEPT])), 2))
            await served.settled()
            assert not ann.client.has_answer
            served.files.release_syncs()
            assert only(await ann.client.receive()).error_code == 0

    serve(check, tmp_path)


def test_a_fetch_that_finds_nothing_waits_for_a_message_or_its_time(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann:
            await ann.client.send((ann.fetch_request(wait=500), 2))
            await served.settled()
            assert not ann.client.has_answer
            await send(served, "t", b"a")
            assert got(await ann.client.receive()) == {0: b"a"}
            await ann.client.send((ann.fetch_request(wait=500), 2))
            await served.settled()
            served.clock.jump(0.499)
            await served.settled()
            assert not ann.client.has_answer
            served.clock.jump(0.002)
            assert got(await ann.client.receive()) == {}

    serve(check, tmp_path)


def test_a_released_message_waits_for_nobody(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a")
        async with consumer(served, "ann") as ann, consumer(served, "ben") as ben:
            assert got(await ann.fetch()) == {0: b"a"}
            await ben.client.send((ben.fetch_request(wait=60_000), 2))
            await served.settled()
            assert await ann.acked((0, 0, [RELEASE])) == 0
            answer = await ben.client.receive()
            assert ranges(only(answer)) == [(0, 0, 2)]

    serve(check, tmp_path)


@pytest.mark.parametrize("mode", [0, 1])
def test_no_more_records_than_were_asked_for(tmp_path: Path, mode: int) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", *[b"%d" % i for i in range(30)])
        async with consumer(served, "ann") as ann:
            seen: dict[int, bytes] = {}
            for _ in range(10):
                more = got(await ann.fetch(most=7, share_acquire_mode=mode))
                assert not more.keys() & seen.keys()
                if mode == 1:
                    assert len(more) <= 7
                seen |= more
            assert seen == {i: b"%d" % i for i in range(30)}

    serve(check, tmp_path)


def test_closing_a_session_applies_its_acknowledgements_and_gives_the_rest_back(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a", b"b", b"c")
        async with consumer(served, "ann") as ann, consumer(served, "ben", joins=False) as ben:
            assert len(await fetched(ann, 3)) == 3
            answer = await ann.fetch((0, 0, [ACCEPT]), epoch=-1)
            assert only(answer).acknowledge_error_code == 0
            assert bytes(only(answer).records) == b""
            await ben.join("t")
            assert got(await ben.fetch()) == {1: b"b", 2: b"c"}
            assert await ben.acked((1, 1, [ACCEPT]), epoch=-1) == 0
            ann.epoch = 0
            assert got(await ann.fetch()) == {2: b"c"}
            assert (await ben.fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            gone = await ben.acknowledge((2, 2, [ACCEPT]), epoch=-1)
            assert gone.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND

    serve(check, tmp_path)


def test_epochs_that_are_stale_or_skipped_are_refused_and_the_session_goes_on(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a")
        async with consumer(served, "ann") as ann:
            missing = await ann.fetch(epoch=1)
            assert missing.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            assert missing.error_message
            assert got(await ann.fetch()) == {0: b"a"}
            for epoch in (2, 3, 77, -3):
                wrong = await ann.fetch((0, 0, [ACCEPT]), epoch=epoch)
                assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
                wrong = await ann.acknowledge((0, 0, [ACCEPT]), epoch=epoch)
                assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            wrong = await ann.acknowledge((0, 0, [ACCEPT]), epoch=0)
            assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            wrong = await ann.fetch((0, 0, [ACCEPT]), epoch=0)
            assert wrong.error_code == ErrorCode.INVALID_REQUEST
            assert await ann.acked((0, 0, [ACCEPT])) == 0  # epoch 1: nothing was applied before

    serve(check, tmp_path)


def test_an_epoch_that_wraps(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann:
            await ann.fetch()
            session = served.broker.shares.sessions.get(Member("g", "ann"))
            assert session is not None
            session.epoch = ann.epoch = 0x7FFFFFFF
            assert (await ann.fetch()).error_code == 0
            ann.epoch = 1
            assert (await ann.fetch()).error_code == 0

    serve(check, tmp_path)


def test_a_session_that_is_reopened_on_the_same_connection_keeps_what_it_holds(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a", b"b")
        async with consumer(served, "ann") as ann, consumer(served, "ben", joins=False) as ben:
            assert len(await fetched(ann, 2)) == 2
            await ben.join("t")
            ann.epoch = 0
            assert got(await ann.fetch()) == {}
            assert got(await ben.fetch()) == {}
            assert await ann.acked((0, 1, [ACCEPT])) == 0

    serve(check, tmp_path)


def test_a_member_on_a_second_connection_starts_over(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a")
        async with consumer(served, "ann") as first:
            assert got(await first.fetch()) == {0: b"a"}
            await first.client.send((first.fetch_request(wait=60_000), 2))
            await served.settled()
            async with consumer(served, "ann", joins=False) as second:
                answer = await second.fetch()
                assert ranges(only(answer)) == [(0, 0, 2)]
                ended = await first.client.receive()
                assert ended.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
                # An epoch of the new session is taken from the old connection: Kafka's rule.
                assert (await first.fetch(epoch=1)).error_code == 0
                second.epoch = 2
                await first.client.stream.aclose()
                await served.settled()
                assert await second.acked((0, 0, [ACCEPT])) == 0

    serve(check, tmp_path)


async def _waits(served: Served, ann: Consumer, ben: Consumer) -> None:
    """Ann holds a message, and Ben waits for one."""
    await send(served, "t", b"a")
    assert got(await ann.fetch()) == {0: b"a"}
    await ben.client.send((ben.fetch_request(wait=60_000), 2))
    await served.settled()


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("reset", [False, True])
def test_a_message_of_a_lost_connection_is_with_another_within_200_ms(
    tmp_path: Path, waiting: bool, reset: bool
) -> None:
    async def check(served: Served) -> None:
        await prepare(served, retry_backoff_ms="600000")
        async with consumer(served, "ben") as ben:
            async with consumer(served, "ann") as ann:
                await _waits(served, ann, ben)
                if waiting:
                    await ann.client.send((ann.fetch_request(wait=60_000), 2))
                    await served.settled()
                if reset:
                    linger = b"\x01\0\0\0\0\0\0\0"
                    ann.client.stream.socket.setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER
                    ann.client.stream.socket.close()
            for _ in range(2 if waiting else 0):
                await served.settled()
                served.clock.jump(0.1)
            answer = await ben.client.receive()
            assert ranges(only(answer)) == [(0, 0, 2)]
            assert values(only(answer)) == {0: b"a"}

    serve(check, tmp_path)


def test_a_topic_or_partition_that_does_not_exist(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann:
            answer = await ann.fetch(topic_id=b"?" * 16)
            assert only(answer).error_code == ErrorCode.UNKNOWN_TOPIC_ID
            answer = await ann.fetch(epoch=0, partition=1)
            assert only(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = await ann.fetch((0, 0, [ACCEPT]), epoch=1, topic_id=b"?" * 16)
            codes = {
                topic.topic_id: topic.partitions[0].acknowledge_error_code
                for topic in answer.responses
            }
            assert codes[b"?" * 16] == ErrorCode.UNKNOWN_TOPIC_ID

    serve(check, tmp_path)


def test_partitions_that_come_and_go_in_a_session(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, "t", "u")
        await send(served, "t", b"a")
        await send(served, "u", b"b")
        async with consumer(served, "ann") as ann:
            await ann.join("t", "u")
            other = served.broker.log.subjects.by_name["u"].topic_id
            assert got(await ann.fetch()) == {0: b"a"}
            request = ann.fetch_request()
            request.topics = [ShareFetchTopic(other, [ShareFetchPartition(0)])]
            assert got(await ann.client.call(request, 2)) == {0: b"b"}
            await send(served, "t", b"c")
            await send(served, "u", b"d")
            assert got(await ann.fetch(forgets=True)) == {1: b"d"}
            assert got(await ann.fetch()) == {}

    serve(check, tmp_path)


def test_a_busy_partition_does_not_starve_another(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, "t", "u")
        await send(served, "t", *[b"t"] * 50)
        await send(served, "u", *[b"u"] * 50)
        async with consumer(served, "ann") as ann:
            await ann.join("t", "u")
            request = ann.fetch_request(most=2)
            other = served.broker.log.subjects.by_name["u"].topic_id
            request.topics.append(ShareFetchTopic(other, [ShareFetchPartition(0)]))
            seen = set(got(await ann.client.call(request, 2)).values())
            for _ in range(3):
                seen |= set(got(await ann.fetch(most=2)).values())
            assert seen == {b"t", b"u"}

    serve(check, tmp_path)


def test_who_is_no_member_is_refused_nothing_and_given_nothing(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a")
        async with consumer(served, "eve", joins=False) as eve:
            assert got(await eve.fetch()) == {}
            assert await eve.acked((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
            assert got(await eve.fetch(epoch=-1)) == {}

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("group", "member"), [(None, "ann"), ("g", None), ("g", ""), ("g", "x" * 37)]
)
def test_a_request_that_names_nobody(tmp_path: Path, group: str | None, member: str | None) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann", joins=False) as ann:
            for request in (ann.fetch_request(), ann.acknowledge_request((0, 0, [ACCEPT]))):
                request.group_id, request.member_id = group, member
                answer = await ann.client.call(request, 2)
                assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert len(served.broker.shares.sessions) == 0

    serve(check, tmp_path)


def test_one_session_too_many_is_refused_after_its_wait(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann, consumer(served, "ben") as ben:
            await ann.fetch()
            await ben.client.send((ben.fetch_request(wait=500), 2))
            await served.settled()
            assert not ben.client.has_answer  # a client asks again at once
            served.clock.jump(0.5)
            refused = await ben.client.receive()
            assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
            await ann.fetch(epoch=-1)
            ben.epoch = 0
            assert (await ben.fetch()).error_code == 0

    serve(check, tmp_path, group_share_max_share_sessions=1)


def test_a_renewing_fetch_reads_nothing_and_holds_for_longer(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, share_record_lock_duration_ms="15000")
        await send(served, "t", b"a")
        async with consumer(served, "ann") as ann, consumer(served, "ben") as ben:
            await ann.fetch()
            await send(served, "t", b"b")
            served.clock.jump(10)
            renewing = {"min_bytes": 0, "max_bytes": 0, "most": 0, "is_renew_ack": True}
            answer = await ann.fetch((0, 0, [RENEW]), **renewing)
            assert got(answer) == {}
            assert answer.acquisition_lock_timeout_ms == 15_000
            refused = await ann.fetch((0, 0, [RENEW]), epoch=2, **(renewing | {"most": 1}))
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            served.clock.jump(10)
            await served.settled()
            assert got(await ben.fetch()) == {1: b"b"}
            assert await ann.acked((0, 0, [ACCEPT])) == 0

    serve(check, tmp_path)


def test_a_connection_that_ends_as_the_broker_stops_costs_no_attempt(tmp_path: Path) -> None:
    async def before(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a")
        async with consumer(served, "ann") as ann:
            assert got(await ann.fetch()) == {0: b"a"}
            served.broker.stop()

    async def after(served: Served) -> None:
        async with consumer(served, "ben") as ben:
            assert ranges(only(await ben.fetch())) == [(0, 0, 1)]

    serve(before, tmp_path)
    serve(after, tmp_path)
