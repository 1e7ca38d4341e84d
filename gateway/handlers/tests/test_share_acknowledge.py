"""ShareAcknowledge over a socket: every way in which it is refused, with its code, and nothing applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.handlers.tests.test_share_fetch import send
from kumquat.gateway.shares.tests.consumers import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    consumer,
    fetched,
    only,
    prepare,
    ranges,
)
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.wire import AcknowledgePartition
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.shares.tests.consumers import Batch

STATE, REQUEST = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST
REFUSED: dict[str, tuple[list[Batch], ErrorCode]] = {
    "no range": ([(3, 2, [ACCEPT])], REQUEST),
    "descending": ([(3, 3, [ACCEPT]), (1, 1, [ACCEPT])], REQUEST),
    "overlapping": ([(0, 1, [ACCEPT]), (1, 2, [ACCEPT])], REQUEST),
    "no type": ([(0, 0, [])], REQUEST),
    "too many types": ([(0, 1, [ACCEPT] * 3)], REQUEST),
    "unknown type": ([(0, 0, [5])], REQUEST),
    "a renewal that is not announced": ([(0, 0, [RENEW])], REQUEST),
    "past what was given to anybody": ([(0, 100, [ACCEPT])], REQUEST),
    "only past it": ([(50, 50, [ACCEPT])], REQUEST),
    "another member's": ([(4, 4, [ACCEPT])], STATE),
    "partly another member's": ([(3, 4, [ACCEPT])], STATE),
    "in the second batch": ([(0, 0, [ACCEPT]), (4, 4, [ACCEPT])], STATE),
}


@pytest.mark.parametrize("piggybacked", [False, True])
@pytest.mark.parametrize(("batches", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_acknowledgement_that_is_applied_in_part_or_has_another_code(
    tmp_path: Path, batches: list[Batch], code: ErrorCode, piggybacked: bool
) -> None:
    """Ann holds 0 to 3, Ben holds 4 and 5."""

    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann, consumer(served, "ben", joins=False) as ben:
            await send(served, "t", *[b"x"] * 4)
            assert len(await fetched(ann, 4)) == 4
            await ben.join("t")
            await send(served, "t", *[b"x"] * 2)
            assert len(await fetched(ben, 2)) == 2
            if piggybacked:
                assert only(await ann.fetch(*batches)).acknowledge_error_code == code
            else:
                assert await ann.acked(*batches) == code
            assert await ann.acked((0, 3, [ACCEPT])) == 0
            assert await ben.acked((4, 5, [ACCEPT])) == 0

    serve(check, tmp_path)


def test_an_acknowledgement_that_comes_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", *[b"x"] * 5)
        async with consumer(served, "ann") as ann:
            await fetched(ann, 5)
            assert await ann.acked((0, 3, [ACCEPT, RELEASE, REJECT, GAP])) == 0
            assert await ann.acked((0, 0, [ACCEPT])) == 0, "all up to there is done, as in Kafka"
            for offset in range(1, 4):
                assert await ann.acked((offset, offset, [ACCEPT])) == STATE
            assert await ann.acked((4, 4, [ACCEPT])) == 0

    serve(check, tmp_path)


def test_an_acknowledgement_after_the_lock_has_ended(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, share_record_lock_duration_ms="15000")
        await send(served, "t", b"a")
        async with consumer(served, "ann") as ann, consumer(served, "ben") as ben:
            await ann.fetch()
            served.clock.jump(15.5)
            await served.settled()
            assert await ann.acked((0, 0, [ACCEPT])) == STATE
            assert ranges(only(await ben.fetch())) == [(0, 0, 2)]

    serve(check, tmp_path)


def test_renewals_where_they_are_not_allowed(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await prepare(served, share_renew_acknowledge_enable="false")
        await send(served, "t", b"a")
        async with consumer(served, "ann") as ann:
            await ann.fetch()
            assert await ann.acked((0, 0, [RENEW]), renews=True) == STATE
            assert await ann.acked((0, 0, [ACCEPT]), renews=True) == 0

    serve(check, tmp_path)


@pytest.mark.parametrize("version", [1, 2])
def test_topics_and_partitions_that_do_not_exist_do_not_harm_the_others(
    tmp_path: Path, version: int
) -> None:
    async def check(served: Served) -> None:
        await prepare(served)
        await send(served, "t", b"a")
        async with consumer(served, "ann") as ann:
            await ann.fetch()
            request = ann.acknowledge_request((0, 0, [ACCEPT]))
            batches = request.topics[0].partitions[0].acknowledgement_batches
            request.topics[0].partitions.append(AcknowledgePartition(1, batches))
            request.topics[0].partitions.append(AcknowledgePartition(2, []))
            stranger: Any = ann.acknowledge_request((0, 0, [ACCEPT]), epoch=0, topic_id=b"?" * 16)
            request.topics += stranger.topics
            answer = await ann.client.call(request, version)
            assert answer.error_code == 0
            assert answer.acquisition_lock_timeout_ms == (30_000 if version == 2 else 0)
            codes = [
                (topic.topic_id, part.partition_index, part.error_code)
                for topic in answer.responses
                for part in topic.partitions
            ]
            assert codes == [
                (ann.topic_id, 0, 0),
                (ann.topic_id, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (ann.topic_id, 2, 0),
                (b"?" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID),
            ]

    serve(check, tmp_path)
