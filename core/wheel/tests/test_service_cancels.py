"""Cancelling and moving: by header in any batch, by hand, wherever the message is at that moment."""

import pytest
import trio

from kumquat.core.errors import InvalidRecord
from kumquat.core.wheel.service import DelayOptions
from kumquat.core.wheel.tests.delays import (
    HOUR,
    START,
    Broker,
    Disk,
    at,
    cancel,
    due_of,
    later,
    plain,
    run,
    running,
)

NEAR = 20_000
FAR = 50 * HOUR


async def values_after(broker: Broker, ms: int) -> list[bytes]:
    """What has arrived in `s` when so much time has passed and all that is due is delivered."""
    broker.clock.jump(ms)
    await trio.sleep(3)
    return [record.value or b"" for record in await broker.messages("s")]


async def status(broker: Broker, delay_id: str) -> str:
    return (await broker.delay.show(broker.subject("s"), delay_id)).status


@pytest.mark.parametrize("delay", [NEAR, FAR], ids=["in the wheel", "beyond it"])
@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize("by", ["header", "id", "schedule_id"])
def test_a_cancelled_message_never_arrives(disk: Disk, delay: int, restart: bool, by: str) -> None:
    async def cancel_it(broker: Broker) -> None:
        subject = broker.subject("s")
        if by == "header":
            await broker.park("s", cancel(b"x"))
        else:
            page = await broker.delay.list(subject, 0, 1 << 60, None, 10)
            assert [item.delay_id for item in page.items] == ["x", "y"]
            schedule_id = page.items[0].schedule_id if by == "schedule_id" else None
            delay_id = "x" if by == "id" else None
            shown = await broker.delay.cancel(subject, delay_id=delay_id, schedule_id=schedule_id)
            assert shown.status == "cancelled"
            again = await broker.delay.cancel(subject, delay_id=delay_id, schedule_id=schedule_id)
            assert again.status in ("cancelled", "delivered", "unknown")
        assert await broker.delay.count(subject, 0, 1 << 60) == 1
        assert await broker.delay.count(subject, 1, 1 << 60) == 1
        assert await status(broker, "x") == "cancelled"
        assert broker.delay.statistics().cancelled == 1

    async def story() -> None:
        due = START + delay
        async with running(disk) as broker:
            await broker.park("s", at(b"one", due, b"x"), at(b"two", due, b"y"))
            assert await status(broker, "x") == "pending"
            if not restart:
                await cancel_it(broker)
        if restart:
            async with running(disk) as broker:
                await cancel_it(broker)
        async with running(disk) as broker:
            assert await status(broker, "x") == "cancelled"
            assert await values_after(broker, delay) == [b"two"]
            assert await status(broker, "y") == "delivered"
            assert broker.delay.statistics().pending == 0

    run(story)


@pytest.mark.parametrize("begin", [NEAR, FAR], ids=["from the wheel", "from beyond"])
@pytest.mark.parametrize("end", [NEAR * 2, FAR + HOUR], ids=["to the wheel", "to beyond"])
@pytest.mark.parametrize("by", ["header", "id", "schedule_id"])
def test_a_moved_message_arrives_once_at_its_new_time(
    disk: Disk, begin: int, end: int, by: str
) -> None:
    async def story() -> None:
        new_due = START + end
        async with running(disk) as broker:
            await broker.park("s", at(b"one", START + begin, b"x"))
            subject = broker.subject("s")
            if by == "header":
                await broker.park("s", cancel(b"x", new_due))
            elif by == "id":
                shown = await broker.delay.move(subject, delay_id="x", due=new_due)
                assert (shown.status, shown.due) == ("moved", new_due)
            else:
                page = await broker.delay.list(subject, 0, 1 << 60, None, 10)
                await broker.delay.move(subject, schedule_id=page.items[0].schedule_id, due=new_due)
            assert await status(broker, "x") == "moved"
            statistics = broker.delay.statistics()
            assert (statistics.pending, statistics.moved, statistics.scheduled) == (1, 1, 1)
        async with running(disk) as broker:
            page = await broker.delay.list(broker.subject("s"), 0, 1 << 60, None, 10)
            assert [(item.due, item.delay_id) for item in page.items] == [(new_due, "x")]
            assert await values_after(broker, end) == [b"one"]
            [record] = await broker.messages("s")
            assert due_of(record) == new_due
            assert await values_after(broker, FAR) == [b"one"]
            assert broker.delay.statistics().pending == 0

    run(story)


def test_a_cancel_that_comes_too_late_is_told_so(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"one", 10, b"x"))
            await broker.wait_for("s", 1)
            with pytest.raises(InvalidRecord, match=r"record 0.*'x' has been delivered"):
                await broker.park("s", cancel(b"x"))
            with pytest.raises(InvalidRecord, match="nothing was moved"):
                await broker.park("s", cancel(b"x", START + HOUR))
            await broker.park("s", cancel(b"x"), plain(b"p"))
            assert await status(broker, "x") == "delivered"
            shown = await broker.delay.cancel(broker.subject("s"), delay_id="x")
            assert shown.status == "delivered"
            assert await values_after(broker, HOUR) == [b"one", b"p"]

    run(story)


