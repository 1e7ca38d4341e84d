"""DescribeShareGroupOffsets: a small request that becomes a huge answer, or takes the loop for long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.groups import share_offsets
from kumquat.gateway.handlers import describe_share_group_offsets as handler
from kumquat.gateway.shares.tests.consumers import consumer, prepare
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.wire import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject

Asked = DescribeShareGroupOffsetsRequestGroup


def test_a_group_that_is_named_a_thousand_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(served: Served) -> None:
        await prepare(served, "t", "u")
        async with consumer(served, "ann") as ann, consumer(served, "ben", group="h"):
            await ann.join("t", "u")
            request = DescribeShareGroupOffsetsRequest(groups=[Asked("g", None)] * 1000)
            first, *others = (await ann.client.call(request, 1)).groups
            assert (first.error_code, len(first.topics)) == (0, 2)
            assert {(one.error_code, len(one.topics)) for one in others} == {
                (ErrorCode.INVALID_REQUEST, 0)
            }
            monkeypatch.setattr(handler, "MAX_OFFSETS", 1)
            request = DescribeShareGroupOffsetsRequest(groups=[Asked("h", None), Asked("g", None)])
            h, g = (await ann.client.call(request, 1)).groups
            assert (h.error_code, len(h.topics)) == (0, 1)
            assert g.error_code == ErrorCode.INVALID_REQUEST
            assert "with up to 1 offsets" in g.error_message

    serve(check, tmp_path)


def test_a_partition_that_is_named_a_thousand_times_and_looked_up_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counted(group: Group | None, subject: Subject) -> share_offsets.Start:
        nonlocal looks
        looks += 1
        return share_offsets.start(group, subject)

    async def check(served: Served) -> None:
        await prepare(served)
        async with consumer(served, "ann") as ann:
            monkeypatch.setattr(handler, "start", counted)
            topic = DescribeShareGroupOffsetsRequestTopic("t", [0, 1] * 500)
            request = DescribeShareGroupOffsetsRequest(groups=[Asked("g", [topic])])
            (group,) = (await ann.client.call(request, 1)).groups
            rows = [row.start_offset for row in group.topics[0].partitions]
            assert rows == [0, -1] * 500
            assert looks == 1

    serve(check, tmp_path)
