"""Kills and power cuts anywhere: what was acked arrives once, what was cancelled does not, none is early.

One story is told on a small disk: batches are parked, cancelled and moved while segments are rolled, files
filled and merged, windows loaded slice by slice, and messages delivered. Before many of its steps the disk
is copied as a kill, or a power cut, would leave it; a new broker is started on each copy, long after all
was due, and its log is compared with what had been promised by then. Held back, syncs
of the log take far longer than all else does.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
import trio

from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.wheel.files.writing import merge
from kumquat.core.wheel.tasks import filler, loader
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

BATCHES = 24


@dataclass
class Promises:
    acked: set[bytes] = field(default_factory=set)
    tried: set[bytes] = field(default_factory=set)
    withdrawing: set[bytes] = field(default_factory=set)
    withdrawn: set[bytes] = field(default_factory=set)

    def copy(self) -> "Promises":
        return Promises(
            set(self.acked), set(self.tried), set(self.withdrawing), set(self.withdrawn)
        )

    def check(self, values: list[bytes]) -> None:
        seen = Counter(values)
        assert max(seen.values(), default=1) == 1, "twice"
        assert seen.keys() <= self.tried
        assert self.acked - self.withdrawing <= seen.keys(), "lost"
        assert not self.withdrawn & seen.keys(), "cancelled, and delivered"


async def tell(broker: Broker, promises: Promises, rng: Random) -> None:
    for number in range(BATCHES):
        values = [b"%d-%d" % (number, i) for i in range(4)]
        promises.tried.update(values)
        await broker.park(
            "s",
            later(values[0], rng.randrange(2_000), values[0]),
            plain(values[1]),
            at(values[2], START + rng.randrange(4 * HOUR), values[2]),
            later(values[3], rng.randrange(500)),
        )
        promises.acked.update(values)
        left = promises.acked - promises.withdrawn
        victim = rng.choice(sorted(value for value in left if value[-1:] in b"02"))
        await withdraw(broker, promises, victim, rng.random() < 0.4)
        await trio.sleep(rng.random())
        if number % 6 == 5:
            broker.clock.jump(HOUR // 2)


async def withdraw(broker: Broker, promises: Promises, victim: bytes, move: bool) -> None:
    """Cancel a message or move it, if it is still there."""
    if move:
        due = broker.clock.now_ms() + 1_200
        await broker.park("s", cancel(victim, due), later(b"", 1))
        promises.tried.add(b"")
        return
    promises.withdrawing.add(victim)
    shown = await broker.delay.cancel(broker.subject("s"), delay_id=victim.decode())
    if shown.status == "cancelled":
        promises.withdrawn.add(victim)
    else:
        assert shown.status in ("delivered", "remembered", "unknown"), "or its name is forgotten"
        promises.withdrawing.discard(victim)


Copy = tuple[FakeFiles, Promises, int]


def copies(
    monkeypatch: pytest.MonkeyPatch, directory: Path, seed: int, how: str, every: int
) -> list[Copy]:
    monkeypatch.setattr(filler, "FILL_BYTES", 1_500)
    monkeypatch.setattr(loader, "SLICE", 10)
    monkeypatch.setattr(loader, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(merge, "AT_ONCE", 3)
    rng, promises, found = Random(seed), Promises(), list[Copy]()
    files = FakeFiles(directory)
    disk = Disk(files)

    def copy() -> None:
        if files.steps % every == seed % every:
            left = files.after_kill() if how == "killed" else files.after_power_cut(rng)
            found.append((left, promises.copy(), files.steps))

    def hold_back(path: Path) -> None:
        if path.suffix == ".log" and rng.random() < 0.5:
            threading.Event().wait(0.02)

    async def story() -> None:
        async with running(disk, segment_bytes=6_000, reserve_bytes=4_096) as broker:
            broker.subject("s")
            await broker.log.wait_synced()
            if how == "power cut, syncs held back":
                files.during_sync, disk.syncs_held = hold_back, True
            files.before_step = copy
            await tell(broker, promises, Random(seed))
        files.before_step = None

    run(story)
    found.append((files, promises, files.steps))
    return found


def check(copy: Copy) -> None:
    files, promises, _ = copy
    disk = Disk(files)

    async def story() -> None:
        disk.clock.jump(6 * HOUR)
        async with running(disk, segment_bytes=6_000, reserve_bytes=4_096) as broker:
            await broker.wait_until_idle()
            records = await broker.messages("s")
        values = [record.value or b"" for record in records]
        promises.check([value for value in values if value])
        late = [r for r in records if r.value and r.value[-1:] != b"1"]
        assert all(record.timestamp >= due_of(record) for record in late)

    run(story)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("how", ["killed", "power cut", "power cut, syncs held back"])
def test_each_message_arrives_once_wherever_the_broker_died(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str, seed: int
) -> None:
    for copy in copies(monkeypatch, tmp_path, seed, how, every=23):
        check(copy)
