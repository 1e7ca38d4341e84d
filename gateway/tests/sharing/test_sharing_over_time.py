"""Sharing that ends with a restart or goes on against its mode; work that is not taken back."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from kumquat.core.delivery.state import split_offset
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.tests.members import Member, Record, sharing
from kumquat.gateway.tests.sharing.test_sharing import fill, values
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def again(served: Served, member: Member) -> AsyncIterator[Member]:
    """A member of before, on new connections; its client has not noticed more than a lost connection."""
    async with served.client() as coordinator, served.client() as data:
        same = Member(member.group, member.topic, coordinator, data)
        same.id, same.generation, same.position = member.id, member.generation, member.position
        yield same


@pytest.mark.parametrize("killed", [False, True])
def test_after_a_restart_of_the_broker_members_go_on_where_they_were(
    tmp_path: Path, killed: bool
) -> None:
    """None missing, none that was committed again, no pull offset twice."""
    left: list[Member] = []
    done: list[bytes] = []
    seen: list[Record] = []
    written: list[bytes] = []

    async def before(served: Served) -> None:
        await served.create("t")
        written.extend(await fill(served, "t", 100))
        async with sharing(served, "g", "t", 2) as members:
            for member in members:
                got = await member.fetch()
                assert await member.commit(got[4].offset) == 0
                done.extend(values(got[:4]))
                seen.extend(got)
            left.extend(members)
            if killed:  # what a kill leaves: files as they are, no goodbye
                shutil.copytree(tmp_path / "data", tmp_path / "killed" / "data")

    async def after(served: Served) -> None:
        async with again(served, left[0]) as one, again(served, left[1]) as other:
            got: list[Record] = []
            for member in (one, other):
                assert await member.heartbeat() == 0
                assert split_offset(await member.committed())[0] == split_offset(member.position)[0]
                member.position = await member.committed()
                got += await member.drain()
            for member in (one, other):
                got += await member.drain()
                assert await member.commit() == 0
            assert sorted(done + values(got)) == sorted(written)
            old = {record.offset: record.value for record in seen}
            assert all(old.get(r.offset, r.value) == r.value for r in got)
            progress = served.broker.actions.groups.by_name["g"].progress
            assert all(each.settled for each in progress.values())

    serve(before, tmp_path)
    serve(after, tmp_path / "killed" if killed else tmp_path)


def test_what_a_member_holds_for_long_while_another_waits_is_taken_back(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 400)
        async with sharing(served, "g", "t", 1, lease_steal_after_ms="1000") as (slow,):
            held = await slow.drain()
            assert len(held) == len(written)
            served.clock.jump(2.0)
            assert await slow.commit(held[10].offset) == 0
            async with sharing(served, "g", "t", 1) as (idle,):
                for _ in range(12):
                    await idle.ask(max_wait_ms=500)
                    await served.settled()
                    served.clock.jump(0.51)
                    await idle.receive()
                    assert await idle.heartbeat() == 0
                    if await slow.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                        break
                else:
                    pytest.fail("the slow member was never told to rebalance")
                assert served.broker.sharing.statistics().rebalances == 1
                await slow.commit(held[20].offset)
                while not await slow.join():
                    await slow.heartbeat()
                got: list[Record] = []
                while len(got) < 380:
                    for member in (idle, slow):
                        got += await member.fetch()
                        assert await member.commit() == 0
                    served.clock.jump(0.5)
                assert sorted(values(got)) == sorted(written[20:])

    serve(check, tmp_path)


def test_a_fast_member_is_not_robbed_of_what_it_will_soon_have_done(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        await fill(served, "t", 4000)
        async with sharing(served, "g", "t", 2) as (fast, idle):
            await fast.drain()
            await idle.drain()
            for _ in range(8):
                served.clock.jump(0.25)
                got = await fast.fetch()
                await fast.commit(fast.position - 10 if got else None)
                await idle.commit()
                await idle.fetch(max_wait_ms=0)
                assert await fast.heartbeat() == 0

    serve(check, tmp_path)


def test_a_group_told_to_be_exclusive_lets_go_of_sharing(tmp_path: Path) -> None:
    """And members that are told so come back with plain offsets, one of them with the subject."""

    async def check(served: Served) -> None:
        await served.create("t")
        written = await fill(served, "t", 30)
        async with sharing(served, "g", "t", 2) as members:
            got: list[Record] = []
            while len(got) < 30:
                for member in members:
                    got += await member.fetch()
            for member in members:
                assert await member.commit() == 0
            await served.broker.registry.alter_group("g", {"consume.mode": "exclusive"})
            served.broker.coordinator.config_changed(group="g")
            held: dict[Member, bool] = {}

            async def obey(member: Member) -> None:
                for _ in range(6):
                    if await member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                        held[member] = await member.join()

            async with trio.open_nursery() as nursery:
                for member in members:
                    nursery.start_soon(obey, member)
            assert sorted(held.values()) == [False, True]
            (owner,) = [member for member in members if held[member]]
            assert owner.position == len(written)
            more = await fill(served, "t", 5)
            assert values(await owner.fetch()) == more

    serve(check, tmp_path)


def test_a_member_that_waits_for_nothing_gets_its_empty_answer_in_time(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "g", "t", 2) as (one, other):
            await one.ask(max_wait_ms=500)
            await other.ask(max_wait_ms=1500)
            await served.settled()
            assert served.broker.sharing.statistics().waiting == 2
            served.clock.jump(0.501)
            assert await one.receive() == []
            served.clock.jump(1.0)
            assert await other.receive() == []
            await served.settled()
            assert served.broker.sharing.statistics().waiting == 0

    serve(check, tmp_path)


def test_a_client_that_goes_away_while_it_waits_leaves_the_counter(tmp_path: Path) -> None:
    """What comes then goes to those who are there."""

    async def check(served: Served) -> None:
        await served.create("t")
        async with sharing(served, "g", "t", 2) as (gone, other):
            await gone.ask(max_wait_ms=60_000)
            await served.settled()
            for connection in list(served.acceptor.connections):
                if connection.session.client_id == "c0":
                    connection.abort("the test says so")
            await served.settled()
            assert served.broker.sharing.statistics().waiting == 0
            await other.ask(max_wait_ms=60_000)
            await served.settled()
            (value,) = await fill(served, "t", 1)
            assert values(await other.receive()) == [value]

    serve(check, tmp_path)
