"""Any call may fail once and succeed the next time: nothing is lost, doubled, early or revived.

The story of the kills (test_service_kills.py) on a disk whose calls fail at random: opening, reading,
writing and renaming, in the log and in the schedule; syncs too, but not those of the log, which fence it.
Then the disk works again, and the broker has to finish by itself, after a restart, and after a power cut in
the middle of it.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
import trio

from kumquat.core.errors import KumquatError
from kumquat.core.logs.tests.power import FakeFiles, Fault
from kumquat.core.wheel.files.writing import merge
from kumquat.core.wheel.tasks import filler, loader
from kumquat.core.wheel.tests.delays import (
    HOUR,
    START,
    Broker,
    Disk,
    at,
    due_of,
    later,
    run,
    running,
)
from kumquat.core.wheel.tests.test_service_kills import Promises

ERRORS = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM)
BATCHES = 24


class FlakyFiles(FakeFiles):
    rng: Random | None = None
    struck = 0

    def _strike(self, operation: str, path: Path, *, soft: bool = False) -> Fault | None:
        rng, is_sync = self.rng, operation in ("fdatasync", "fsync_dir", "unlink")
        if (
            rng is not None
            and not (is_sync and "schedule" not in str(path))
            and rng.random() < 0.08
        ):
            self.struck += 1
            fault = Fault(operation, rng.choice(ERRORS))
            if soft:
                return fault
            raise OSError(fault.error, "made to fail", str(path))
        return super()._strike(operation, path, soft=soft)

    @contextmanager
    def flaky(self, rng: Random) -> Iterator[None]:
        self.rng = rng
        try:
            yield
        finally:
            self.rng = None


async def tell(broker: Broker, promises: Promises, rng: Random) -> None:
    for number in range(BATCHES):
        values = [b"%d-%d" % (number, i) for i in range(3)]
        promises.tried.update(values)
        try:
            await broker.park(
                "s",
                later(values[0], rng.randrange(2_000), values[0]),
                at(values[1], START + rng.randrange(4 * HOUR), values[1]),
                later(values[2], rng.randrange(500)),
            )
        except KumquatError:
            continue
        promises.acked.update(values)
        await withdraw(broker, promises, rng)
        await trio.sleep(2 * rng.random())
        if number % 6 == 5:
            broker.clock.jump(HOUR // 2)


async def withdraw(broker: Broker, promises: Promises, rng: Random) -> None:
    victim = rng.choice(sorted(v for v in promises.acked - promises.withdrawn if v[-1:] in b"01"))
    promises.withdrawing.add(victim)
    try:
        shown = await broker.delay.cancel(broker.subject("s"), delay_id=victim.decode())
    except KumquatError:
        return
    if shown.status == "cancelled":
        promises.withdrawn.add(victim)
    else:
        promises.withdrawing.discard(victim)


async def check(broker: Broker, promises: Promises) -> None:
    await broker.wait_until_idle()
    records = await broker.messages("s")
    promises.check([record.value or b"" for record in records])
    assert all(record.timestamp >= due_of(record) for record in records)
    statistics = broker.delay.statistics()
    assert (statistics.damaged, statistics.failing) == (0, None)


@pytest.mark.parametrize("seed", range(6))
def test_calls_that_fail_for_once_cost_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    monkeypatch.setattr(filler, "FILL_BYTES", 1_500)
    monkeypatch.setattr(loader, "SLICE", 10)
    monkeypatch.setattr(merge, "AT_ONCE", 3)
    rng, promises = Random(seed), Promises()
    files = FlakyFiles(tmp_path)
    disk = Disk(files)

    async def story() -> None:
        async with running(disk, segment_bytes=6_000, reserve_bytes=4_096) as broker:
            broker.subject("s")
            await broker.log.wait_synced()
            with files.flaky(rng):
                await tell(broker, promises, rng)
            left = Disk(files.after_power_cut(rng))
            left.clock.set_by = disk.clock.set_by
            had = promises.copy()
            assert files.struck
            disk.clock.jump(6 * HOUR)
            await trio.sleep(300)
            await check(broker, promises)
        for one, promised in ((disk, promises), (left, had)):
            one.clock.jump(6 * HOUR)
            async with running(one, segment_bytes=6_000, reserve_bytes=4_096) as broker:
                await check(broker, promised)

    run(story)
