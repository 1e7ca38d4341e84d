"""The manifest of the schedule is lost: the broker starts, and delivers what waits."""

import logging

import pytest
import trio

from core.wheel.manifest import COPY, MANIFEST
from core.wheel.tests.delays import HOUR, START, Disk, at, later, run, running


def spoil(disk: Disk, name: str, how: str) -> None:
    path = disk.schedule / name
    content = disk.files.content(path)
    if how == "flipped":
        disk.files.damage(path, content[:30] + bytes([content[30] ^ 1]) + content[31:])
    elif how == "garbage behind":
        disk.files.damage(path, content + b"garbage")
    else:
        disk.files.unlink(path)


@pytest.mark.parametrize("how", ["flipped", "garbage behind", "gone"])
@pytest.mark.parametrize("names", [[MANIFEST], [COPY], [MANIFEST, COPY]])
def test_a_lost_manifest_does_not_stop_a_start_and_costs_no_message(
    disk: Disk, names: list[str], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with running(disk) as broker:
            await broker.park("s", *(at(b"%d" % i, START + i * HOUR // 2) for i in range(1, 8)))
            await broker.park("t", at(b"t", START + 3 * HOUR, b"x"), at(b"u", START + HOUR))
            disk.clock.jump(HOUR + 60_000)
            await broker.wait_for("s", 2)
            await broker.wait_for("t", 1)
        async with running(disk) as broker:
            await broker.delay.cancel(broker.subject("t"), delay_id="x")
        for name in names:
            spoil(disk, name, how)
        caplog.clear()
        async with running(disk) as broker:
            lost = len(names) == 2 and how != "garbage behind"
            told = [r for r in caplog.records if r.levelno == logging.CRITICAL]
            assert len(told) == lost
            await trio.sleep(30)
            assert len(await broker.messages("s")) == 2, "none is delivered again"
            assert broker.delay.statistics().pending == 5
            assert await broker.delay.count(broker.subject("s"), 0, 1 << 60) == 5
            await broker.park("s", later(b"fresh", 1_000))
            await broker.wait_for("s", 3)
        disk.clock.jump(5 * HOUR)
        for _ in range(2):
            async with running(disk) as broker:
                await trio.sleep(30)
                values = [record.value for record in await broker.messages("s")]
                assert values == [b"1", b"2", b"fresh", b"3", b"4", b"5", b"6", b"7"]
                assert [r.value for r in await broker.messages("t")] == [b"u"], (
                    "the other is cancelled"
                )
                assert broker.delay.statistics().pending == 0

    run(story)
