"""Messages that come twice, not at all, to the wrong member, or with an error that throws a client off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.core.delivery.sharing.hand_outs import FIRST_HAND_OUT
from kumquat.core.delivery.state import pull_offset, split_offset
from kumquat.gateway.tests.harness import Served, produce, serve
from kumquat.gateway.tests.members import Member, Record, fetch_request, records_in, sharing
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path


async def fill(served: Served, topic: str, *sizes: int) -> list[bytes]:
    """Batches of so many messages each; their values tell their sequence."""
    async with served.client() as client:
        subject = served.broker.log.subjects.by_name[topic]
        written: list[bytes] = []
        for size in sizes:
            first = subject.next_sequence
            values = [b"%d" % (first + n) for n in range(size)]
            answer = await client.call(produce(topic, *values), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
            written += values
        return written


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


def test_each_message_goes_to_one_member_in_its_own_offsets(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 7, 1, 100, 30)
        async with sharing(served, "g", "t", 3) as members:
            got: list[bytes] = []
            while len(got) < len(written):
                for member in members:
                    begin = member.position
                    records = await member.fetch()
                    got += values(records)
                    offsets = [record.offset for record in records]
                    assert offsets == list(range(begin, begin + len(records)))
                    assert member.high_watermark == member.position + len(written) - len(got)
            assert sorted(got) == sorted(written)
            slots = {split_offset(member.position)[0] for member in members}
            assert len(slots) == 3
            for member in members:
                assert await member.fetch() == []
                assert member.high_watermark == member.position

    serve(check, tmp_path)


@pytest.mark.parametrize("count", [2, 8, 32])
def test_nobody_gets_less_than_half_of_its_share_or_more_than_one_and_a_half(
    tmp_path: Path, count: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "g", "t", count) as members:
            got = dict.fromkeys(range(count), 0)
            for member in members:
                await member.ask()
            await served.settled()
            written = await fill(served, "t", *[1000] * 4)
            await served.settled()
            for n, member in enumerate(members):
                got[n] += len(await member.receive())
            assert 0 not in got.values()
            while sum(got.values()) < len(written):
                before = sum(got.values())
                for n, member in enumerate(members):
                    got[n] += len(await member.fetch())
                assert sum(got.values()) > before
            share = len(written) / count
            assert all(share / 2 <= each <= share * 1.5 for each in got.values()), got

    serve(check, tmp_path)


def test_one_message_wakes_one_member_and_that_is_the_longest_idle(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "g", "t", 4) as members:
            order = [2, 0, 3, 1]
            for n in order:
                await members[n].ask(max_wait_ms=60_000)
                await served.settled()
                served.clock.jump(0.001)
            reads: list[int] = []
            read = served.broker.sharing.read

            async def counted(*args: object) -> object:
                reads.append(1)
                return await read(*args)  # type: ignore[arg-type]

            served.broker.sharing.read = counted  # type: ignore[method-assign, assignment]
            for n in order:
                reads.clear()
                (value,) = await fill(served, "t", 1)
                assert values(await members[n].receive()) == [value]
                await served.settled()
                assert len(reads) == 1, "somebody was woken in vain"

    serve(check, tmp_path)


def test_two_messages_at_once_feed_two_members(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "g", "t", 3) as members:
            for member in members:
                await member.ask(max_wait_ms=60_000)
                await served.settled()
            written = await fill(served, "t", 2)
            got = [values(await members[n].receive()) for n in (0, 1)]
            assert got == [[written[0]], [written[1]]]

    serve(check, tmp_path)


def test_a_fetch_whose_answer_was_lost_gets_the_same_again(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 50)
        async with sharing(served, "g", "t", 2) as (one, other):
            begin = one.position
            first = await one.fetch()
            await other.fetch()
            one.position = begin
            assert (await one.fetch())[: len(first)] == first
            async with served.client() as elsewhere:
                answer = await elsewhere.call(fetch_request("t", begin + 3), 11)
                again = records_in(answer.responses[0].partitions[0].records)
            assert [r for r in again if r.offset >= begin + 3][: len(first) - 3] == first[3:]

    serve(check, tmp_path)


def test_below_what_is_acked_a_fetch_jumps_to_the_first_that_is_not(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 40)
        async with sharing(served, "g", "t", 1) as (member,):
            begin = member.position
            got = await member.fetch()
            assert len(got) == 20
            assert await member.commit(got[12].offset) == 0
            member.position = begin
            assert await member.fetch() == got[12:]
            assert await member.committed() == got[12].offset

    serve(check, tmp_path)


@pytest.mark.parametrize("slot", [9, 32_767])
def test_a_slot_that_nobody_has_waits_and_gets_nothing_and_no_error(
    tmp_path: Path, slot: int
) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 5)
        offset = pull_offset(slot, (1 << 24) + 77)
        async with served.client() as client:
            await client.send((fetch_request("t", offset, max_wait_ms=500), 11))
            await served.settled()
            await fill(served, "t", 5)
            await served.settled()
            served.clock.jump(0.499)
            await served.settled()
            served.clock.jump(0.002)
            partition = (await client.receive()).responses[0].partitions[0]
            assert partition.error_code == 0
            assert partition.records == b""
            assert partition.high_watermark == offset
        assert served.broker.sharing.statistics().fenced > 0

    serve(check, tmp_path)


def test_an_offset_that_was_never_given_gets_nothing_and_no_error(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 5)
        async with sharing(served, "g", "t", 1) as (member,):
            for position in (member.position + 1000, pull_offset(1, 5), pull_offset(1, 0)):
                member.position = position
                assert await member.fetch() == []
                assert member.high_watermark == position

    serve(check, tmp_path)


def test_what_a_member_had_not_acked_goes_to_one_that_waits(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 20)
        async with sharing(served, "g", "t", 2) as (one, other):
            held = await one.fetch()
            taken = await other.drain()
            held += await one.drain()
            assert sorted(values(held) + values(taken)) == sorted(written)
            assert await one.commit(held[2].offset) == 0
            await other.ask(max_wait_ms=60_000)
            await served.settled()
            await one.leave()
            again = await other.receive()
            again += await other.drain()
            assert sorted(values(again)) == sorted(values(held[2:]))
            attempts = {
                lease.attempt
                for _, log in served.broker.actions.groups.slots[1].values()
                for lease in log.leases
                if lease.first == int(again[0].value)
            }
            assert attempts == {1}, "it had committed: a planned leave"
            assert await one_fenced(served, one) == []

    serve(check, tmp_path)


async def one_fenced(served: Served, member: Member) -> list[Record]:
    """A member that is gone fetches on."""
    position = member.position
    got = await member.fetch()
    assert member.high_watermark == position
    return got


def test_an_ack_that_opens_the_window_feeds_who_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kumquat.core.delivery.policy.FIRST_WINDOW", 10)

    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 100)
        async with sharing(served, "g", "t", 1) as (member,):
            got = await member.drain()
            assert len(got) == 10
            await member.ask(max_wait_ms=60_000)
            await served.settled()
            assert await member.commit() == 0
            assert len(await member.receive()) > 0

    serve(check, tmp_path)


def test_a_member_that_may_be_slow_is_not_handed_a_heap_at_once(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        few = FIRST_HAND_OUT
        await fill(served, "t", few * 2, few * 4, *[few * 3 // 5] * 4, *[few * 4] * 2)
        async with sharing(served, "g", "t", 1) as (member,):
            sizes = [len(await member.fetch()) for _ in range(6)]
            # A whole batch; few at a time of a large one, and its rest; whole small ones.
            assert sizes == [few * 2, few, few, few * 2, few * 6 // 5, few * 6 // 5]
            assert await member.commit() == 0
            assert len(await member.fetch()) > 2 * few

    serve(check, tmp_path)


def test_a_plain_offset_reads_everything_and_takes_no_lease(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 20)
        async with sharing(served, "g", "t", 1) as (member,):
            position, member.position = member.position, 0
            assert values(await member.fetch()) == written
            member.position = position
            assert values(await member.drain()) == written

    serve(check, tmp_path)


def test_a_deleted_subject_is_told_to_who_waits_and_groups_forget_it(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 3)
        async with sharing(served, "g", "t", 2) as (one, other):
            await one.drain()
            await other.drain()
            await one.ask(max_wait_ms=60_000)
            await served.settled()
            await served.broker.subjects.delete(served.broker.log.subjects.by_name["t"])
            answer = await one.data.receive()
            code = answer.responses[0].partitions[0].error_code
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert served.broker.actions.groups.by_name["g"].progress == {}
            assert not served.broker.actions.groups.slots
            assert not served.broker.sharing._allowed, "of each deleted subject something stays"

    serve(check, tmp_path)
