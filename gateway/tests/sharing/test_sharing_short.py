"""A batch that claims more than it holds must not keep a sharing group busy, nor fill the log."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import pytest

from kumquat.core.records.compression import compressed
from kumquat.core.records.tests.test_batch import built, resummed
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.tests.members import Record, sharing
from kumquat.gateway.tests.sharing.test_sharing import fill, values

if TYPE_CHECKING:
    from pathlib import Path

CLAIMED = 3_000_000


def claiming(count: int, data: bytearray) -> bytes:
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    return bytes(resummed(data))


def padded(codec: int) -> bytearray:
    """A batch of one record, and so many zeros behind it that millions could be there."""
    data = built(b"first")
    parts = compressed(codec, [bytes(data[61:]), bytes(22 << 20)])
    data[61:] = b"".join(map(bytes, parts))
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    return data


async def send(served: Served, records: bytes) -> tuple[int, str | None]:
    async with served.client() as client:
        answer = await client.call(produce("t", records=records), 9)
    (partition,) = answer.responses[0].partition_responses
    return partition.error_code, partition.error_message


def test_a_few_bytes_that_claim_millions_of_records_are_refused(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        code, told = await send(served, claiming(CLAIMED, built(b"one" * 100, codec=4)))
        assert code == 87
        assert told is not None
        assert f"claims {CLAIMED} records" in told

    serve(check, tmp_path)


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_a_batch_that_holds_one_of_millions_is_passed_with_one_action_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, codec: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 5)
        bomb = claiming(CLAIMED, padded(codec))
        assert await send(served, bomb) == (0, None)
        await fill(served, "t", 5)
        subject = served.broker.log.subjects.by_name["t"]
        assert subject.readable_end == CLAIMED + 10
        async with sharing(served, "g", "t", 2) as members:
            got: list[Record] = []
            for _ in range(12):
                for member in members:
                    got += await member.fetch()
            numbers = (*range(5), *range(CLAIMED + 5, CLAIMED + 10))
            assert sorted(values(got)) == sorted([b"first", *(b"%d" % n for n in numbers)])
            for member in members:
                assert await member.commit() == 0
            assert served.broker.actions.groups.by_name["g"].progress[1].settled
            assert served.broker.sharing.statistics().lost == CLAIMED - 1

    serve(check, tmp_path)
    errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert f"{CLAIMED - 1} messages of t from 6 on cannot be read" in errors[0]
    assert f"no record follows 1 records of the batch, which claims {CLAIMED}" in errors[0]


def test_a_batch_that_cannot_be_inflated_is_passed_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was stored while nobody looked inside: delay.enabled was false."""

    async def check(served: Served) -> None:
        await served.create("t", **{"delay.enabled": "false"})
        data = built(*[b"some value %d" % n for n in range(20_000)], codec=4)
        data[100:200] = bytes(100)
        assert await send(served, bytes(resummed(data))) == (0, None)
        await fill(served, "t", 5)
        async with sharing(served, "g", "t", 2) as members:
            got: list[Record] = []
            for _ in range(6):
                for member in members:
                    got += await member.fetch()
            assert len(got) == 5

    serve(check, tmp_path)
    errors = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(errors) == 1
