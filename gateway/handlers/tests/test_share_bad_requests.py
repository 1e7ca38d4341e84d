"""ShareFetch and ShareAcknowledge from clients that are mistaken, or mean harm: what others would feel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from kumquat.core.delivery.progress import Progress
from kumquat.gateway.shares.tests.consumers import (
    ACCEPT,
    Consumer,
    consumer,
    fetched,
    got,
    only,
    prepare,
)
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.tests.members import sharing
from kumquat.gateway.wire import ShareFetchPartition, ShareFetchTopic
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def send(served: Served, topic: str, *messages: bytes) -> None:
    async with served.client() as client:
        answer = await client.call(produce(topic, *messages), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_share_fetch_in_the_name_of_a_classic_member_that_fails_or_takes_its_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await prepare(served, group="classic")
        await send(served, "t", *[b"%d" % i for i in range(40)])
        async with sharing(served, "classic", "t", 2) as members:
            taken = await members[0].fetch()
            assert taken
            topic_id = served.broker.log.subjects.by_name["t"].topic_id
            groups = served.broker.coordinator.groups
            (log,) = [
                log
                for progress in groups.by_name["classic"].progress.values()
                for log in progress.pull_logs.values()
                if log.leases
            ]
            async with served.client() as client:
                stranger = Consumer(client, topic_id, log.member_id, "classic")
                assert got(await stranger.fetch()) == {}
                assert (await stranger.fetch(epoch=-1)).error_code == 0
                stranger.epoch = 0
                assert got(await stranger.fetch()) == {}
            await served.settled()
            assert log.unacked == len(taken)
        assert not caplog.records, caplog.text

    serve(check, tmp_path)


def test_thousands_of_acknowledgements_of_what_is_done_that_each_look_at_all_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    lowest = Progress.lowest_unacked

    def counted(self: Progress) -> int | None:
        nonlocal looks
        looks += 1
        return lowest(self)

    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", *[b"x"] * 50)
        async with consumer(served, "ann") as ann:
            await fetched(ann, 50)
            assert await ann.acked((0, 48, [ACCEPT])) == 0
            monkeypatch.setattr(Progress, "lowest_unacked", counted)
            assert await ann.acked(*[(i, i, [ACCEPT]) for i in range(50)]) == 0
            assert looks == 1

    serve(check, tmp_path)


def test_a_session_that_answers_for_ever_for_what_does_not_exist(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a")
        async with consumer(served, "ann") as ann:
            request = ann.fetch_request()
            request.topics = [
                ShareFetchTopic(bytes([i] * 16), [ShareFetchPartition(0, [])]) for i in range(1, 4)
            ]
            request.topics.append(
                ShareFetchTopic(ann.topic_id, [ShareFetchPartition(i, []) for i in range(1, 4)])
            )
            answer = await ann.client.call(request, 2)
            codes = [data.error_code for topic in answer.responses for data in topic.partitions]
            unknown = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert sorted(codes) == sorted(unknown * 3)
            assert (await ann.fetch()).responses == []
            assert got(await ann.fetch(names=True)) == {0: b"a"}
            ann.epoch = 0
            both = ann.fetch_request(wait=500)
            both.topics += request.topics
            await ann.client.send((both, 2))
            await served.settled()
            assert not ann.client.has_answer  # it waits for the one that there is
            await send(served, "t", b"b")
            answer = await ann.client.receive()
            told = {data.error_code for topic in answer.responses for data in topic.partitions}
            assert told == {0, *unknown}  # and what it has found out first is not forgotten

    serve(check, tmp_path)


def test_a_client_whose_topics_are_gone_that_is_answered_at_once_again_and_again(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann:
            assert got(await ann.fetch()) == {}
            await ann.client.send((ann.fetch_request(wait=500), 2))
            await served.settled()
            await served.broker.subjects.delete(served.broker.log.subjects.by_name["t"])
            gone = only(await ann.client.receive())
            assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID
            await ann.client.send((ann.fetch_request(wait=500), 2))
            await served.settled()
            assert not ann.client.has_answer
            served.clock.jump(0.501)
            assert (await ann.client.receive()).responses == []
            assert (
                await ann.fetch(wait=500, forgets=True)
            ).error_code == 0  # that changes something

    serve(check, tmp_path)


def test_records_for_a_session_that_ended_while_they_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = trio.Event()

    async def check(served: Served) -> None:
        await prepare(served, "t", "u")
        await send(served, "t", b"a")
        shares = served.broker.sharing.shares
        acquire = shares.acquire

        async def slow(subject: Any, *arguments: Any, **named: Any) -> Any:
            found = await acquire(subject, *arguments, **named)
            if subject.name == "u":
                await go.wait()
            return found

        async with (
            consumer(served, "ann", "u") as ann,
            consumer(served, "ann", joins=False) as again,
        ):
            await ann.join("t", "u")
            monkeypatch.setattr(shares, "acquire", slow)
            request = ann.fetch_request(wait=60_000)
            request.topics.append(ShareFetchTopic(again.topic_id, [ShareFetchPartition(0, [])]))
            request.topics.reverse()
            await ann.client.send((request, 2))
            await served.settled()
            assert got(await again.fetch()) == {0: b"a"}
            go.set()
            late = await ann.client.receive()
            assert late.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND

    serve(check, tmp_path)


def test_an_acknowledgement_said_twice_that_is_answered_before_it_is_durable(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a", b"b")
        async with consumer(served, "ann") as ann, consumer(served, "ann", joins=False) as again:
            await fetched(ann, 2)
            await served.settled()
            served.files.hold_syncs()
            await ann.client.send((ann.acknowledge_request((0, 0, [ACCEPT])), 2))
            await served.settled()
            again.epoch = ann.epoch
            await again.client.send((again.acknowledge_request((0, 0, [ACCEPT])), 2))
            await served.settled()
            assert not again.client.has_answer
            served.files.release_syncs()
            assert only(await ann.client.receive()).error_code == 0
            assert only(await again.client.receive()).error_code == 0

    serve(check, tmp_path)
