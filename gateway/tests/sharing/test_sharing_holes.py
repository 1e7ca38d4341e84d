"""Offsets that delayed records left empty must not stop a member that shares, nor count as its backlog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.tests.members import sharing

if TYPE_CHECKING:
    from pathlib import Path

FAR = b"3600000"


async def fill(served: Served, topic: str, *patterns: str) -> list[bytes]:
    """A batch for each pattern: a dot is a plain record, a dash one for later. Gives the plain values."""
    written = []
    async with served.client() as client:
        for pattern in patterns:
            builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
            for number, mark in enumerate(pattern):
                value = b"%s %d" % (pattern.encode(), number)
                headers = [("qmq-delay-ms", FAR)] if mark == "-" else []
                builder.append(timestamp=1, key=None, value=value, headers=headers)
                written += [value] if mark == "." else []
            builder.close()
            answer = await client.call(produce(topic, records=bytes(builder.buffer())), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
    return written


def unacked(served: Served, group: str, topic: str) -> tuple[int, int]:
    """What the group's members hold, and what retention is said to have taken from it."""
    subject = served.broker.log.subjects.by_name[topic]
    progress = served.broker.actions.groups.by_name[group].progress[subject.id]
    return progress.unacked, progress.expired


@pytest.mark.parametrize(
    "patterns",
    [
        ["-."],
        [".-"],
        ["---.---"],
        ["-" * 900 + "."],
        ["." + "-" * 900, "."],
        ["-.--" * 60, "..", "-" * 30 + "." + "-" * 30],
    ],
)
def test_all_plain_messages_come_once_and_nothing_is_left_unacked(
    tmp_path: Path, patterns: list[str]
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", *patterns)
        async with sharing(served, "g", "t", 2) as members:
            got: list[bytes] = []
            for _ in range(2):
                for member in members:
                    got += [record.value for record in await member.drain()]
                    await member.commit()
            assert sorted(got) == sorted(written)
            assert unacked(served, "g", "t") == (0, 0)
            for member in members:
                assert await member.fetch() == []

    serve(check, tmp_path)


def test_a_member_that_waits_is_not_woken_for_good_by_holes(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "g", "t", 1) as (member,):
            await member.ask(max_wait_ms=60_000)
            await served.settled()
            (first,) = await fill(served, "t", "." + "-" * 40)
            assert [record.value for record in await member.receive()] == [first]
            assert await member.commit() == 0
            await member.ask(max_wait_ms=60_000)
            await served.settled()
            (second,) = await fill(served, "t", "-" * 40 + ".")
            assert [record.value for record in await member.receive()] == [second]

    serve(check, tmp_path)
