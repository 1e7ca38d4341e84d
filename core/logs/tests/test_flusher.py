"""Rounds of group commit beside the loop: by the kernel, by the thread where the kernel refuses."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from core.logs.files import RealFiles
from core.logs.flusher import Flusher
from core.logs.kernel_sync import KernelSync

SECONDS = 30


class Round:
    """A job on one file that notes who did what."""

    def __init__(self, fd: int | None, *, fails: Exception | None = None) -> None:
        self.fd = fd
        self.fails = fails
        self.done: list[str] = []

    def run(self) -> None:
        self.done.append(threading.current_thread().name)
        self.synced()

    def only_sync(self) -> int | None:
        return self.fd

    def synced(self) -> None:
        self.done.append("synced")
        if self.fails is not None:
            raise self.fails


class NoKernel(RealFiles):
    def kernel_sync(self) -> None:
        """As where AIO is forbidden."""


@contextmanager
def flusher(files: RealFiles) -> Iterator[Flusher[Round]]:
    made: Flusher[Round] = Flusher(files)
    try:
        yield made
    finally:
        made.close()


def opened(tmp_path: Path) -> int:
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"frames", 0)
    return fd


async def finished(rounds: Flusher[Round], job: Round) -> OSError | None:
    rounds.start_nowait(job)
    with trio.fail_after(SECONDS):
        done, error = await rounds.wait_done()
    assert done is job
    return error


@pytest.mark.parametrize("files", [RealFiles(), NoKernel()])
def test_each_round_is_told_of_once_whoever_does_it(files: RealFiles, tmp_path: Path) -> None:
    fd = opened(tmp_path)

    async def rounds() -> None:
        with flusher(files) as syncing:
            for job in [Round(fd), Round(None), Round(fd), Round(fd), Round(None)]:
                assert await finished(syncing, job) is None
                assert job.done.count("synced") == 1
                by_thread = job.fd is None or isinstance(files, NoKernel)
                assert ("kumquat-flusher" in job.done) is by_thread

    trio.run(rounds)


def test_a_file_that_the_kernel_refuses_is_synced_by_the_thread() -> None:
    reading, writing = os.pipe()  # has no fsync

    async def rounds() -> None:
        with flusher(RealFiles()) as syncing:
            for _ in range(3):
                job = Round(writing)
                assert await finished(syncing, job) is None
                assert job.done == ["kumquat-flusher", "synced"]

    trio.run(rounds)
    os.close(reading)
    os.close(writing)


def test_a_stop_does_not_leave_a_round_behind(tmp_path: Path) -> None:
    fd = opened(tmp_path)
    for files in (RealFiles(), NoKernel()):
        syncing: Flusher[Round] = Flusher(files)
        job = Round(fd)
        syncing.start_nowait(job)
        assert syncing.close() == [(job, None)]
        assert job.done[-1] == "synced"


@pytest.mark.parametrize("files", [RealFiles(), NoKernel()])
def test_a_mistake_of_ours_does_not_count_as_synced(files: RealFiles, tmp_path: Path) -> None:
    fd = opened(tmp_path)

    async def rounds() -> None:
        with flusher(files) as syncing:
            error = await finished(syncing, Round(fd, fails=MemoryError("no room")))
            assert error is not None
            assert error.errno == errno.EIO
            assert await finished(syncing, Round(fd)) is None

    trio.run(rounds)


@pytest.mark.parametrize(
    ("result", "code"),
    [(0, None), ((1 << 64) - errno.EIO, errno.EIO), (-errno.ENOSPC, errno.ENOSPC)],
)
def test_a_sync_that_the_kernel_failed_is_not_taken_for_one_that_succeeded(
    result: int, code: int | None
) -> None:
    """The binding gives a negative errno as an unsigned number, as seen with a full block device."""

    class Ended:
        def poll(self) -> None:
            raise BlockingIOError

        def process_events(self, most: int, least: int, seconds: int) -> int:
            told._results.append(result)
            return 1

    context: Any = Ended()
    told = KernelSync(context)
    assert told.finished()
    assert (told.error.errno if told.error else None) == code


def test_a_kernel_that_does_not_tell_how_a_sync_went_leaves_nobody_waiting() -> None:
    class Silent:
        def poll(self) -> None:
            raise BlockingIOError

        def process_events(self, most: int, least: int, seconds: int) -> int:
            raise SystemError("bad address")

    context: Any = Silent()
    told = KernelSync(context)
    assert told.finished()
    assert told.error is not None
    assert "bad address" in str(told.error)
