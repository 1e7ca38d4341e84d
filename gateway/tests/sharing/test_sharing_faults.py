"""Messages that are gone, damaged or large; disks that fail; a Fetch that asks for several things."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import pytest

from kumquat.core.records.tests.test_batch import built
from kumquat.gateway.handlers.common.resources import EXPIRED, Resource
from kumquat.gateway.handlers.offset_for_leader_epoch import BEYOND
from kumquat.gateway.tests.harness import NO_SPACE, Served, produce, serve
from kumquat.gateway.tests.members import Record, records_in, sharing
from kumquat.gateway.tests.sharing.test_sharing import fill, values
from kumquat.gateway.wire import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from pathlib import Path


async def expired(served: Served, group: str) -> int:
    """As an admin is shown it."""
    resource = DescribeConfigsResource(Resource.GROUP, group, [EXPIRED])
    async with served.client() as client:
        answer = await client.call(DescribeConfigsRequest(resources=[resource]), 4)
    (config,) = answer.results[0].configs
    assert config.read_only
    return int(config.value)


async def delete_below(served: Served, topic: str, sequence: int) -> None:
    log = served.broker.log
    log.raise_earliest_nowait(log.subjects.by_name[topic], sequence)
    await log.wait_synced()


def test_a_cursor_that_retention_overtakes_goes_on_at_the_earliest_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 10, 10, 10)
        async with sharing(served, "g", "t", 2) as members:
            await delete_below(served, "t", 15)
            got: list[Record] = []
            while len(got) < 15:
                for member in members:
                    got += await member.fetch()
            assert sorted(values(got)) == sorted(written[15:])
            assert "group g: 15 messages of t below 15 were deleted" in caplog.text
            assert served.broker.sharing.statistics().expired == 15
            assert await expired(served, "g") == 15

    serve(check, tmp_path)


def test_what_waits_to_be_delivered_again_and_is_deleted_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 20)
        async with sharing(served, "g", "t", 2) as (one, other):
            held = await one.fetch()
            assert len(held) == 5
            assert await one.commit(held[0].offset) == 0
            await one.leave()
            await delete_below(served, "t", 3)
            got = await other.drain()
            assert sorted(values(got)) == sorted(written[3:])
            assert "3 messages of t below 3 were deleted" in caplog.text
            assert await other.commit() == 0
            progress = served.broker.actions.groups.by_name["g"].progress[1]
            assert progress.settled

    serve(check, tmp_path)


def test_what_was_leased_and_is_deleted_before_it_was_read_again_leaves_a_gap(
    tmp_path: Path,
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 40)
        async with sharing(served, "g", "t", 1) as (member,):
            begin = member.position
            held = await member.fetch()
            await delete_below(served, "t", 7)
            member.position = begin
            assert (await member.fetch())[: len(held) - 7] == held[7:]
            assert served.broker.sharing.statistics().lost == 7
            assert await expired(served, "g") == 7

    serve(check, tmp_path)


def test_a_damaged_batch_is_skipped_loudly_and_its_neighbours_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The group comes to an end with it all the same: nothing is left unacked."""

    async def before(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 10)
        async with served.client() as client:
            await client.call(produce("t", *[b"to be damaged"] * 10), 9)
        await fill(served, "t", 10)

    serve(before, tmp_path)
    (segment,) = (tmp_path / "data").glob("**/*.log")
    data = bytearray(segment.read_bytes())
    at = data.index(b"to be damaged")
    data[at] ^= 1
    segment.write_bytes(data)

    async def after(served: Served) -> None:
        async with sharing(served, "g", "t", 2) as members:
            got: list[Record] = []
            for _ in range(30):
                for member in members:
                    got += await member.fetch()
            expected = [b"%d" % n for n in [*range(10), *range(20, 30)]]
            assert sorted(values(got)) == sorted(expected)
            for member in members:
                assert await member.commit() == 0
            assert "10 messages of t from 10 on cannot be read" in caplog.text or (
                "messages of t from" in caplog.text and "cannot be read" in caplog.text
            )
            assert served.broker.sharing.statistics().lost == 10
            await served.settled()
            letters = served.broker.log.subjects.by_name["t.g.dlq"]
            assert letters.readable_end == 10
            assert served.broker.actions.groups.by_name["g"].progress[1].dying == 0
            assert served.broker.actions.groups.by_name["g"].progress[1].settled

    serve(after, tmp_path)


