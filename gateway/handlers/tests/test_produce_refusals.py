"""A refused batch whose reason nobody ever sees: many clients hide the text of the answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from kumquat.core.records.tests.test_batch import built
from kumquat.core.wheel.intake.tests.test_split import batch_of
from kumquat.gateway.tests.harness import NO_SPACE, Served, produce, serve

if TYPE_CHECKING:
    from pathlib import Path


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


async def send(served: Served, topic: str, records: bytes, version: int = 9) -> int:
    async with served.client() as client:
        answer = await client.call(produce(topic, records=records), version)
    return int(answer.responses[0].partition_responses[0].error_code)


MISSPELLED = bytes(batch_of([("QMQ-Delay-Ms", b"60000")]))
MISSPELLED_COMPRESSED = bytes(batch_of([("QMQ-Delay-Ms", b"60000")] * 9, codec=1))


@pytest.mark.parametrize(
    "records", [MISSPELLED, MISSPELLED_COMPRESSED], ids=["plain", "compressed"]
)
def test_a_refused_batch_is_told_with_reason_subject_and_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, records: bytes
) -> None:
    async def check(served: Served) -> None:
        await served.create("orders")
        assert await send(served, "orders", records) == 87

    serve(check, tmp_path)
    (told,) = warnings(caplog)
    assert "127.0.0.1" in told
    assert "client id" in told
    assert "a batch for 'orders' was refused with INVALID_RECORD" in told
    assert "did you mean qmq-delay-ms?" in told


def test_many_refused_batches_are_one_line_for_each_subject_and_code(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        for topic in ("orders", "bills"):
            await served.create(topic)
            for _ in range(20):
                await send(served, topic, MISSPELLED)
        damaged = built(b"a")
        damaged[-1] ^= 1
        assert await send(served, "orders", bytes(damaged)) == 2

    serve(check, tmp_path)
    assert [told.partition("a batch for ")[2].partition(":")[0] for told in warnings(caplog)] == [
        "'orders' was refused with INVALID_RECORD",
        "'bills' was refused with INVALID_RECORD",
        "'orders' was refused with CORRUPT_MESSAGE",
    ]


def test_what_belongs_to_normal_life_or_is_told_elsewhere_is_not_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("orders")
        assert await send(served, "nowhere", bytes(built(b"a"))) == 3
        served.files.write_error = NO_SPACE
        assert await send(served, "orders", bytes(built(b"a"))) == 56
        served.files.write_error = None
        assert await send(served, "orders", bytes(built(b"a"))) == 0

    serve(check, tmp_path)
    assert not [told for told in warnings(caplog) if "refused" in told]
