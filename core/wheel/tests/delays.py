"""A message log with its delay service, running, under a wall clock that the test sets.

    def test_it(disk: Disk) -> None:
        async def story() -> None:
            async with running(disk) as broker:
                await broker.park("s", later(b"value", 1_000))
                await broker.wait_for("s", 1)
        run(story)

Trio's time is a mock clock that leaps to the next deadline when nobody has anything to do, no thread
either, and the wall clock goes with it: a test waits for minutes in no time, and however slow the machine
is, no time passes while it works. `disk.clock.jump(ms)` sets the wall clock alone, for hours.
"""

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import trio
from crc32c import crc32c
from trio.testing import MockClock, wait_all_tasks_blocked

from kumquat.core import pools
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.writer import Appended
from kumquat.core.logs.tests.power import FakeFiles, HeldSync
from kumquat.core.records.batch import CRC_FROM, HEAD, HEAD_SIZE, OVERHEAD, read_head
from kumquat.core.records.records import Record, records_of
from kumquat.core.wheel.service import DelayOptions, DelayService, open_with_delay

START = 1_700_000_000_000
HOUR = 3_600_000

Headers = list[tuple[bytes, bytes]]
Message = tuple[bytes, Headers]
"""Value and headers."""


class Clock:
    """The wall clock: Trio's time, and what it was set by."""

    def __init__(self) -> None:
        self.set_by = START

    def now_ms(self) -> int:
        return self.set_by + int(trio.current_time() * 1000)

    def jump(self, ms: int) -> None:
        self.set_by += ms

    def jump_to(self, time: int) -> None:
        self.jump(time - self.now_ms())


class Disk:
    """A disk in memory with a clock beside it. The folder's lock is a real file."""

    def __init__(self, files: FakeFiles) -> None:
        self.files = files
        self.directory = files.directory
        self.clock = Clock()
        self.syncs_held = False

    @contextmanager
    def held_syncs(self) -> Iterator[None]:
        """Syncs of the message log do not come to an end meanwhile, and time passes all the same."""
        held = HeldSync()
        self.files.during_sync = lambda path: held(path) if path.suffix == ".log" else None
        self.syncs_held = True
        try:
            yield
        finally:
            self.files.during_sync, self.syncs_held = None, False
            held.release()

    @property
    def schedule(self) -> Path:
        return self.directory / "schedule"


_running: list[tuple[MessageService, Disk]] = []


def run(story: Callable[[], Awaitable[None]]) -> None:
    clock = MockClock()

    async def told() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pass_time, clock)
            await story()
            nursery.cancel_scope.cancel()

    trio.run(told, clock=clock)


async def _pass_time(clock: MockClock) -> None:
    while True:
        await wait_all_tasks_blocked(0.0005)
        threads = trio.to_thread.current_default_thread_limiter().borrowed_tokens + pools.at_work()
        syncing = any(
            log.log.unsynced_bytes and not log.log.fenced and not disk.syncs_held
            for log, disk in _running
        )
        left = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if not threads and not syncing and 0 < left < inf:
            clock.jump(left)


@dataclass
class Broker:
    log: MessageService
    delay: DelayService
    clock: Clock

    def subject(self, name: str) -> Subject:
        found = self.log.subjects.by_name.get(name)
        return found or self.log.create_subject_nowait(name)

    async def park(self, name: str, *messages: Message, **fields: int) -> Appended:
        """Produce a batch, durably."""
        made = batch(*messages, timestamp=self.clock.now_ms(), **fields)
        subject, data = self.subject(name), memoryview(made)
        look = subject.look(data, self.log.inflation.limit)
        appended = await self.delay.produce(subject, data, look)
        await self.log.wait_synced(appended.end)
        return appended

    async def messages(self, name: str) -> list[Record]:
        """What a consumer sees."""
        subject = self.subject(name)
        found: list[Record] = []
        at = subject.earliest
        while at < subject.readable_end:
            for data in await self.log.read(subject, at, 1 << 20, True):
                found += records_of(memoryview(data), 1 << 30)
                at = read_head(data).base_offset + read_head(data).last_offset_delta + 1
        return found

    async def wait_for(self, name: str, count: int) -> list[Record]:
        """Until a consumer sees so many messages."""
        subject = self.subject(name)
        with trio.fail_after(30 * 86_400):
            while len(found := await self.messages(name)) < count:
                await self.log.wait_for_data([subject], trio.current_time() + 3_600)
        return found

    async def wait_until_idle(self) -> None:
        """Until nothing is pending."""
        with trio.fail_after(30 * 86_400):
            while self.delay.statistics().pending:
                await self.log.wait_for_data(list(self.log.subjects), trio.current_time() + 0.5)
        await self.log.wait_synced()


