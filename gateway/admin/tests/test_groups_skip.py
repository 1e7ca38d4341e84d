"""A group that stands at a damaged batch: stuck for good, or moved without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.admin.http import Answer, HttpError
from kumquat.gateway.admin.routes import answer
from kumquat.gateway.cli.main import main
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.tests.members import sharing
from kumquat.gateway.tests.sharing.test_sharing import fill
from kumquat.gateway.wire import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


async def skip(served: Served, **values: object) -> Answer:
    return await answer(served.broker, "POST", "/groups/skip", values)


async def refused(served: Served, **values: object) -> str:
    with pytest.raises(HttpError) as caught:
        await skip(served, **values)
    assert caught.value.status in (404, 409)
    return str(caught.value)


async def commit(served: Served, group: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic("t", [partition])
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    async with served.client() as client:
        answer = await client.call(request, 7)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def position(served: Served, group: str) -> int:
    async with served.client() as client:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        answer = await client.call(OffsetFetchRequest(group_id=group, topics=[topic]), 5)
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


async def read_at(served: Served, offset: int) -> ErrorCode:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )
    async with served.client() as client:
        answer = await client.call(request, 11)
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def damage(folder: Path, value: bytes) -> None:
    (segment,) = (folder / "data").glob("**/messages/*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(value)] ^= 1
    segment.write_bytes(data)


async def three_batches(served: Served) -> None:
    await served.create("t")
    await fill(served, "t", 10)
    async with served.client() as client:
        await client.call(produce("t", *[b"first to be damaged"] * 5), 9)
        await client.call(produce("t", *[b"second to be damaged"] * 5), 9)
    await fill(served, "t", 10)


def test_group_at_a_damaged_batch_is_stuck(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(served: Served) -> None:
        await three_batches(served)
        await commit(served, "g", 12)
        await commit(served, "fine", 3)

    async def after(served: Served) -> None:
        assert await read_at(served, 12) is ErrorCode.CORRUPT_MESSAGE
        answer = await skip(served, group="g", subject="t")
        told = {"group": "g", "subject": "t", "from": 12, "to": 20, "skipped": 8}
        assert answer.payload == told
        assert await position(served, "g") == 20
        assert await read_at(served, 20) is ErrorCode.NONE
        assert "never gets the messages from 12 to 19" in caplog.text
        assert "can be read at offset 20" in await refused(served, group="g", subject="t")
        assert await position(served, "fine") == 3

    async def after_a_restart(served: Served) -> None:
        assert await position(served, "g") == 20

    serve(before, tmp_path)
    for value in (b"first to be", b"second to be"):
        damage(tmp_path, value)
    serve(after, tmp_path)
    serve(after_a_restart, tmp_path)


def test_skip_moves_what_it_must_not(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await three_batches(served)
        await commit(served, "g", 12)
        assert "no group 'h'" in await refused(served, group="h", subject="t")
        for to in (12, 3, 31):
            assert f"cannot skip to {to}" in await refused(served, group="g", subject="t", to=to)
        assert (await skip(served, group="g", subject="t", to=14)).payload["skipped"] == 2
        async with sharing(served, "s", "t", 2):
            assert "has members" in await refused(served, group="s", subject="t")
        assert await position(served, "g") == 14

    serve(check, tmp_path)


def test_command_hides_what_became_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[tuple[int, dict[str, Any]]] = [
        (200, {"group": "g", "subject": "t", "from": 12, "to": 20, "skipped": 8}),
        (409, {"error": "NOT_SKIPPED", "message": "group 'g' has members"}),
    ]
    asked: list[Mapping[str, str]] = []

    def ask(admin: str, method: str, path: str, values: Mapping[str, str]) -> object:
        asked.append(values)
        return answers.pop(0)

    monkeypatch.setattr("kumquat.gateway.cli.groups.ask", ask)
    command = ["groups", "skip", "--group", "g", "--subject", "t"]
    assert main(command) == 0
    assert "g skips 8 offsets of t, from 12 on, and goes on at 20" in capsys.readouterr().out
    assert main([*command, "--to", "20"]) == 1
    assert "has members" in capsys.readouterr().err
    assert asked == [{"group": "g", "subject": "t"}, {"group": "g", "subject": "t", "to": "20"}]
