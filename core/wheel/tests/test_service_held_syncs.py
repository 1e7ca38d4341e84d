"""Syncs that take their time: a power cut may take what is only written, so nothing is built on it."""

from random import Random

import trio

from kumquat.core.wheel.tests.delays import HOUR, START, Disk, at, run, running


async def file_eight(disk: Disk) -> list[bytes]:
    """Eight files, each with a message of its own hour."""
    values = [b"%d" % i + bytes(500) for i in range(8)]
    for i, value in enumerate(values):
        async with running(disk) as broker:
            await broker.park("s", at(value, START + (2 + i) * HOUR))
    return values


def after_cuts(disk: Disk) -> list[Disk]:
    """Some of the ways in which power can be cut now."""
    return [Disk(disk.files.after_power_cut(Random(seed))) for seed in range(6)]


async def delivered(disk: Disk) -> list[bytes]:
    """What consumers find in the end."""
    disk.clock.jump(20 * HOUR)
    async with running(disk) as broker:
        await trio.sleep(60)
        return [record.value or b"" for record in await broker.messages("s")]


def test_files_are_not_dropped_for_deliveries_that_a_power_cut_can_take_back(disk: Disk) -> None:
    async def story() -> None:
        values = await file_eight(disk)
        async with running(disk) as broker:
            await broker.log.wait_synced()
            with disk.held_syncs():
                disk.clock.jump(12 * HOUR)
                await trio.sleep(120)
                left = [Disk(disk.files.after_kill()), *after_cuts(disk)]
            await broker.wait_until_idle()
            await trio.sleep(120)
            assert broker.delay.statistics().files <= 1, "merged when it was synced"
        for one in left:
            assert await delivered(one) == values

    run(story)


def test_files_do_not_forget_messages_of_a_subject_whose_deletion_can_be_taken_back(
    disk: Disk,
) -> None:
    """Its rows are left out of fills and merges only when it is gone for good."""

    async def story() -> None:
        values = await file_eight(disk)
        async with running(disk) as broker:
            await broker.log.wait_synced()
            with disk.held_syncs():
                broker.log.delete_subject_nowait(broker.subject("s"))
                await trio.sleep(120)
                left = after_cuts(disk)
        found = [await delivered(one) for one in left]
        assert values in found
        assert all(one in ([], values) for one in found)

    run(story)
