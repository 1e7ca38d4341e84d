"""One ShareFetch of several topics: more than it takes is at hand in all of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.shares.tests.consumers import ACCEPT, consumer, got, prepare, ranges
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.wire import ShareFetchPartition, ShareFetchTopic

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.shares.tests.consumers import Consumer
    from kumquat.gateway.wire import ShareFetchRequest


def both(served: Served, made: Consumer, most: int) -> ShareFetchRequest:
    """It opens a session with t and u, and waits."""
    request = made.fetch_request(wait=60_000, most=most)
    other = served.broker.log.subjects.by_name["u"].topic_id
    request.topics.append(ShareFetchTopic(other, [ShareFetchPartition(0, [])]))
    return request


async def fill(served: Served, t: int, u: int) -> None:
    """Messages of both topics, in one request."""
    request = produce("t", *[b"t"] * t)
    request.topic_data += produce("u", *[b"u"] * u).topic_data
    async with served.client() as client:
        await client.call(request, 9)


def test_a_lock_that_runs_before_its_message_is_sent(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, "t", "u")
        async with consumer(served, "ann") as ann, consumer(served, "ben") as ben:
            await ann.join("t", "u")
            await ben.join("t", "u")
            await ann.client.send((both(served, ann, 1), 2))
            await served.settled()
            await fill(served, 1, 1)
            (sent,) = got(await ann.client.receive()).values()
            taken = got(await ben.client.call(both(served, ben, 1), 2))
            assert {sent, *taken.values()} == {b"t", b"u"}  # nobody waits for what nobody has

    serve(check, tmp_path)


def test_a_lock_that_ends_sooner_than_the_client_was_told(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, "t", "u")
        async with consumer(served, "ann") as ann:
            await ann.join("t", "u")
            await ann.client.send((both(served, ann, 1), 2))
            await served.settled()
            await fill(served, 1, 1)
            assert got(await ann.client.receive())
            await served.settled()
            served.clock.jump(29)
            await served.settled()
            answer = await ann.fetch(most=1)
            assert answer.acquisition_lock_timeout_ms == 30_000
            (topic,) = [topic for topic in answer.responses if topic.partitions[0].acquired_records]
            assert ranges(topic.partitions[0]) == [(0, 0, 1)]  # and it counts as the first
            served.clock.jump(29)
            await served.settled()
            assert await ann.acked((0, 0, [ACCEPT]), topic_id=topic.topic_id) == 0

    serve(check, tmp_path)


def test_more_records_than_were_asked_for_of_all_topics_together(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, "t", "u")
        async with consumer(served, "ann") as ann:
            await ann.join("t", "u")
            request = both(served, ann, 4)
            request.share_acquire_mode = 1
            await ann.client.send((request, 2))
            await served.settled()
            await fill(served, 6, 6)
            answer = await ann.client.receive()
            counts = [
                last - first + 1
                for topic in answer.responses
                for first, last, _ in ranges(topic.partitions[0])
            ]
            assert sum(counts) == 4
            seen = sum(counts)
            while more := got(await ann.fetch(most=12)):
                seen += len(more)
            assert seen >= 6  # by offset: both topics have the same

    serve(check, tmp_path)
