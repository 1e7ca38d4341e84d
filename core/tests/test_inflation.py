"""Opening batches off the loop: too many at a time, too much memory, honest ones behind all others."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Iterator
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kumquat.core.errors import InvalidRecord, WouldBlock
from kumquat.core.inflation import QUICK, QUICK_ROOM, QUICK_THREADS, Inflation
from kumquat.core.records.batch import HEAD_SIZE, check
from kumquat.core.records.compression import inflate
from kumquat.core.records.frames import GZIP
from kumquat.core.records.marks import survey
from kumquat.core.records.tests.test_batch import built

MIB = 1 << 20


class Gate:
    """Works that wait in their threads until they are let go, and count how many are there."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()
        self._entered = threading.Semaphore(0)

    def work(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self._entered.release()
        assert self.open.wait(30)
        with self._lock:
            self.inside -= 1

    async def wait_inside(self, count: int) -> None:
        for _ in range(count):
            assert await trio.to_thread.run_sync(partial(self._entered.acquire, timeout=30))


def test_few_batches_are_opened_at_a_time() -> None:
    async def main() -> None:
        inflation, gate = Inflation(64 * MIB), Gate()
        async with trio.open_nursery() as nursery:
            for size in [MIB, 2 * QUICK] * 10:
                nursery.start_soon(inflation.run_sized, gate.work, size, 1)
            await gate.wait_inside(QUICK_THREADS + 1)
            gate.open.set()
        assert gate.most == QUICK_THREADS + 1

    trio.run(main)


def test_a_small_batch_does_not_wait_behind_large_ones() -> None:
    async def main() -> None:
        inflation, gate = Inflation(64 * MIB), Gate()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(inflation.run_sized, gate.work, 60 * MIB, 64 * MIB)
            await gate.wait_inside(1)
            assert await inflation.run(lambda most: most, MIB) == QUICK
            gate.open.set()

    trio.run(main)


def test_a_work_that_holds_much_keeps_nobody_in_the_quick_lane_waiting() -> None:
    """Two kilobytes may ask for a window of a hundred megabytes."""

    async def main() -> None:
        inflation, gate = Inflation(64 * MIB), Gate()
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(inflation.run, lambda _: gate.work(), 128 * MIB)
            await gate.wait_inside(1)
            for _ in range(5):
                assert await inflation.run(lambda most: most, QUICK_ROOM) == QUICK
            gate.open.set()
        assert gate.most == 1

    trio.run(main)


def test_what_is_larger_than_it_seemed_is_begun_again_in_the_slow_lane() -> None:
    async def main() -> None:
        asked: list[int | None] = []

        def work(most: int | None) -> str:
            asked.append(most)
            if most is not None:
                raise WouldBlock
            return "done"

        assert await Inflation(64 * MIB).run(work, MIB) == "done"
        assert asked == [QUICK, None]

    trio.run(main)


def test_room_is_taken_before_a_thread_begins_and_given_back_after_an_error() -> None:
    async def main() -> None:
        inflation = Inflation(10 * MIB)
        room = inflation.memory.limit
        assert inflation.memory.try_take(room)
        began = threading.Event()

        async def refused() -> None:
            with pytest.raises(InvalidRecord, match="no"):
                await inflation.run_sized(partial(_refuse, began), MIB, MIB)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            await wait_all_tasks_blocked()
            assert not began.is_set()
            inflation.memory.give(room)
        assert inflation.memory.free == room

    trio.run(main)


def _refuse(began: threading.Event) -> None:
    began.set()
    raise InvalidRecord("no")


@pytest.fixture
def traced() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("traced")
def test_refused_bombs_are_freed_without_the_collector() -> None:
    bomb = memoryview(built(bytes(40 * MIB), codec=GZIP))
    head = check(bomb)

    async def main() -> None:
        inflation = Inflation(16 * MIB)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            with pytest.raises(InvalidRecord):
                await inflation.run(partial(survey, bomb, head, inflation.limit), MIB)
            work = partial(inflate, GZIP, bomb[HEAD_SIZE:], inflation.limit)
            with pytest.raises(InvalidRecord):
                await inflation.run_sized(work, 40 * MIB, MIB)
        assert tracemalloc.get_traced_memory()[0] - before < MIB

    trio.run(main)
