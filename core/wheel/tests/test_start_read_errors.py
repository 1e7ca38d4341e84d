"""A disk that cannot read the log for a while when the broker starts: no delayed message is lost, none
comes twice, and none comes that was cancelled."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from kumquat.core.errors import StartError, StorageError
from kumquat.core.logs.messages.format import (
    CANCEL,
    DELIVERED,
    PARKED,
    FrameHeader,
    parse_header,
)
from kumquat.core.wheel.tests.delays import (
    HOUR,
    START,
    Broker,
    Disk,
    at,
    cancel,
    later,
    plain,
    run,
    running,
)
from kumquat.core.wheel.tests.test_service_read_errors import BadFiles, values

PADDING = bytes(9000)
"""No page holds what lies before it and what lies behind it."""


class Machine:
    """A disk, and what a kill leaves on it."""

    def __init__(self, tmp_path: Path) -> None:
        self.files = BadFiles(tmp_path)
        self.disk = Disk(self.files)

    async def kill(self) -> None:
        """What is on the disk now is what the next broker finds; the stop of this one is not."""
        left = self.files.after_kill()
        clock = self.disk.clock
        self.files = BadFiles(left.directory, left._root)
        self.disk = Disk(self.files)
        self.disk.clock = clock

    def spoil(self, kind: int, number: int = 0) -> None:
        """Of a frame of this kind only the header can be read."""
        [path] = [
            self.disk.schedule.parent / "messages" / name
            for name in self.files.listdir(self.disk.schedule.parent / "messages")
            if name.endswith(".log")
        ]
        content, position, found = self.files.content(path), 0, list[FrameHeader]()
        while isinstance(header := parse_header(content, position, position), FrameHeader):
            found += [header] if header.kind == kind else []
            position = header.end
        bad = found[number]
        self.files.is_bad = lambda of, begin, end: (
            of == path and begin < bad.end and bad.end - 1 < end
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def padding(broker: Broker) -> None:
    await broker.park("s", plain(PADDING))


async def arrived(broker: Broker) -> list[bytes]:
    return sorted(value for value in await values(broker) if value != PADDING)


@pytest.fixture
def parked(machine: Machine) -> Machine:
    """Three messages for later, the second in a page that cannot be read at the next start."""

    async def story() -> None:
        async with running(machine.disk) as broker:
            await padding(broker)
            await broker.park("s", at(b"one", START + 2 * HOUR))
            await padding(broker)
            await broker.park("s", at(b"two", START + 2 * HOUR, b"id-2"))
            await padding(broker)
            await broker.park("s", at(b"three", START + 2 * HOUR, b"id-3"))
            await padding(broker)
            await machine.kill()

    run(story)
    machine.spoil(PARKED, 1)
    return machine


def test_messages_that_cannot_be_read_at_a_start_come_when_they_can_be(parked: Machine) -> None:
    async def story() -> None:
        async with running(parked.disk) as broker:
            parked.disk.clock.jump(3 * HOUR)
            await trio.sleep(60)
            statistics = broker.delay.statistics()
            assert statistics.delivered == 2, "only what it touches waits"
            assert statistics.failing is not None
            parked.files.is_bad = None
            await trio.sleep(120)
            assert await arrived(broker) == [b"one", b"three", b"two"]
            statistics = broker.delay.statistics()
            assert (statistics.pending, statistics.damaged) == (0, 0)
            assert statistics.failing is None
        parked.disk.clock.jump(HOUR)
        async with running(parked.disk) as broker:
            await trio.sleep(60)
            assert await arrived(broker) == [b"one", b"three", b"two"], "none twice"

    run(story)


def test_messages_that_cannot_be_read_at_two_starts_come_when_they_can_be(parked: Machine) -> None:
    """The second may be refused: where each frame begins is no longer known when a segment is sealed."""

    async def story() -> None:
        async with running(parked.disk):
            await trio.sleep(5)
        with suppress(StartError):
            async with running(parked.disk):
                await trio.sleep(5)
        parked.files.is_bad = None
        async with running(parked.disk) as broker:
            assert broker.delay.statistics().pending == 3
            parked.disk.clock.jump(3 * HOUR)
            await trio.sleep(60)
            assert await arrived(broker) == [b"one", b"three", b"two"]
            assert broker.delay.statistics().pending == 0

    run(story)


def test_a_delay_id_that_may_lie_in_what_cannot_be_read_is_not_taken_for_unknown(
    parked: Machine,
) -> None:
    """Else its cancel would wait for a message that is there, and the message would arrive."""

    async def story() -> None:
        async with running(parked.disk) as broker:
            with pytest.raises(StorageError, match="try again"):
                await broker.park("s", cancel(b"id-2"))
            await broker.park("s", cancel(b"id-3"))
            parked.files.is_bad = None
            await trio.sleep(10)
            assert broker.delay.statistics().pending == 2
            await broker.park("s", cancel(b"id-2"))
            assert broker.delay.statistics().pending == 1
            parked.disk.clock.jump(3 * HOUR)
            await trio.sleep(60)
            assert await arrived(broker) == [b"one"]

    run(story)


def test_messages_that_were_delivered_count_once_when_their_frame_can_be_read_again(
    machine: Machine,
) -> None:
    async def story() -> None:
        async with running(machine.disk) as broker:
            await padding(broker)
            await broker.park("s", later(b"one", 1_000), at(b"two", START + 2 * HOUR))
            await padding(broker)
            await broker.park("s", at(b"three", START + 2 * HOUR))
            await broker.wait_for("s", 3)
            await padding(broker)
            await machine.kill()
        machine.spoil(PARKED, 0)
        async with running(machine.disk) as broker:
            machine.files.is_bad = None
            await trio.sleep(10)
            assert broker.delay.statistics().pending == 2
            machine.disk.clock.jump(3 * HOUR)
            await trio.sleep(60)
            assert await arrived(broker) == [b"one", b"three", b"two"]

    run(story)


async def deliver_some(broker: Broker) -> None:
    await broker.park("s", later(b"gone", 1_000))
    await padding(broker)
    await trio.sleep(2)
    assert await arrived(broker) == [b"gone"]


async def cancel_some(broker: Broker) -> None:
    await broker.park("s", later(b"never", 30_000, b"id"), later(b"gone", 30_000))
    await padding(broker)
    await broker.park("s", cancel(b"id"))


@pytest.mark.parametrize(("kind", "before"), [(DELIVERED, deliver_some), (CANCEL, cancel_some)])
def test_a_start_is_refused_while_it_cannot_be_read_what_must_not_come(
    machine: Machine, kind: int, before: Callable[[Broker], Awaitable[None]]
) -> None:
    async def story() -> None:
        async with running(machine.disk) as broker:
            await padding(broker)
            await before(broker)
            await padding(broker)
            await machine.kill()
        machine.spoil(kind)
        for _ in range(2):
            with pytest.raises(StartError, match=r"\.log: .*heck the disk.*start again.*dd if="):
                async with running(machine.disk):
                    pass
        machine.files.is_bad = None
        async with running(machine.disk) as broker:
            await trio.sleep(60)
            assert await arrived(broker) == [b"gone"]

    run(story)
