"""A dead letter that is lost, or is there twice, wherever the broker was killed.

The task writes letters of several groups and subjects on the fake disk. For each step of the disk, the logs
are opened on what a kill, and on what a power cut would have left right there. Whatever was doomed durably
is there once: still doomed, or as a letter.
"""

from pathlib import Path
from random import Random

import pytest
import trio

from kumquat.core.delivery.dead_letters.letters import origin_of
from kumquat.core.delivery.dead_letters.tests.rig import doomed_of, open_logs, read_all, rig
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.records.tests.test_batch import built

GROUPS = ("g", "h")


class Watch:
    """Keeps what a cut would leave at some steps, and what must be there then."""

    def __init__(self, files: FakeFiles, subjects: dict[str, int], every: int, offset: int) -> None:
        self.every = every
        self.offset = offset
        self.files = files
        self.subjects = subjects
        self.doomed: frozenset[tuple[str, str, int]] = frozenset()
        """Group, subject, sequence: known to be durable."""
        self.kept: list[tuple[FakeFiles, frozenset[tuple[str, str, int]]]] = []

    def keep(self) -> None:
        if (self.files.steps + self.offset) % self.every:
            return
        rng = Random(self.files.steps)
        for left in (self.files.after_kill(), self.files.after_power_cut(rng)):
            self.kept.append((left, self.doomed))

    def check(self) -> set[tuple[int, int]]:
        """Gives how many were doomed and how many letters there were, each time: it has to have looked at
        every stage."""
        stages = set()
        while self.kept:
            stages.add(self._check(*self.kept.pop()))
        return stages

    def _check(self, left: FakeFiles, doomed: frozenset[tuple[str, str, int]]) -> tuple[int, int]:
        log, actions, _ = open_logs(left)
        waiting, letters = set[tuple[str, str, int]](), list[tuple[str, str, int]]()
        for group in GROUPS:
            for name, subject_id in self.subjects.items():
                waiting |= {(group, name, at) for at in doomed_of(actions, group, subject_id)}
                for record in read_all(log, f"{name}.{group}.dlq"):
                    origin = origin_of(record)
                    assert (origin.group, origin.subject) == (group, name)
                    assert record.value == b"%s %d" % (name.encode(), origin.sequence)
                    letters.append((group, name, origin.sequence))
        assert len(letters) == len(set(letters)), "a dead letter is there twice"
        assert not waiting & set(letters), "a message has its letter, and is to get another"
        assert doomed <= waiting | set(letters), "a message is lost"
        actions.abandon()
        log.abandon()
        return len(waiting), len(letters)


def test_each_dead_letter_is_there_once_wherever_the_broker_was_killed(tmp_path: Path) -> None:
    trio.run(_life, tmp_path, 0, 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
def test_each_dead_letter_is_there_once_at_many_steps_of_the_disk(
    tmp_path: Path, seed: int
) -> None:
    """A copy of the disk is kept for each: all of them would take gigabytes."""
    trio.run(_life, tmp_path, seed, 8)


async def _life(folder: Path, seed: int, every: int) -> None:
    rng, files = Random(seed), FakeFiles(folder / "data")
    async with rig(files) as it:
        for codec, name in ((0, "plain"), (4, "zipped")):
            for base in range(0, 30, 6):
                values = [b"%s %d" % (name.encode(), n) for n in range(base, base + 6)]
                await it.produce(name, data=built(*values, codec=codec))
        watch = Watch(
            files, {name: it.subject(name).id for name in ("plain", "zipped")}, every, seed
        )
        for group in GROUPS:
            it.group(group)
        await it.actions.wait_synced()
        files.before_step = watch.keep
        left = [
            (group, name, at) for group in GROUPS for name in watch.subjects for at in range(30)
        ]
        rng.shuffle(left)
        while left:
            chosen = [left.pop() for _ in range(min(len(left), rng.randrange(1, 30)))]
            for group, name, at in chosen:
                it.doom(group, name, [[at, 1, 3]])
            await it.actions.wait_synced()
            watch.doomed |= set(chosen)
            if rng.random() < 0.7:
                for group in GROUPS:
                    for name in watch.subjects:
                        await it.written(group, name)
        for group in GROUPS:
            for name in watch.subjects:
                await it.written(group, name)
        files.before_step = None
        watch.every = 1
        watch.keep()
    assert len(watch.kept) > 20
    stages = watch.check()
    assert (0, 120) in stages
    assert len(stages) > 5, "it always looked at the same stage"