def test_a_cancel_that_comes_first_is_remembered_for_a_while_and_over_a_restart(disk: Disk) -> None:
    async def story() -> None:
        options = DelayOptions(cancel_remember_ms=60_000)
        async with running(disk, options) as broker:
            await broker.park("s", cancel(b"x"))
            await broker.park("s", cancel(b"y"))
            assert await status(broker, "x") == "remembered"
        async with running(disk, options) as broker:
            assert await status(broker, "x") == "remembered"
            await broker.park("s", later(b"one", 1_000, b"x"))
            assert await status(broker, "x") == "cancelled"
            await broker.park("s", later(b"two", 1_000, b"x"))
            disk.clock.jump(61_000)
            assert await status(broker, "y") == "unknown"
            await broker.park("s", later(b"three", 1_000, b"y"))
            assert await values_after(broker, 1_000) == [b"two", b"three"]
            assert broker.delay.statistics().pending == 0

    run(story)


def test_within_a_batch_a_cancel_is_about_what_stands_before_it(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"old", NEAR, b"a"))
            await broker.park("s", cancel(b"a"), later(b"new", NEAR, b"a"))
            assert await status(broker, "a") == "pending"
            await broker.park("s", later(b"gone", NEAR, b"b"), cancel(b"b"), plain(b"p"))
            assert await status(broker, "b") == "cancelled"
            await broker.park("s", later(b"moved", NEAR, b"c"), cancel(b"c", START + 2 * HOUR))
            assert await status(broker, "c") == "moved"
            await broker.park("s", later(b"twice", NEAR, b"d"))
            await broker.park("s", cancel(b"d"), cancel(b"d"))
            await broker.park("s", later(b"moved, cancelled", NEAR, b"e"))
            await broker.park("s", cancel(b"e", START + HOUR), cancel(b"e"))
            await broker.park("s", later(b"moved twice", NEAR, b"f"))
            await broker.park("s", cancel(b"f", START + 5 * HOUR), cancel(b"f", START + HOUR))
            assert broker.delay.statistics().pending == 3
        async with running(disk) as broker:
            assert await status(broker, "e") == "cancelled"
            assert await values_after(broker, NEAR) == [b"p", b"new"]
            assert await values_after(broker, HOUR) == [b"p", b"new", b"moved twice"]
            assert (await values_after(broker, HOUR))[3:] == [b"moved"]
            assert (await values_after(broker, 9 * HOUR))[4:] == []
            assert broker.delay.statistics().pending == 0

    run(story)


def test_an_id_is_the_subjects_own_and_stands_for_its_newest_message(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"one", NEAR, b"x"))
            await broker.park("t", later(b"other", NEAR, b"x"))
        async with running(disk) as broker:
            await broker.park("s", later(b"two", NEAR, b"x"))
            await broker.park("s", cancel(b"x"))
            assert (await broker.delay.show(broker.subject("t"), "x")).status == "pending"
            assert await values_after(broker, NEAR) == [b"one"]
            assert len(await broker.messages("t")) == 1

    run(story)


def test_a_message_at_hand_can_still_be_cancelled(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"one", 400, b"x"), later(b"two", 400))
            await trio.sleep(0.2)
            await broker.park("s", cancel(b"x"))
            assert await values_after(broker, 1_000) == [b"two"]

    run(story)


def test_what_is_moved_beyond_the_longest_delay_is_refused(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk, DelayOptions(max_ms=HOUR)) as broker:
            await broker.park("s", later(b"one", NEAR, b"x"))
            subject = broker.subject("s")
            with pytest.raises(InvalidRecord, match=r"delay\.max\.ms"):
                await broker.delay.move(subject, delay_id="x", due=START + 3 * HOUR)
            shown = await broker.delay.move(subject, delay_id="x", due=5)
            assert shown.status == "moved"
            assert await values_after(broker, 0) == [b"one"]

    run(story)


def test_what_is_not_there_is_unknown(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"one", NEAR, b"x"))
            subject = broker.subject("s")
            assert await status(broker, "nobody") == "unknown"
            for schedule_id in (0, 1, 10**15):
                assert (
                    await broker.delay.cancel(subject, schedule_id=schedule_id)
                ).status == "unknown"
            assert (await broker.delay.cancel(subject, delay_id="no")).status == "remembered"
            assert broker.delay.statistics().pending == 1

    run(story)


def test_show_tells_what_is_in_a_pending_message(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", later(b"one", NEAR, b"x"))
            shown = await broker.delay.show(broker.subject("s"), "x", content=True)
            assert (shown.key, shown.value, shown.status) == (b"key", b"one", "pending")
            assert shown.created is not None

    run(story)
