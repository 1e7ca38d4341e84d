"""Rounds of group commit beside the loop that are told of twice, never, or wrongly."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from kumquat.core.logs.flushing.flusher import Flusher

SECONDS = 30


class Round:
    """A job that notes who did it."""

    def __init__(self, *, fails: Exception | None = None) -> None:
        self.fails = fails
        self.done: list[str] = []

    def run(self) -> None:
        self.done.append(threading.current_thread().name)
        if self.fails is not None:
            raise self.fails


@contextmanager
def flusher() -> Iterator[Flusher[Round]]:
    made: Flusher[Round] = Flusher()
    try:
        yield made
    finally:
        made.close()


async def finished(rounds: Flusher[Round], job: Round) -> OSError | None:
    rounds.start_nowait(job)
    with trio.fail_after(SECONDS):
        done, error, _ = await rounds.wait_done()
    assert done is job
    return error


def test_each_round_is_told_of_once_and_never_runs_on_the_loop() -> None:
    async def rounds() -> None:
        with flusher() as syncing:
            for _ in range(5):
                job = Round()
                assert await finished(syncing, job) is None
                assert job.done == ["kumquat-flusher"]

    trio.run(rounds)


def test_a_stop_does_not_leave_a_round_behind() -> None:
    syncing: Flusher[Round] = Flusher()
    job = Round()
    syncing.start_nowait(job)
    assert [done[:2] for done in syncing.close()] == [(job, None)]
    assert job.done == ["kumquat-flusher"]


def test_a_round_that_fails_is_told_with_its_error() -> None:
    async def rounds() -> None:
        with flusher() as syncing:
            failed = OSError(errno.ENOSPC, "full")
            assert await finished(syncing, Round(fails=failed)) is failed
            assert await finished(syncing, Round()) is None

    trio.run(rounds)


def test_a_mistake_of_ours_does_not_count_as_synced() -> None:
    async def rounds() -> None:
        with flusher() as syncing:
            error = await finished(syncing, Round(fails=MemoryError("no room")))
            assert error is not None
            assert error.errno == errno.EIO
            assert await finished(syncing, Round()) is None

    trio.run(rounds)
