"""The clock runs hours ahead and is set back: later messages come in time and once, over any restarts."""

from pathlib import Path

import pytest
import trio

from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.tests.delays import (
    HOUR,
    START,
    Broker,
    Disk,
    at,
    cancel,
    due_of,
    later,
    run,
    running,
)


async def values(broker: Broker) -> list[bytes]:
    return [record.value or b"" for record in await broker.messages("s")]


async def clock_ran_ahead(disk: Disk) -> None:
    """For three hours, in which what was due by then was delivered."""
    async with running(disk) as broker:
        await broker.park("s", at(b"early", START + 3 * HOUR - 60_000))
        disk.clock.jump(3 * HOUR)
        await broker.wait_for("s", 1)
        disk.clock.jump(-3 * HOUR)


@pytest.mark.parametrize("restarts", [0, 1, 3])
@pytest.mark.parametrize("delay", [60_000, HOUR, 2 * HOUR + HOUR // 2])
@pytest.mark.parametrize("parked", ["before a restart", "after it"])
def test_what_is_parked_when_the_clock_is_back_is_not_late(
    disk: Disk, restarts: int, delay: int, parked: str
) -> None:
    async def story() -> None:
        await clock_ran_ahead(disk)
        due = 0
        for turn in range(restarts + 2):
            async with running(disk) as broker:
                if turn == (parked == "after it"):
                    due = disk.clock.now_ms() + delay
                    await broker.park("s", at(b"one", due, b"x"), at(b"two", due + 1))
                await trio.sleep(5)
        disk.clock.jump_to(due - 10_000)
        async with running(disk) as broker:
            await trio.sleep(5)
            assert await values(broker) == [b"early"]
            assert broker.delay.statistics().pending == 2
            [one, two] = (await broker.delay.list(None, 0, 1 << 60, None, 10)).items
            assert (one.due, two.due) == (due, due + 1)
            assert (await broker.delay.show(broker.subject("s"), "x")).due == due
            records = await broker.wait_for("s", 3)
            assert all(0 <= r.timestamp - due_of(r) < 1_000 for r in records[1:])
        disk.clock.jump(5 * HOUR)
        for _ in range(2):
            async with running(disk) as broker:
                await trio.sleep(30)
                assert await values(broker) == [b"early", b"one", b"two"]
                assert broker.delay.statistics().pending == 0

    run(story)


@pytest.mark.parametrize("by", ["id", "schedule_id", "header"])
@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize("move", [False, True], ids=["cancel", "move"])
def test_what_was_parked_then_can_be_cancelled_and_moved(
    disk: Disk, by: str, restart: bool, move: bool
) -> None:
    async def change(broker: Broker) -> None:
        subject, new_due = broker.subject("s"), disk.clock.now_ms() + HOUR
        if by == "header":
            await broker.park("s", cancel(b"x", new_due if move else None))
            return
        page = await broker.delay.list(subject, 0, 1 << 60, None, 10)
        schedule_id = next(item.schedule_id for item in page.items if item.delay_id == "x")
        which = (
            {"delay_id": "x", "schedule_id": None}
            if by == "id"
            else {"delay_id": None, "schedule_id": schedule_id}
        )
        if move:
            shown = await broker.delay.move(subject, **which, due=new_due)
        else:
            shown = await broker.delay.cancel(subject, **which)
        assert shown.status == ("moved" if move else "cancelled")

    async def story() -> None:
        await clock_ran_ahead(disk)
        async with running(disk) as broker:
            await broker.park("s", later(b"one", 30_000, b"x"), later(b"two", 30_000))
            await broker.delay.list(None, 0, 1 << 60, None, 10)
            if not restart:
                await trio.sleep(5)
                await change(broker)
        for _ in range(2):
            async with running(disk) as broker:
                await trio.sleep(5)
                if restart:
                    await change(broker)
                    break
        async with running(disk) as broker:
            await trio.sleep(60)
            assert await values(broker) == [b"early", b"two"]
            disk.clock.jump(HOUR)
            await trio.sleep(30)
            assert await values(broker) == [b"early", b"two", *([b"one"] if move else [])]
        disk.clock.jump(5 * HOUR)
        async with running(disk) as broker:
            await trio.sleep(30)
            assert await values(broker) == [b"early", b"two", *([b"one"] if move else [])]
            assert broker.delay.statistics().pending == 0

    run(story)


def test_a_clock_that_goes_to_and_fro_over_restarts_and_kills_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        disk, expected, number = Disk(FakeFiles(tmp_path)), list[bytes](), 0
        for jump in (3, -3, 1, -1, 2, 5, -6, 1, 1, -2, 4):
            async with running(disk) as broker:
                for delay in (0, 1_000, 20 * 60_000, 90 * 60_000):
                    value = b"%d" % number
                    expected.append(value)
                    number += 1
                    await broker.park("s", later(value, delay))
                await trio.sleep(3)
                disk.clock.jump(jump * HOUR)
                await trio.sleep(3)
                if number % 8:
                    clock = disk.clock
                    disk = Disk(disk.files.after_kill())
                    disk.clock = clock
        disk.clock.jump(20 * HOUR)
        async with running(disk) as broker:
            await broker.wait_until_idle()
            assert sorted(await values(broker)) == sorted(expected)
            records = await broker.messages("s")
        assert records

    run(story)
