"""What the first hand-outs are like when an owner's subject is opened to those who have joined meanwhile.

The owner and the joiner come one after the other: the owner may have fetched everything before the joiner
has a pull log. Then the joiner would get nothing, until the owner is told to rebalance seconds later.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kumquat.core.delivery.policy import ARRIVAL_SECONDS
from kumquat.gateway.tests.harness import Served, serve
from kumquat.gateway.tests.members import SESSION_MS, Member, Record
from kumquat.gateway.tests.sharing.test_sharing import fill, values
from kumquat.gateway.wire import (
    ConsumerProtocolSubscription,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

COUNT = 100


class Joining(Member):
    """Sends its JoinGroup and does the rest later."""

    async def begin(self) -> None:
        metadata = ConsumerProtocolSubscription(topics=[self.topic])
        packed = b"\0\0" + b"".join(ConsumerProtocolSubscription.encode(metadata, 0))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", packed)],
        )
        self.id = (await self._coordinator.call(request, 5)).member_id
        request.member_id = self.id
        await self._coordinator.send((request, 5))

    async def end(self) -> bool:
        self.generation = (await self._coordinator.receive()).generation_id
        return await self.synced()


@asynccontextmanager
async def opened(served: Served) -> AsyncIterator[tuple[Member, Joining]]:
    """An owner that shares from now on, and a joiner that has not heard of it yet."""
    await served.create("t")
    await fill(served, "t", COUNT)
    clients = [served.client(name) for name in ("owner", "owner", "joiner", "joiner")]
    async with clients[0] as a, clients[1] as b, clients[2] as c, clients[3] as d:
        owner, joiner = Member("g", "t", a, b), Joining("g", "t", c, d)
        assert await owner.join()
        owner.position = 0
        await served.broker.registry.alter_group("g", {"consume.mode": "shared"})
        await joiner.begin()
        await served.settled()
        for _ in range(3):  # it lets go, and is given the subject again
            assert await owner.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
            if await owner.join():
                break
        yield owner, joiner


def test_who_fetches_first_leaves_a_share_to_who_has_joined(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with opened(served) as (owner, joiner):
            first = await owner.drain()
            assert len(first) <= COUNT // 2
            assert await joiner.end()
            got = await joiner.drain()
            assert len(got) >= COUNT // 4
            both: list[Record] = first + got
            while len(both) < COUNT:
                served.clock.jump(ARRIVAL_SECONDS)
                for member in (owner, joiner):
                    assert await member.commit() == 0
                    both += await member.drain()
            assert len(set(values(both))) == COUNT
            assert served.broker.sharing.statistics().rebalances == 0

    serve(check, tmp_path)


def test_a_share_is_not_kept_for_long_for_a_member_that_does_not_come(tmp_path: Path) -> None:
    async def check(served: Served) -> None:
        async with opened(served) as (owner, _):
            first = await owner.drain()
            served.clock.jump(ARRIVAL_SECONDS)
            rest = await owner.drain()
            assert len({*values(first), *values(rest)}) == COUNT

    serve(check, tmp_path)
