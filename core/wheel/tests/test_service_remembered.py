"""Cancels and moves that come before their message wait for it: for a while, and not too many of them."""

import pytest
import trio

from kumquat.core.errors import InvalidRecord
from kumquat.core.wheel.files.manifest import load
from kumquat.core.wheel.schedule import delay_ids
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

SOON = START + 300_000
OPTIONS = DelayOptions(cancel_remember_ms=600_000)


async def status(broker: Broker, delay_id: str = "x") -> str:
    return (await broker.delay.show(broker.subject("s"), delay_id)).status


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize("by", ["alone", "with others", "by hand"])
def test_a_move_that_overtakes_its_message_moves_it(disk: Disk, by: str, restart: bool) -> None:
    async def message_comes(broker: Broker) -> None:
        assert await status(broker) == "remembered"
        await broker.park("s", at(b"one", START + HOUR, b"x"), plain(b"q"))
        assert await status(broker) == "moved"
        assert broker.delay.statistics().pending == 1

    async def story() -> None:
        async with running(disk, OPTIONS) as broker:
            if by == "alone":
                await broker.park("s", cancel(b"x", SOON))
            elif by == "with others":
                await broker.park("s", plain(b"p"), cancel(b"x", SOON), plain(b"r"))
            else:
                shown = await broker.delay.move(broker.subject("s"), delay_id="x", due=SOON)
                assert shown.status == "remembered"
            if not restart:
                await message_comes(broker)
        async with running(disk, OPTIONS) as broker:
            if restart:
                await message_comes(broker)
            await trio.sleep(400)
            [one] = [record for record in await broker.messages("s") if record.value == b"one"]
            assert due_of(one) == SOON
            assert 0 <= one.timestamp - SOON < 1_000
            await broker.park("s", at(b"two", START + HOUR, b"x"))
            assert await status(broker) == "pending", "it was about one message"
        disk.clock.jump(2 * HOUR)
        async with running(disk, OPTIONS) as broker:
            await broker.wait_until_idle()
            values = [record.value for record in await broker.messages("s")]
            assert (values.count(b"one"), values[-1]) == (1, b"two")

    run(story)


def test_a_move_is_not_remembered_for_longer_than_was_said_nor_beyond_the_longest_delay(
    disk: Disk,
) -> None:
    async def story() -> None:
        async with running(disk, DelayOptions(cancel_remember_ms=60_000, max_ms=HOUR)) as broker:
            subject = broker.subject("s")
            with pytest.raises(InvalidRecord, match=r"delay\.max\.ms"):
                await broker.delay.move(subject, delay_id="x", due=START + 2 * HOUR)
            await broker.delay.move(subject, delay_id="x", due=START + HOUR)
            disk.clock.jump(61_000)
            assert await status(broker) == "unknown"
            await broker.park("s", later(b"one", 1_000, b"x"))
            [record] = await broker.wait_for("s", 1)
            assert due_of(record) < START + 100_000

    run(story)


def test_of_several_that_wait_the_last_move_counts_and_a_cancel_ends_it(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk, OPTIONS) as broker:
            await broker.park("s", cancel(b"a", START + HOUR), cancel(b"a", SOON), plain(b"p"))
            await broker.park("s", cancel(b"b", START + HOUR))
            await broker.park("s", cancel(b"b", SOON))
            await broker.park("s", cancel(b"c", SOON))
            await broker.park("s", cancel(b"c"))
            await broker.park("s", cancel(b"d"))
            await broker.park("s", cancel(b"d", SOON))
            await broker.park("s", cancel(b"e"), cancel(b"e", SOON))
            await broker.park(
                "s", *(later(name, HOUR, name) for name in (b"a", b"b", b"c", b"d", b"e"))
            )
            found = [await status(broker, name) for name in "abcde"]
            assert found == ["moved", "moved", "cancelled", "cancelled", "cancelled"]
            disk.clock.jump_to(SOON + 1)
            await trio.sleep(5)
            assert [r.value for r in await broker.messages("s")] == [b"p", b"a", b"b"]
        disk.clock.jump(3 * HOUR)
        async with running(disk, OPTIONS) as broker:
            await broker.wait_until_idle()
            assert len(await broker.messages("s")) == 3

    run(story)


