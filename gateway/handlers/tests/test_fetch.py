"""Fetch: what is given, when, and how much."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.core.logs.tests.batches import batch
from kumquat.core.records.batch import read_head
from kumquat.gateway.handlers import fetch as handler
from kumquat.gateway.handlers.common import reading
from kumquat.gateway.tests.harness import Client, Served, produce, serve
from kumquat.gateway.wire import ErrorCode, FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from pathlib import Path

BATCH = len(batch(b"x" * 1000))


def fetch(*wanted: tuple[str, int], **fields: Any) -> FetchRequest:
    return FetchRequest(
        min_bytes=fields.pop("min_bytes", 1),
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=offset,
                        partition_max_bytes=fields.get("partition_max_bytes", 1 << 20),
                    )
                ],
            )
            for name, offset in wanted
        ],
        **{k: v for k, v in fields.items() if k != "partition_max_bytes"},
    )


async def fill(client: Client, topic: str, count: int) -> None:
    for number in range(count):
        await client.call(produce(topic, bytes([number]) * 1000), 9)


def bases(partition: Any) -> list[int]:
    """The base offsets of the batches of an answer."""
    view, found = memoryview(partition.records), []
    while view:
        head = read_head(view)
        found.append(head.base_offset)
        view = view[head.length + 12 :]
    return found


@pytest.mark.parametrize("version", range(4, 13))
def test_whole_batches_from_the_offset_on(tmp_path: Path, version: int) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await fill(client, "t", 5)
            answer = await client.call(fetch(("t", 2)), version)
            assert answer.session_id == 0
            (partition,) = answer.responses[0].partitions
            assert bases(partition) == [2, 3, 4]
            assert partition.high_watermark == partition.last_stable_offset == 5
            assert partition.aborted_transactions is None

    serve(check, tmp_path)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM, errno.EIO])
def test_what_cannot_be_read_for_a_while_is_an_error_that_clients_try_again(
    tmp_path: Path, error: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await fill(client, "t", 5)
            served.files.read_trouble = {"preadv_into": error}
            answer = await client.call(fetch(("t", 1)), 12)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            served.files.read_trouble = {}
            answer = await client.call(fetch(("t", 1)), 12)
            assert bases(answer.responses[0].partitions[0]) == [1, 2, 3, 4]

    serve(check, tmp_path, log_tail_bytes=1)


def test_topics_by_id(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await fill(client, "t", 2)
            request = fetch(("", 0), ("", 0))
            request.topics[0].topic_id = served.broker.log.subjects.by_name["t"].topic_id
            request.topics[1].topic_id = b"?" * 16
            answer = await client.call(request, 17)
            assert [topic.topic_id for topic in answer.responses] == [
                topic.topic_id for topic in request.topics
            ]
            assert bases(answer.responses[0].partitions[0]) == [0, 1]
            failed = answer.responses[1].partitions[0]
            assert failed.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    serve(check, tmp_path)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"fetch_offset": 4}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"fetch_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"current_leader_epoch": -2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 0}, ErrorCode.NONE),
        ({"current_leader_epoch": -1}, ErrorCode.NONE),
    ],
)
def test_an_error_is_answered_at_once_and_for_its_partition_alone(
    tmp_path: Path, change: dict[str, int], code: ErrorCode
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.create("other")
        async with served.client() as client:
            await fill(client, "t", 3)
            request = fetch(("t", 2), ("other", 0), max_wait_ms=1000)
            for name, value in change.items():
                setattr(request.topics[0].partitions[0], name, value)
            answer = await client.call(request, 12)
            assert answer.error_code == 0
            partition, other = (topic.partitions[0] for topic in answer.responses)
            assert partition.error_code == code
            assert partition.partition_index == request.topics[0].partitions[0].partition
            assert (other.error_code, other.high_watermark) == (0, 0)

    serve(check, tmp_path)


def test_all_limits_hold_but_the_first_batch_is_given_even_when_it_is_larger(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        for name in ("a", "b"):
            await served.create(name)
        async with served.client() as client:
            await fill(client, "a", 4)
            await fill(client, "b", 4)

            async def given(**limits: int) -> list[list[int]]:
                answer = await client.call(fetch(("a", 0), ("b", 0), **limits), 11)
                return [bases(topic.partitions[0]) for topic in answer.responses]

            assert await given() == [[0, 1, 2, 3], [0, 1, 2, 3]]
            assert await given(max_bytes=1) == [[0], []]
            assert await given(max_bytes=3 * BATCH) == [[0, 1, 2], []]
            assert await given(max_bytes=6 * BATCH) == [[0, 1, 2, 3], [0, 1]]
            assert await given(partition_max_bytes=2 * BATCH) == [[0, 1], [0, 1]]
            assert await given(partition_max_bytes=0) == [[0], []]
            answer = await client.call(fetch(("a", 4), ("b", 0), max_bytes=1), 11)
            assert bases(answer.responses[1].partitions[0]) == [0], "the first that has any"

    serve(check, tmp_path)


def test_the_brokers_own_limit_counts_whatever_is_asked(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await fill(client, "t", 4)
            answer = await client.call(fetch(("t", 0)), 11)
            assert bases(answer.responses[0].partitions[0]) == [0, 1]

    serve(check, tmp_path, fetch_max_bytes=2 * BATCH + 1)


def test_a_fetch_at_the_end_waits_for_data_and_no_longer_than_asked(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as reader, served.client() as writer:
            await reader.send((fetch(("t", 0), max_wait_ms=5000), 11))
            await served.settled()
            await fill(writer, "t", 1)
            assert bases((await reader.receive()).responses[0].partitions[0]) == [0]
            await reader.send((fetch(("t", 1), max_wait_ms=5000), 11))
            await served.settled()
            served.clock.jump(5.1)
            assert (await reader.receive()).responses[0].partitions[0].records == b""

    serve(check, tmp_path)


def test_a_fetch_waits_until_min_bytes_are_there(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as reader, served.client() as writer:
            await reader.send((fetch(("t", 0), max_wait_ms=5000, min_bytes=2 * BATCH), 11))
            await fill(writer, "t", 1)
            await served.settled()
            assert not reader.has_answer, "one batch is not enough"
            await fill(writer, "t", 1)
            assert bases((await reader.receive()).responses[0].partitions[0]) == [0, 1]

    serve(check, tmp_path)


def test_a_wait_for_min_bytes_reads_no_batch_twice_and_gives_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    read_batches = reading.read_batches

    async def watched(log: Any, subject: Any, offset: int, limit: int, alone: bool) -> Any:
        asked.append((subject.name, offset))
        return await read_batches(log, subject, offset, limit, alone)

    monkeypatch.setattr(handler, "read_batches", watched)

    async def check(served: Served) -> None:
        await served.create("t")
        await served.create("u")
        async with served.client() as reader, served.client() as writer:
            wanted = fetch(("t", 0), ("u", 0), max_wait_ms=5000, min_bytes=6 * BATCH)
            await reader.send((wanted, 11))
            for topic in ("t", "t", "u", "t", "u", "t"):
                await served.settled()
                await fill(writer, topic, 1)
            answer = await reader.receive()
            assert [bases(t.partitions[0]) for t in answer.responses] == [[0, 1, 2, 3], [0, 1]]
            assert sorted(asked) == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0), ("u", 1)]

    serve(check, tmp_path)


def test_limits_hold_for_what_is_read_before_and_after_a_wait_together(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as reader, served.client() as writer:
            limits = {"partition_max_bytes": 2 * BATCH + 10, "max_wait_ms": 5000}
            await reader.send((fetch(("t", 0), min_bytes=100 * BATCH, **limits), 11))
            for _ in range(4):
                await served.settled()
                await fill(writer, "t", 1)
            await served.settled()
            served.clock.jump(5.1)
            assert bases((await reader.receive()).responses[0].partitions[0]) == [0, 1]

    serve(check, tmp_path)


def test_a_topic_recreated_while_a_fetch_waits_is_read_from_the_asked_offset(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as reader, served.client() as writer:
            await fill(writer, "t", 2)
            await reader.send((fetch(("t", 0), max_wait_ms=5000, min_bytes=3 * BATCH), 11))
            await served.settled()
            log = served.broker.log
            log.delete_subject_nowait(
                log.subjects.by_name["t"]
            )  # and at once, before anyone wakes:
            log.create_subject_nowait("t")
            await served.settled()
            await fill(writer, "t", 3)
            assert bases((await reader.receive()).responses[0].partitions[0]) == [0, 1, 2]

    serve(check, tmp_path)


def test_an_offset_that_a_producer_knows_before_it_is_synced_is_waited_for(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as reader, served.client() as writer:
            served.files.hold_syncs()
            for _ in range(2):
                await writer.call(produce("t", b"a", acks=1), 9)
            await reader.send((fetch(("t", 1), max_wait_ms=5000), 11))
            await served.settled()
            served.files.release_syncs()
            (partition,) = (await reader.receive()).responses[0].partitions
            assert (partition.error_code, bases(partition)) == (0, [1])

    serve(check, tmp_path)


def test_a_topic_that_is_deleted_ends_the_wait(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await client.send((fetch(("t", 0), max_wait_ms=5000), 11))
            await served.settled()
            await served.broker.subjects.delete(served.broker.log.subjects.by_name["t"])
            (partition,) = (await client.receive()).responses[0].partitions
            assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    serve(check, tmp_path)


def test_a_session_is_never_made_and_a_client_that_has_one_is_told_to_begin_again(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            for session_epoch in (-1, 0):
                answer = await client.call(fetch(("t", 0), session_epoch=session_epoch), 11)
                assert (answer.error_code, answer.session_id) == (0, 0)
                assert len(answer.responses) == 1
            answer = await client.call(FetchRequest(session_id=9, session_epoch=3), 11)
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert answer.responses == []

    serve(check, tmp_path)


def test_a_stop_ends_the_wait_with_what_there_is(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await client.send((fetch(("t", 0), max_wait_ms=60_000), 11))
            await served.settled()
            served.broker.stop()
            served.broker.end_polls()
            assert (await client.receive()).responses[0].partitions[0].error_code == 0

    serve(check, tmp_path)


def test_a_fetch_of_a_thousand_topics_lists_exactly_these_in_order(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        names = [f"t{number}" for number in range(1000)]
        await served.broker.subjects.create_all({name: {} for name in names})
        async with served.client() as client:
            await fill(client, names[-1], 1)
            answer = await client.call(fetch(*[(name, 0) for name in names]), 12)
            assert [topic.topic for topic in answer.responses] == names
            assert bases(answer.responses[-1].partitions[0]) == [0]

    serve(check, tmp_path)
