"""A tombstone must stay as long as a start could load the message that it took out."""

import trio

from kumquat.core.wheel.tests.delays import HOUR, START, Disk, at, cancel, run, running


def test_a_cancelled_message_does_not_come_after_its_hour_has_passed_and_nothing_was_delivered(
    disk: Disk,
) -> None:
    """It lies in a file that stays for another's sake, the tombstone in one whose hours have passed."""

    async def story() -> None:
        async with running(disk) as broker:
            late = at(b"late" + bytes(4_000), START + 100 * HOUR)
            await broker.park("s", at(b"cancelled", START + 2 * HOUR, b"x"), late)
        async with running(disk) as broker:
            await broker.park("s", cancel(b"x"))
        disk.clock.jump(5 * HOUR)
        for _ in range(3):
            async with running(disk) as broker:
                await trio.sleep(120)
                assert await broker.messages("s") == []
                assert broker.delay.statistics().pending == 1

    run(story)
