"""Who reads a topic alone in its share group is given all that it asks for; among several, a part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.shares.tests.consumers import (
    ACCEPT,
    RELEASE,
    consumer,
    got,
    only,
    prepare,
    ranges,
)
from kumquat.gateway.tests.harness import Served, produce, serve

if TYPE_CHECKING:
    from pathlib import Path

BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1


async def send(served: Served, *batches: int) -> None:
    """Batches of so many messages."""
    async with served.client() as client:
        for count in batches:
            answer = await client.call(produce("t", *[b"x"] * count), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0


def count(answer: Any) -> int:
    return len(got(answer))


@pytest.mark.parametrize("mode", [BATCH_OPTIMIZED, RECORD_LIMIT])
@pytest.mark.parametrize("batches", [(5,), (1, 1, 1, 1, 1), (3, 2), (500,), (250, 249)])
def test_the_first_fetch_gives_all_that_is_there(
    tmp_path: Path, batches: tuple[int, ...], mode: int
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, *batches)
        async with consumer(served, "ann") as ann:
            assert count(await ann.fetch(share_acquire_mode=mode)) == sum(batches)

    serve(check, tmp_path)


@pytest.mark.parametrize("mode", [BATCH_OPTIMIZED, RECORD_LIMIT])
@pytest.mark.parametrize(
    ("batches", "most", "whole"),
    [((1000,), 500, 1000), ((100,) * 5, 250, 300), ((6, 4), 8, 10), ((6, 4), 6, 6), ((1, 9), 1, 1)],
)
def test_a_batch_is_finished_unless_the_limit_is_meant(
    tmp_path: Path, batches: tuple[int, ...], most: int, whole: int, mode: int
) -> None:
    """As in Kafka 4.3.1."""

    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, *batches)
        async with consumer(served, "ann") as ann:
            answer = await ann.fetch(most=most, share_acquire_mode=mode)
            end = whole if mode == BATCH_OPTIMIZED else most
            assert ranges(only(answer)) == [(0, end - 1, 1)]

    serve(check, tmp_path)


def test_a_batch_that_is_delivered_again_is_finished_as_far_as_it_is_together(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, 10)
        async with consumer(served, "ann") as ann:
            assert count(await ann.fetch()) == 10
            assert await ann.acked((0, 9, [RELEASE])) == 0
            assert ranges(only(await ann.fetch(most=4))) == [(0, 9, 2)]
            assert await ann.acked((0, 9, [RELEASE] * 6 + [ACCEPT] + [RELEASE] * 3)) == 0
            assert ranges(only(await ann.fetch(most=4))) == [(0, 3, 3)]

    serve(check, tmp_path)


def test_a_batch_is_finished_for_who_waits_too(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann:
            await ann.client.send((ann.fetch_request(wait=60_000, most=4), 2))
            await served.settled()
            await send(served, 6)
            assert count(await ann.client.receive()) == 6

    serve(check, tmp_path)


def test_nobody_holds_more_than_the_group_allows(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, share_partition_max_record_locks="100")
        await send(served, 90, 90)
        async with consumer(served, "ann") as ann:
            assert count(await ann.fetch(most=50, share_acquire_mode=RECORD_LIMIT)) == 50
            assert count(await ann.fetch(most=20)) == 40  # to the end of the batch
            assert count(await ann.fetch(most=50)) == 10  # and no further: 100 are held
            assert count(await ann.fetch()) == 0
            assert await ann.acked((0, 99, [ACCEPT])) == 0
            assert count(await ann.fetch()) == 80

    serve(check, tmp_path)


def test_who_reads_slowly_and_alone_is_given_all_that_it_asks_for(tmp_path: Path) -> None:
    """Its pace, which is known by then, is for sharing with others."""

    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, *[1] * 100)
        async with consumer(served, "ann") as ann:
            assert count(await ann.fetch(most=10)) == 10
            served.clock.jump(20)
            assert await ann.acked((0, 0, [ACCEPT])) == 0
            assert count(await ann.fetch(most=80)) == 80

    serve(check, tmp_path)


def test_several_have_a_part_each(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann, consumer(served, "ben") as ben:
            await ann.fetch()
            await ben.fetch()
            await send(served, *[1] * 100)
            assert 0 < count(await ann.fetch()) <= 50
            assert 0 < count(await ben.fetch()) <= 50

    serve(check, tmp_path)


def test_who_holds_all_it_was_given_gets_at_once_what_a_lost_connection_held(
    tmp_path: Path,
) -> None:
    """The other one stays a member until its session times out, and takes no part."""

    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann, consumer(served, "ben") as ben:
            await ann.fetch()
            await ben.fetch()
            await send(served, *[1] * 10)
            held = got(await ann.fetch()).keys() | got(await ann.fetch()).keys()
            mine = got(await ben.fetch()).keys() | got(await ben.fetch()).keys()
            assert held
            assert mine
            await ann.client.stream.aclose()
            await served.settled()
            assert got(await ben.fetch()).keys() == set(range(10)) - mine
            assert len(served.broker.actions.groups.by_name["g"].members) == 2

    serve(check, tmp_path)


def test_who_comes_after_one_that_closed_or_left_or_changed_its_topics_is_alone(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await prepare(served, "t", "u")
        async with consumer(served, "ann") as ann, consumer(served, "ben") as ben:
            await ann.fetch()
            await ben.fetch()
            await ann.fetch(epoch=-1)
            await send(served, 10)
            assert count(await ben.fetch()) == 10
            ann.epoch = 0
            await ann.fetch()
            await ann.join("u")  # its log of t ends: it holds nothing there
            await send(served, 10)
            assert count(await ben.fetch((0, 9, [ACCEPT]))) == 10

    serve(check, tmp_path)


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"most": 0}, {"max_bytes": -1}])
def test_who_asks_for_no_bytes_or_no_records_is_answered_at_once_with_none(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, 5)
        async with consumer(served, "ann") as ann:
            assert count(await ann.fetch(wait=60_000, **limits)) == 0
            assert (
                count(await ann.fetch(wait=60_000, max_bytes=1)) == 5
            )  # one batch, whatever its size

    serve(check, tmp_path)
