"""An append that fails must change nothing: else a message is lost, comes early, or comes twice."""

import errno
from collections import Counter
from pathlib import Path
from typing import Any, Self

import pytest
import trio
import trio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from kumquat.core import pools
from kumquat.core.errors import StorageError
from kumquat.core.logs.tests.power import FakeFiles, Fault
from kumquat.core.wheel.schedule import delivery_queue
from kumquat.core.wheel.schedule.batch_builder import build_batches
from kumquat.core.wheel.schedule.schedule import Schedule
from kumquat.core.wheel.tests.delays import (
    Broker,
    Disk,
    Message,
    cancel,
    due_of,
    later,
    run,
    running,
    state_of,
)

MOST_MS = 30_000
SOON_MS = 2_000
"""What is due earlier may be delivered before a cancel is written."""


def schedule_of(broker: Broker) -> Schedule:
    listener = broker.log.log.listener
    assert isinstance(listener, Schedule)
    return listener


async def settled() -> None:
    """Until no task has anything to do at this moment: no delivery is under way."""
    await wait_all_tasks_blocked()
    while pools.at_work():
        await trio.lowlevel.checkpoint()
        await wait_all_tasks_blocked()


class Story:
    """Messages with delay ids that are parked, cancelled and moved; some of the writes fail."""

    def __init__(self, disk: Disk, broker: Broker) -> None:
        self.disk = disk
        self.broker = broker
        self.due: dict[bytes, int] = {}
        """When the message with this id is due."""
        self.cancelled: set[bytes] = set()

    async def step(self, what: str, delay_ms: int, fails: bool) -> None:
        await settled()
        now = self.broker.clock.now_ms()
        waiting = [name for name, due in self.due.items() if due > now + SOON_MS]
        waiting = [name for name in waiting if name not in self.cancelled]
        name = waiting[0] if waiting and what != "park" else b"%d" % len(self.due)
        if what == "pass":
            await trio.sleep(delay_ms / 1_000)
        elif what == "park":
            if await self._park(later(name, delay_ms, name), fails):
                self.due[name] = now + delay_ms
        elif waiting and what.endswith("cancel"):
            if await self._change(name, None, fails, by_batch=what.startswith("batch")):
                self.cancelled.add(name)
        elif waiting:
            new_due = now + SOON_MS + delay_ms
            if await self._change(name, new_due, fails, by_batch=what.startswith("batch")):
                self.due[name] = new_due

    async def _change(self, name: bytes, due: int | None, fails: bool, *, by_batch: bool) -> bool:
        if by_batch:
            return await self._park(cancel(name, due), fails)
        subject, delay = self.broker.subject("s"), self.broker.delay
        with Attempt(self.disk, self.broker, fails) as attempt:
            if due is None:
                await delay.cancel(subject, delay_id=name.decode())
            else:
                await delay.move(subject, delay_id=name.decode(), due=due)
        return attempt.worked

    async def _park(self, message: Message, fails: bool) -> bool:
        with Attempt(self.disk, self.broker, fails) as attempt:
            await self.broker.park("s", message)
        return attempt.worked

    async def check(self) -> None:
        """Each message once, at its time."""
        await self.broker.wait_until_idle()
        found = await self.broker.messages("s")
        expected = {name: due for name, due in self.due.items() if name not in self.cancelled}
        assert Counter(record.value for record in found) == Counter(expected.keys())
        for record in found:
            assert due_of(record) == expected[record.value or b""]
            assert record.timestamp >= due_of(record)


class Attempt:
    """Something that is written. If it is to fail, it must, and leave all as it was."""

    def __init__(self, disk: Disk, broker: Broker, fails: bool) -> None:
        self._files = disk.files
        self._schedule = schedule_of(broker)
        self._fails = fails
        self.worked = False

    def __enter__(self) -> Self:
        if self._fails:
            self._before = state_of(self._schedule)
            self._files.fail(Fault("pwritev", errno.EIO, name=".log", times=None))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if not self._fails:
            self.worked = kind is None
            return False
        self._files.heal()
        assert kind is not None
        assert issubclass(kind, StorageError)
        assert state_of(self._schedule) == self._before
        return True


WHAT = st.sampled_from(["park", "park", "cancel", "move", "batch cancel", "batch move", "pass"])
STEPS = st.lists(st.tuples(WHAT, st.integers(0, MOST_MS), st.booleans()), min_size=3, max_size=25)


def test_a_park_cancel_or_move_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    folders = iter(range(1_000_000))

    @settings(max_examples=25, deadline=None)
    @given(STEPS)
    def story_of(steps: list[tuple[str, int, bool]]) -> None:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        disk = Disk(FakeFiles(folder))

        async def story() -> None:
            async with running(disk) as broker:
                broker.subject("s")
                await broker.log.wait_synced()
                told = Story(disk, broker)
                for step in steps:
                    await told.step(*step)
                await told.check()

        run(story)

    story_of()


def test_a_delivery_that_cannot_be_written_changes_nothing(disk: Disk) -> None:
    """It has several subjects, so some of it is staged before the write fails."""
    values = [b"%d" % i + bytes(100) for i in range(40)]

    async def story() -> None:
        async with running(disk) as broker:
            for name in ("a", "b", "c"):
                await broker.park(
                    name, *(later(value, 1_000 + i) for i, value in enumerate(values))
                )
            before = state_of(schedule_of(broker))
            disk.files.fail(Fault("pwritev", errno.ENOSPC, name=".log", times=None))
            await trio.sleep(3.5)
            assert broker.delay.statistics().failing is not None
            failed_once = state_of(schedule_of(broker))
            await trio.sleep(3)
            assert state_of(schedule_of(broker)) == failed_once
            assert before.pop("wheel")["count"] == failed_once.pop("wheel")["count"]
            assert failed_once == before, "only entries have left the wheel, to be delivered"
            disk.files.heal()
            await broker.wait_until_idle()
            for name in ("a", "b", "c"):
                found = await broker.messages(name)
                assert [record.value for record in found] == values
                assert all(record.timestamp >= due_of(record) for record in found)

    run(story)


def test_no_memory_to_build_batches_delays_messages_and_does_not_end_the_broker(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [3]

    def fails_at_first(*args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise MemoryError
        return build_batches(*args)

    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("a", later(b"a", 1_000))
            await broker.park("b", later(b"b", 1_000))
            with monkeypatch.context() as patch:
                patch.setattr(delivery_queue, "build_batches", fails_at_first)
                await trio.sleep(1.5)
                assert "no memory" in (broker.delay.statistics().failing or "")
                await broker.wait_until_idle()
                assert not left[0]
            for name in ("a", "b"):
                assert [record.value for record in await broker.messages(name)] == [name.encode()]

    run(story)
