"""Retry commands that are not obeyed, obeyed wrongly, stored, or refused without a reason that helps."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.delivery.commands import MAX_AFTER_MS, TOPIC
from kumquat.core.wheel.intake.tests.test_split import batch_of
from kumquat.gateway.handlers.common import retry_commands
from kumquat.gateway.tests.harness import IO_ERROR, Client, Served, produce, serve
from kumquat.gateway.tests.members import Member, sharing
from kumquat.gateway.tests.sharing.test_sharing import fill
from kumquat.gateway.wire import (
    ApiVersionsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    ProduceRequest,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

Headers = list[tuple[str, bytes | None]]


def command(offset: object, group: str = "g", subject: str = "t", **more: str) -> Headers:
    named = {"group": group, "subject": subject, "offset": str(offset), **more}
    return [(f"qmq-retry-{name.replace('_', '-')}", v.encode()) for name, v in named.items()]


async def send(
    client: Client, *commands: Headers, version: int = 9, codec: int = 0, acks: int = -1
) -> Any:
    """The answer for the batch of these commands."""
    request = produce(TOPIC, acks=acks, records=bytes(batch_of(*commands, codec=codec)))
    answer = await client.call(request, version)
    return answer.responses[0].partition_responses[0]


@asynccontextmanager
async def shared(served: Served, count: int = 1) -> AsyncIterator[tuple[Client, list[Member]]]:
    """Members that share a topic of ten messages, and a client for commands."""
    await served.broker.subjects.make_retry()
    await served.create("t")
    await fill(served, "t", 10)
    async with sharing(served, "g", "t", count) as members, served.client() as client:
        yield client, members


def waiting(served: Served) -> list[tuple[int, int]]:
    """Sequence and attempt of each message that waits to be delivered again."""
    subject_id = served.broker.log.subjects.by_name["t"].id
    progress = served.broker.actions.groups.by_name["g"].progress[subject_id]
    entries = list(progress.waiting)
    return [(each, entry.attempt) for entry in entries for each in range(entry.first, entry.end)]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_message_that_failed_waits_although_the_commit_passes_over_it(
    tmp_path: Path, version: int
) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            request = produce(TOPIC, records=bytes(batch_of(command(got[3].offset))))
            request.topic_data[0].topic_id = served.broker.log.subjects.by_name[TOPIC].topic_id
            answer = await client.call(request, version)
            partition = answer.responses[0].partition_responses[0]
            assert (partition.error_code, partition.base_offset) == (0, -1)
            assert await member.commit() == 0
            assert waiting(served) == [(3, 2)]
            assert served.broker.log.subjects.by_name[TOPIC].next_sequence == 0

    serve(check, tmp_path)


@pytest.mark.parametrize("codec", range(5))
def test_commands_of_any_codec_are_done_and_others_of_the_batch_refused(
    tmp_path: Path, codec: int
) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            answer = await send(
                client,
                command(got[1].offset),
                command("x"),
                command(got[2].offset, reason="kaputt " * 100),
                command(got[9].offset + 1),
                codec=codec,
                version=8,
            )
            assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            wrong = {e.batch_index: e.batch_index_error_message for e in answer.record_errors}
            assert wrong.keys() == {1, 3}
            assert "qmq-retry-offset is 'x'" in wrong[1]
            assert "never delivered" in wrong[3]
            assert answer.error_message.startswith("2 records are refused. The first: record 1: ")
            assert waiting(served) == [(1, 2), (2, 2)]

    serve(check, tmp_path)


def test_a_large_batch_of_commands_is_done(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            long = command(got[0].offset, reason="x" * 4000)
            for codec in (0, 1):
                answer = await send(client, *[long] * 100, codec=codec)
                assert (answer.error_code, answer.error_message) == (0, None)
            assert waiting(served) == [(0, 2)]

    serve(check, tmp_path)


def test_too_many_commands_are_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_commands, "MOST", 2)

    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            answer = await send(client, *[command(got[0].offset)] * 3)
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert answer.error_message == "3 commands in a batch: there may be 2"
            assert waiting(served) == []

    serve(check, tmp_path)


def test_a_command_that_was_done_is_no_error_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            for _ in range(3):
                assert (await send(client, command(got[3].offset))).error_code == 0
            assert waiting(served) == [(3, 2)]

    serve(check, tmp_path)


@pytest.mark.parametrize("acks", [1, -1])
def test_the_answer_waits_until_the_command_is_durable(tmp_path: Path, acks: int) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            await served.settled()
            served.files.hold_syncs()
            request = produce(TOPIC, acks=acks, records=bytes(batch_of(command(got[3].offset))))
            await client.send((request, 9))
            await served.settled()
            assert not client.has_answer
            served.files.release_syncs()
            answer = await client.receive()
            assert answer.responses[0].partition_responses[0].error_code == 0

    serve(check, tmp_path)


def test_a_command_that_cannot_be_written_is_told_and_can_be_sent_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            await served.settled()
            served.files.write_error = IO_ERROR
            answer = await send(client, command(got[3].offset))
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert waiting(served) == []

    serve(check, tmp_path)


def test_without_acks_a_command_is_done_and_a_bad_one_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            for offset in (str(got[3].offset), "x"):
                request = produce(TOPIC, acks=0, records=bytes(batch_of(command(offset))))
                await client.stream.send_all(client.frame(request, 9, answered=False))
            assert await client.closed()
            assert waiting(served) == [(3, 2)]

    caplog.set_level(logging.INFO)
    serve(check, tmp_path)
    assert "qmq-retry-offset is 'x'" in caplog.text


def test_a_batch_like_the_one_before_it_is_never_stored(tmp_path: Path) -> None:
    """Repeated requests take a shorter way: it must not be theirs."""

    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            for record in got:
                answer = await send(client, command(record.offset))
                assert (answer.error_code, answer.base_offset) == (0, -1)
            assert [first for first, _ in waiting(served)] == list(range(10))
            assert served.broker.log.subjects.by_name[TOPIC].next_sequence == 0

    serve(check, tmp_path)


def test_a_request_may_hold_commands_and_messages(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            batches = [
                produce("t", b"before"),
                produce(TOPIC, records=bytes(batch_of(command(got[3].offset)))),
                produce("t", b"behind"),
            ]
            both = ProduceRequest(
                acks=-1, timeout_ms=1000, topic_data=[each.topic_data[0] for each in batches]
            )
            answers = (await client.call(both, 9)).responses
            told = [
                (a.partition_responses[0].error_code, a.partition_responses[0].base_offset)
                for a in answers
            ]
            assert told == [(0, 10), (0, -1), (0, 11)]
            assert waiting(served) == [(3, 2)]

    serve(check, tmp_path)


def test_a_damaged_batch_is_refused_and_nothing_is_done(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            damaged = bytearray(batch_of(command(got[3].offset)))
            damaged[-1] ^= 1
            answer = await client.call(produce(TOPIC, records=bytes(damaged)), 9)
            partition = answer.responses[0].partition_responses[0]
            assert partition.error_code == ErrorCode.CORRUPT_MESSAGE
            assert waiting(served) == []

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"group": "nobody"}, "there is no group 'nobody'"),
        ({"subject": "nothing"}, "there is no topic 'nothing'"),
        ({"subject": TOPIC}, f"there is no topic '{TOPIC}'"),
        ({"offset": "many"}, "header qmq-retry-offset is 'many'"),
        ({"offset": "-4"}, "header qmq-retry-offset is '-4'"),
        ({"after_ms": str(MAX_AFTER_MS + 1)}, "which is up to two years"),
        ({"action": "forget"}, "allowed is retry or reject"),
    ],
)
def test_what_names_no_message_is_refused_with_the_reason(
    tmp_path: Path, given: dict[str, str], text: str
) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            answer = await send(client, command(**{"offset": str(got[3].offset), **given}))
            assert answer.error_code == ErrorCode.INVALID_RECORD
            (wrong,) = answer.record_errors
            assert text in wrong.batch_index_error_message
            assert answer.error_message == f"record 0: {wrong.batch_index_error_message}"
            assert waiting(served) == []

    serve(check, tmp_path)


async def refusal(client: Client, offset: int) -> str:
    answer = await send(client, command(offset))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    return str(answer.error_message)


def test_an_offset_that_names_no_message_of_the_member_is_refused(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            assert await member.commit(got[5].offset) == 0
            assert "is acked already" in await refusal(client, got[4].offset)
            assert "was never delivered" in await refusal(client, got[9].offset + 1)
            assert "not an offset that one of its members saw" in await refusal(client, 7)
            await member.leave()
            assert "of a member that has left or rebalanced" in await refusal(client, got[6].offset)

    serve(check, tmp_path)


def test_a_deleted_topic_has_no_messages_to_retry(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            await served.broker.subjects.delete(served.broker.log.subjects.by_name["t"])
            assert "there is no topic 't'" in await refusal(client, got[3].offset)
            await served.create("t")
            assert "record 0: " in await refusal(client, got[3].offset)

    serve(check, tmp_path)


def test_a_group_that_reads_in_order_is_told_that_it_cannot_retry(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with shared(served) as (client, (member,)):
            got = await member.drain()
            await served.broker.registry.alter_group("g", {"consume.mode": "exclusive"})
            told = await refusal(client, got[3].offset)
            assert "consume.mode=exclusive" in told
            assert "reject the message" in told

    serve(check, tmp_path)


def test_a_group_whose_consumers_choose_what_they_read_is_told_that_it_cannot_retry(
    tmp_path: Path,
) -> None:
    """Consumers that call assign() and commit: nobody would ever be handed the message again."""

    async def check(served: Served) -> None:
        await served.broker.subjects.make_retry()
        await served.create("t")
        await fill(served, "t", 10)
        async with served.client() as client:
            commit = OffsetCommitRequest(
                "g",
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[
                    OffsetCommitRequestTopic(
                        "t", [OffsetCommitRequestPartition(0, 2, committed_metadata="")]
                    )
                ],
            )
            answer = await client.call(commit, 8)
            assert answer.topics[0].partitions[0].error_code == 0
            assert "never had a member" in await refusal(client, 4)
            assert waiting(served) == []
            assert (await send(client, command(4, action="reject"))).error_code == 0

    serve(check, tmp_path)


@pytest.mark.parametrize("after_ms", ["0", "50"])
def test_a_retry_of_a_group_that_reads_plain_offsets_is_not_lost_when_sharing_begins(
    tmp_path: Path, after_ms: str
) -> None:
    async def check(served: Served) -> None:
        await served.broker.subjects.make_retry()
        await served.create("t")
        await fill(served, "t", 10)
        await served.broker.registry.alter_group("g", {"consume.mode": "auto"})
        async with (
            served.client() as client,
            served.client() as coordinator,
            served.client() as data,
        ):
            named = ApiVersionsRequest("kafka-python", "3.0.12")
            await coordinator.call(named, 3)
            member = Member("g", "t", coordinator, data)
            assert await member.join()
            assert await member.commit(2) == 0
            assert (await send(client, command(4, after_ms=after_ms))).error_code == 0
            assert waiting(served) == [(4, 2)]
            subject_id = served.broker.log.subjects.by_name["t"].id
            progress = served.broker.actions.groups.by_name["g"].progress[subject_id]
            progress.begin_sharing(10)
            assert waiting(served) == [(4, 2)]

    serve(check, tmp_path)