def test_a_move_in_front_of_its_message_in_the_same_batch_moves_that_one_alone(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk, OPTIONS) as broker:
            first, second = later(b"one", HOUR, b"x"), later(b"two", HOUR, b"x")
            await broker.park("s", cancel(b"x", SOON), first, second)
            assert await status(broker) == "pending", "the name is that of the second"
            await broker.park("s", cancel(b"y"), later(b"three", HOUR, b"y"))
            assert await status(broker, "y") == "cancelled"
            assert broker.delay.statistics().pending == 2
        async with running(disk, OPTIONS) as broker:
            disk.clock.jump_to(SOON)
            assert [r.value for r in await broker.wait_for("s", 1)] == [b"one"]
            await broker.park("s", cancel(b"x"))
            disk.clock.jump(2 * HOUR)
            await broker.wait_until_idle()
            assert len(await broker.messages("s")) == 1

    run(story)


def test_what_is_remembered_goes_from_memory_the_manifest_and_the_files(disk: Disk) -> None:
    """Also where nothing is ever delivered."""

    async def story() -> None:
        for i in range(4):
            async with running(disk, OPTIONS) as broker:
                for j in range(5):
                    await broker.park(
                        "s", cancel(b"%d-%d" % (i, j)), cancel(b"m%d-%d" % (i, j), SOON)
                    )
        assert len(load(disk.files, disk.schedule).remembered) == 40
        disk.clock.jump(5 * HOUR)
        async with running(disk, OPTIONS) as broker:
            await trio.sleep(60)
            assert broker.delay.statistics().files == 0
        manifest = load(disk.files, disk.schedule)
        assert (manifest.remembered, manifest.files) == ({}, [])

    run(story)


def test_no_more_than_so_many_are_remembered_and_the_log_says_so(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delay_ids, "MOST_REMEMBERED", 10)

    async def story() -> None:
        async with running(disk, OPTIONS) as broker:
            for i in range(30):
                await broker.park("s", cancel(b"%d" % i))
        for _ in range(2):
            assert len(load(disk.files, disk.schedule).remembered) == 10
            async with running(disk, OPTIONS) as broker:
                assert await status(broker, "29") == "remembered"
                assert await status(broker, "3") == "unknown"
        assert len([r for r in caplog.records if "the oldest are forgotten" in r.message]) == 1

    run(story)


def test_what_is_known_as_delivered_by_its_id_alone_does_not_grow_with_kills(disk: Disk) -> None:
    """Delivered from files, killed before the next fill, and merged away: no file brings it up again."""

    async def story() -> None:
        here = disk
        for turn in range(6):
            start = here.clock.now_ms()
            async with running(here) as broker:
                messages = [at(bytes(500), start + (2 + i) * HOUR // 4) for i in range(8)]
                await broker.park("s", *messages)
            async with running(here) as broker:
                here.clock.jump(3 * HOUR)
                await broker.wait_for("s", 8 * (turn + 1))
                await trio.sleep(60)
                clock, files = here.clock, here.files.after_kill()
            here = Disk(files)
            here.clock = clock
            async with running(here) as broker:
                await trio.sleep(60)
                assert len(await broker.messages("s")) == 8 * (turn + 1)
            async with running(here):
                pass
            assert load(here.files, here.schedule).done == set()

    run(story)


def test_a_move_to_before_1970_that_waits_for_its_message_is_no_cancel_after_a_restart(
    disk: Disk,
) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            moved = await broker.delay.move(broker.subject("s"), delay_id="m", due=-1_000_000)
            assert moved.status == "remembered"
        async with running(disk) as broker:
            await broker.park("s", later(b"value", 60_000, b"m"))
            await trio.sleep(120)
            assert [record.value for record in await broker.messages("s")] == [b"value"]

    run(story)