def test_what_a_damaged_action_log_puts_in_doubt_is_told_by_group_and_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(served: Served) -> None:
        await served.create("orders")
        await fill(served, "orders", 6)
        async with sharing(served, "payments", "orders", 1) as (member,):
            await member.drain()
            assert await member.commit() == 0

    async def after(served: Served) -> None:
        async with sharing(served, "payments", "orders", 1) as (member,):
            got: list[Record] = []
            while some := await member.fetch():  # in doubt, so delivered again
                got += some
                assert await member.commit() == 0
            assert sorted(values(got)) == [b"%d" % n for n in range(6)]

    serve(before, tmp_path)
    (segment,) = (tmp_path / "data" / "actions").glob("*.actions")
    data = segment.read_bytes()
    assert data.count(b'[["ack",') == 1
    segment.write_bytes(data.replace(b'[["ack",', b'[["xyz",'))
    caplog.set_level(logging.ERROR)
    serve(after, tmp_path)
    assert "group 'payments': what it did in 'orders' is damaged in part. 6 messages" in caplog.text


@pytest.mark.parametrize("failing", ["open", "preadv_into"])
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM, errno.EIO])
def test_what_cannot_be_read_for_a_while_is_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failing: str, error: int
) -> None:
    small = {"log_segment_bytes": 2000, "log_tail_bytes": 1}

    async def before(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", *[50] * 20)

    async def after(served: Served) -> None:
        async with sharing(served, "g", "t", 2) as members:
            served.files.read_trouble = {failing: error}
            for member in members:
                begin = member.position
                assert await member.fetch() == []
                assert member.position == begin
            served.files.read_trouble = {}
            got: list[Record] = []
            while some := [record for member in members for record in await member.fetch()]:
                got += some
            assert sorted(values(got)) == sorted(b"%d" % n for n in range(1000))
            assert served.broker.sharing.statistics().lost == 0
            assert await expired(served, "g") == 0
            told = [r for r in caplog.records if "cannot read t for now" in r.getMessage()]
            assert len(told) == 1, "said once, not for each Fetch"

    serve(before, tmp_path, **small)
    caplog.set_level(logging.ERROR)
    serve(after, tmp_path, **small)


def test_a_segment_that_is_gone_costs_no_more_than_what_it_held(tmp_path: Path) -> None:
    small = {"log_segment_bytes": 2000, "log_tail_bytes": 1}

    async def before(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", *[50] * 20)

    async def after(served: Served) -> None:
        earliest = served.broker.log.log.state.segments[0].base
        assert earliest > 0
        async with sharing(served, "g", "t", 1) as (member,):
            got: list[bytes] = []
            for _ in range(50):
                got += values(await member.fetch())
            lost = served.broker.sharing.statistics().lost
            assert 0 < lost < 500
            assert got == [b"%d" % n for n in range(lost, 1000)]

    serve(before, tmp_path, **small)
    first = min((tmp_path / "data" / "messages").glob("*.log"))
    first.unlink()
    serve(after, tmp_path, **small)


def test_a_full_disk_under_the_action_log_hands_out_nothing_and_gives_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 10)
        async with sharing(served, "g", "t", 1) as (member,):
            served.files.write_error = NO_SPACE
            begin = member.position
            assert await member.fetch() == []
            assert await member.fetch() == []
            assert member.position == begin
            served.files.write_error = None
            assert values(await member.drain()) == written
            told = [r for r in caplog.records if "nothing is handed out" in r.getMessage()]
            assert len(told) == 1, "said once, not for each Fetch"

    serve(check, tmp_path)


def test_an_answer_keeps_to_its_limit_and_the_rest_comes_next(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            for n in range(8):
                await client.call(produce("t", *[b"%d" % n + bytes(2000)] * 10), 9)
        async with sharing(served, "g", "t", 1) as (member,):
            got: list[Record] = []
            for _ in range(200):
                some = await member.fetch(max_bytes=50_000)
                assert sum(len(r.value) for r in some) <= 50_000
                got += some
            assert len(got) == 80
            offsets = [record.offset for record in got]
            assert offsets == list(range(offsets[0], offsets[0] + 80))

    serve(check, tmp_path)


def test_one_message_larger_than_all_limits_is_given(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with served.client() as client:
            await client.call(produce("t", bytes(100_000)), 9)
            await client.call(produce("t", bytes(100_000)), 9)
        async with sharing(served, "g", "t", 1) as (member,):
            assert len(await member.fetch(max_bytes=10)) == 1
            assert len(await member.fetch(max_bytes=10)) == 1
            assert len(await member.fetch(max_bytes=10)) == 0

    serve(check, tmp_path)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_small_and_large_are_divided_too(tmp_path: Path, codec: int) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written: list[bytes] = []
        async with served.client() as client:
            for count, size in ((10, 10), (300, 500), (7, 3)):
                some = [b"%d-%d " % (count, n) + b"x%d" % n * size for n in range(count)]
                written += some
                answer = await client.call(
                    produce("t", records=bytes(built(*some, codec=codec))), 9
                )
                assert answer.responses[0].partition_responses[0].error_code == 0
        async with sharing(served, "g", "t", 3) as members:
            got: list[Record] = []
            while len(got) < len(written):
                for member in members:
                    got += await member.fetch()
            assert sorted(values(got)) == sorted(written)

    serve(check, tmp_path)


def test_a_fetch_of_several_topics_is_answered_for_whichever_has_something(tmp_path: Path) -> None:
    """A pull log, a plain offset and a slot that nobody has, in one request."""

    async def check(served: Served) -> None:
        for topic in ("shared", "plain", "fenced"):
            await served.create(topic)
        async with sharing(served, "g", "shared", 1) as (member,):

            def ask(shared: int, plain: int) -> FetchRequest:
                offsets = {"shared": shared, "plain": plain, "fenced": (77 << 48) + 5}
                return FetchRequest(
                    max_wait_ms=60_000,
                    min_bytes=1,
                    max_bytes=1 << 20,
                    topics=[
                        FetchTopic(topic, partitions=[_at(offset)])
                        for topic, offset in offsets.items()
                    ],
                )

            for topic, shared, plain in (("plain", 0, 0), ("shared", 0, 1)):
                await member.data.send((ask(member.position + shared, plain), 11))
                await served.settled()
                (value,) = await fill(served, topic, 1)
                answer = await member.data.receive()
                found = {
                    each.topic: values(records_in(each.partitions[0].records))
                    for each in answer.responses
                }
                assert found == {"shared": [], "plain": [], "fenced": [], topic: [value]}
                assert all(each.partitions[0].error_code == 0 for each in answer.responses)

    serve(check, tmp_path)


def _at(offset: int) -> FetchPartition:
    return FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)


def test_no_epoch_check_makes_a_sharing_member_begin_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await served.create("other")
        await fill(served, "t", 3)

        async def end(topic: str) -> int:
            asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic, [asked])])
            async with served.client() as client:
                answer = await client.call(request, 4)
            partition = answer.topics[0].partitions[0]
            assert partition.error_code == 0
            return int(partition.end_offset)

        assert (await end("t"), await end("other")) == (3, 0)
        async with sharing(served, "g", "t", 1) as (member,):
            assert member.position < await end("t") == BEYOND
            assert await end("other") == 0

    serve(check, tmp_path)


def test_a_read_that_goes_wrong_in_another_way_is_no_error_to_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kumquat.core.errors import StorageError, WouldBlock

    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 4)

        def blocked(*_: object) -> None:
            raise WouldBlock

        async def failing(*_: object) -> None:
            raise StorageError("the index cannot be made again")

        async with sharing(served, "g", "t", 1) as (member,):
            with monkeypatch.context() as patched:
                patched.setattr(served.broker.log, "read_nowait", blocked)
                patched.setattr(served.broker.log, "read", failing)
                assert await member.fetch() == []
            assert "cannot read t for now: the index cannot be made again" in caplog.text
            assert values(await member.drain()) == written

    caplog.set_level(logging.ERROR)
    serve(check, tmp_path)
