"""A small batch that makes the broker store, or hold, megabytes."""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.core.wheel.intake.tests.test_split import Headers, Sent, batch_of
from kumquat.gateway.tests.harness import Served, produce, serve

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
LATER: Headers = [("qmq-delay-ms", b"1h")]


async def send(served: Served, records: bytes) -> int:
    async with served.client() as client:
        answer = await client.call(produce("t", records=records), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_one_delayed_record_does_not_store_the_others_inflated(tmp_path: Path, codec: int) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        batch = batch_of(
            *[Sent(None, bytes(MIB // 2), [])] * 7, Sent(None, b"", LATER), codec=codec
        )
        before = served.broker.log.total_bytes
        assert await send(served, bytes(batch)) == 0
        assert served.broker.log.total_bytes - before < 2 * len(batch) + 2000

    serve(check, tmp_path)


def test_more_for_later_than_a_batch_may_have_is_refused_and_nothing_stored(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        batch = batch_of(*[Sent(None, bytes(MIB // 2), LATER)] * 3, codec=4)
        before = served.broker.log.total_bytes
        assert await send(served, bytes(batch)) == 10
        assert served.broker.log.total_bytes == before

    serve(check, tmp_path)


def test_batches_that_inflate_beyond_the_limit_leave_nothing_behind(tmp_path: Path) -> None:
    """From many connections at once, with nobody collecting garbage."""
    value = random.Random(1).randbytes(20_000) + bytes(3 * MIB)
    bomb = bytes(batch_of(Sent(None, value, []), codec=1))

    async def check(served: Served) -> None:
        await served.create("t")
        await send(served, bomb)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(3):
                async with trio.open_nursery() as nursery:
                    for _ in range(10):
                        nursery.start_soon(refused, served)
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
        assert held < 2 * MIB
        assert peak < 8 * MIB
        inflation = served.broker.log.inflation
        assert inflation.memory.free == inflation.memory.limit

    async def refused(served: Served) -> None:
        assert await send(served, bomb) == 87

    serve(check, tmp_path, max_decompressed_bytes=2 * MIB)
