"""A delay id that no schedule file can hold: refused everywhere, and ignored where it is in the log."""

import logging

import pytest
import trio

from kumquat.core.errors import InvalidRecord
from kumquat.core.logs.messages.parked import (
    MOVED,
    NO_ORIGIN,
    REMEMBERED,
    CancelItem,
    pack_parked,
)
from kumquat.core.wheel.service import DelayOptions
from kumquat.core.wheel.tests.delays import HOUR, START, Disk, at, cancel, later, run, running

BAD_IDS = ["", "x" * 256, "é" * 128, "\ud800", "a\udfff"]


@pytest.mark.parametrize("delay_id", BAD_IDS, ids=["empty", "long", "long in UTF-8", "low", "high"])
def test_an_id_that_cannot_be_filed_is_refused_at_every_door(disk: Disk, delay_id: str) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            subject = broker.subject("s")
            with pytest.raises(InvalidRecord, match="1 to 255 bytes of UTF-8"):
                await broker.delay.cancel(subject, delay_id=delay_id)
            with pytest.raises(InvalidRecord, match="1 to 255 bytes of UTF-8"):
                await broker.delay.move(subject, delay_id=delay_id, due=START + HOUR)
            with pytest.raises(InvalidRecord, match="1 to 255 bytes of UTF-8"):
                await broker.delay.show(subject, delay_id)
            name = delay_id.encode(errors="surrogatepass")
            with pytest.raises(InvalidRecord, match="1 to 255 bytes of UTF-8"):
                await broker.park("s", cancel(name))
            if name:
                with pytest.raises(InvalidRecord, match="1 to 255 bytes of UTF-8"):
                    await broker.park("s", later(b"one", HOUR, name))
            await broker.park("s", later(b"two", HOUR, b"x" * 255))
            shown = await broker.delay.cancel(subject, delay_id="x" * 255)
            assert shown.status == "cancelled"

    run(story)


def test_a_folder_with_an_over_long_cancel_in_its_log_starts_fills_and_stops(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """As an older broker left it: the frame is in the log, and no fill has passed it."""

    async def story() -> None:
        async with running(disk) as broker:
            subject, long = broker.subject("s"), b"y" * 256
            await broker.park("s", at(b"one", START + 2 * HOUR, b"x"))
            items = [
                CancelItem(REMEMBERED, -1, START + HOUR, START + HOUR, long),
                CancelItem(MOVED, -1, START, START, long),
            ]
            broker.log.log.park_nowait(subject, NO_ORIGIN, b"", items, None)
            await broker.log.wait_synced()
        for _ in range(2):
            async with running(disk) as broker:
                await trio.sleep(2)
                assert broker.delay.statistics().failing is None
                assert broker.delay.statistics().pending == 1
        disk.clock.jump(2 * HOUR)
        async with running(disk) as broker:
            assert [record.value for record in await broker.wait_for("s", 1)] == [b"one"]
        told = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert any("yyyy" in one and "subject" in one and "256 bytes" in one for one in told)

    run(story)


def test_a_message_whose_name_or_time_cannot_be_filed_does_not_stop_the_others(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """A name that is too long costs the name. A time beyond what an hour's number holds is set aside."""
    beyond = (1 << 32) * HOUR

    async def story() -> None:
        async with running(disk) as broker:
            subject, body = broker.subject("s"), b"\x01\x06two\x04"
            await broker.park("s", at(b"one", START + 3 * HOUR))
            parked = pack_parked(START + 3 * HOUR, START, b"z" * 300, body)
            parked += pack_parked(beyond, START, b"late", body)
            broker.log.log.park_nowait(subject, NO_ORIGIN, parked, [], None)
            await broker.log.wait_synced()
        disk.clock.jump(3 * HOUR)
        async with running(disk) as broker:
            values = [record.value for record in await broker.wait_for("s", 2)]
            assert values == [b"one", b"two"]
            assert broker.delay.statistics().failing is None
        errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert any(str(beyond) in one for one in errors)
        assert any("zzzz" in one for one in errors)

    run(story)


def test_a_cancel_that_is_remembered_for_ages_does_not_stop_a_fill(disk: Disk) -> None:
    async def story() -> None:
        async with running(disk, DelayOptions(cancel_remember_ms=1 << 62)) as broker:
            await broker.delay.cancel(broker.subject("s"), delay_id="x")
        async with running(disk) as broker:
            await trio.sleep(2)
            assert broker.delay.statistics().failing is None

    run(story)
