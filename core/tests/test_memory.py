"""Room for bytes: bounded, in turn, never lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

from kumquat.core.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def run(check: Callable[[], Awaitable[None]]) -> None:
    trio.run(check)


def test_no_more_is_taken_than_there_is_until_some_is_given_back() -> None:
    async def check() -> None:
        memory = Memory(100)
        assert memory.try_take(60)
        assert not memory.try_take(41)
        memory.give(60)
        assert memory.try_take(100)
        assert memory.free == 0

    run(check)


def test_a_small_one_does_not_overtake_a_large_one_that_waits() -> None:
    async def check() -> None:
        memory, order = Memory(100), []

        async def take(size: int) -> None:
            await memory.take(size)
            order.append(size)

        assert memory.try_take(60)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, 90)
            await wait_all_tasks_blocked()
            nursery.start_soon(take, 15)
            await wait_all_tasks_blocked()
            assert not order
            assert not memory.try_take(1)
            assert memory.waiting == 2
            memory.give(60)
            await wait_all_tasks_blocked()
            assert order == [90]
            memory.give(90)
        assert order == [90, 15]
        assert memory.free == 85

    run(check)


def test_what_is_larger_than_all_the_room_is_let_in_alone_instead_of_waiting_forever() -> None:
    async def check() -> None:
        memory = Memory(100)
        assert memory.try_take(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.take, 500)
            await wait_all_tasks_blocked()
            assert memory.waiting
            memory.give(1)
        assert memory.free == -400
        assert not memory.try_take(1)
        memory.give(500)
        assert memory.free == 100

    run(check)


def test_a_cancelled_wait_takes_no_room_and_lets_those_behind_it_in() -> None:
    async def check() -> None:
        memory = Memory(100)
        assert memory.try_take(60)
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(_cancel_when_waiting, memory, scope)
                await memory.take(90)
            assert scope.cancelled_caught
        assert memory.waiting == 0
        assert memory.free == 40
        assert memory.try_take(40)

    run(check)


async def _cancel_when_waiting(memory: Memory, scope: trio.CancelScope) -> None:
    await wait_all_tasks_blocked()
    assert memory.waiting == 1
    scope.cancel()


def test_room_given_in_the_moment_of_a_cancel_is_not_lost() -> None:
    async def check() -> None:
        memory = Memory(100)
        assert memory.try_take(100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.take, 100)
            await wait_all_tasks_blocked()
            memory.give(100)
            nursery.cancel_scope.cancel()
        assert memory.free in (0, 100)  # either it was taken, or it was given back
        assert memory.waiting == 0

    run(check)


def test_what_is_overdrawn_makes_others_wait_until_it_is_given_back() -> None:
    async def check() -> None:
        memory = Memory(100)
        memory.overdraw(150)
        assert not memory.try_take(1)
        memory.give(51)
        assert memory.try_take(1)

    run(check)
