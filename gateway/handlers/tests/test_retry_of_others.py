"""Retry commands for topics that a group does not read: retries that nobody takes, letters that nobody
wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.handlers.tests.test_retry_commands import command, send, shared, waiting
from kumquat.gateway.shares.tests.consumers import consumer, fetched, prepare
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.tests.sharing.test_sharing import fill
from kumquat.gateway.wire import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.tests.harness import Client

ACTIONS = ("retry", "reject")


async def check_refused(served: Served, client: Client, action: str) -> None:
    answer = await send(client, command(0, subject="other", action=action))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "there is no group 'g' that reads 'other'" in answer.error_message
    await served.settled()
    other = served.broker.log.subjects.by_name["other"].id
    assert other not in served.broker.actions.groups.by_name["g"].progress
    assert not [name for name in served.broker.log.subjects.by_name if name.endswith(".dlq")]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_message_of_a_topic_that_the_group_does_not_read(tmp_path: Path, action: str) -> None:
    async def check(served: Served) -> None:
        await served.create("other")
        await fill(served, "other", 3)
        async with shared(served) as (client, (member,)):
            await member.drain()
            await check_refused(served, client, action)
            assert waiting(served) == []

    serve(check, tmp_path)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_message_of_a_topic_that_the_share_group_does_not_read_breaks_its_description(
    tmp_path: Path, action: str
) -> None:
    async def check(served: Served) -> None:
        await served.broker.subjects.make_retry()
        await prepare(served, "t", "other")
        await fill(served, "t", 3)
        await fill(served, "other", 3)
        async with consumer(served, "ann") as ann, served.client() as client:
            await fetched(ann, 3)
            await check_refused(served, client, action)
            asked = DescribeShareGroupOffsetsRequestGroup("g", None)
            answer = await client.call(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
            (group,) = answer.groups
            assert group.error_code == 0
            assert [topic.topic_name for topic in group.topics] == ["t"]

    serve(check, tmp_path)