@asynccontextmanager
async def running(
    disk: Disk, delay: DelayOptions | None = None, **options: int
) -> AsyncIterator[Broker]:
    """Stops cleanly at the end."""
    options.setdefault("reserve_bytes", 64 << 10)
    log_options = LogOptions(directory=disk.directory, **options)
    message_log, delay_service = open_with_delay(
        log_options, delay or DelayOptions(), disk.files, disk.clock.now_ms
    )
    log_scope = trio.CancelScope(shield=True)

    async def run_log(task_status: trio.TaskStatus[None]) -> None:
        with log_scope:
            await message_log.run(task_status)

    _running.append((message_log, disk))
    async with trio.open_nursery() as nursery:
        await nursery.start(run_log)
        try:
            async with trio.open_nursery() as inner:
                await inner.start(delay_service.run)
                yield Broker(message_log, delay_service, disk.clock)
                inner.cancel_scope.cancel()
        finally:
            _running.remove((message_log, disk))
            log_scope.cancel()


def later(value: bytes, ms: int, delay_id: bytes | None = None) -> Message:
    headers = [(b"qmq-delay-ms", b"%d" % ms)]
    return value, headers + ([(b"qmq-delay-id", delay_id)] if delay_id else [])


def at(value: bytes, due: int, delay_id: bytes | None = None) -> Message:
    headers = [(b"qmq-deliver-at", b"%d" % due)]
    return value, headers + ([(b"qmq-delay-id", delay_id)] if delay_id else [])


def plain(value: bytes) -> Message:
    return value, []


def cancel(delay_id: bytes, new_due: int | None = None) -> Message:
    headers = [(b"qmq-delay-cancel", delay_id)]
    return b"", headers + ([(b"qmq-deliver-at", b"%d" % new_due)] if new_due else [])


def batch(
    *messages: Message,
    timestamp: int = START,
    producer_id: int = -1,
    epoch: int = -1,
    first: int = -1,
) -> bytearray:
    """A batch as a client sends it."""
    records = b"".join(_record(number, *message) for number, message in enumerate(messages))
    count = len(messages)
    times = (timestamp, timestamp)
    head = HEAD.pack(
        0,
        HEAD_SIZE + len(records) - OVERHEAD,
        -1,
        2,
        0,
        0,
        count - 1,
        *times,
        producer_id,
        epoch,
        first,
        count,
    )
    data = bytearray(head + records)
    data[17:21] = crc32c(data[CRC_FROM:]).to_bytes(4, "big")
    return data


def state_of(thing: Any) -> Any:
    """All that an object of the delay service holds, as values that can be compared."""
    if isinstance(thing, dict):
        return {key: state_of(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple | array):
        return [state_of(value) for value in thing]
    if isinstance(thing, bytearray | set):
        return bytes(thing) if isinstance(thing, bytearray) else frozenset(thing)
    if not type(thing).__module__.startswith("kumquat.core.wheel"):
        return thing
    slots = [name for name in getattr(type(thing), "__slots__", ()) if hasattr(thing, name)]
    fields = {name: getattr(thing, name) for name in slots} or dict(vars(thing))
    return {name: state_of(value) for name, value in fields.items()}


def due_of(record: Record) -> int:
    return int(dict(record.headers)["qmq-due-ms"] or b"")


def _record(offset_delta: int, value: bytes, headers: Headers) -> bytes:
    fields = b"\0" + _varint(0) + _varint(offset_delta) + _field(b"key") + _field(value)
    fields += _varint(len(headers))
    fields += b"".join(_field(name) + _field(content) for name, content in headers)
    return _varint(len(fields)) + fields


def _field(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(number: int) -> bytes:
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
