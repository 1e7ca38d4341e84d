"""Threads: one kind of work does not starve another."""

from __future__ import annotations

import threading

import trio

from kumquat.core.pools import DELIVER, READ, THREADS, at_work, in_thread


def test_reads_that_hang_leave_deliveries_their_threads() -> None:
    go = threading.Event()

    async def check() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(THREADS[READ] + 5):
                nursery.start_soon(in_thread, READ, go.wait, 60)
            await trio.testing.wait_all_tasks_blocked()
            assert at_work() == THREADS[READ]
            with trio.fail_after(30):
                assert await in_thread(DELIVER, lambda: 7) == 7
            go.set()
        assert at_work() == 0

    trio.run(check)
