"""Everything at once: a disk that fails at random, a process that is killed, and a power cut at
any step.

The mixed life of `scenario.py`, where now and then a call fails, the disk is full, or a sync fails
and the process is started again. Whatever was refused may have left anything; whatever was acked is
there.
"""

import errno
from collections.abc import Callable

import pytest

from kumquat.core.errors import StorageError
from kumquat.core.logs.messages.recovery.tests.test_power_cuts import cut_everywhere
from kumquat.core.logs.tests.disk import PAGE
from kumquat.core.logs.tests.driver import Driver, errors_told
from kumquat.core.logs.tests.power import Fault
from kumquat.core.logs.tests.scenario import Scenario

FAULTS = [
    ("pwritev", ".log", errno.EIO),
    ("pwritev", ".log", errno.ENOSPC),
    ("reserve", ".log", errno.ENOSPC),
    ("truncate", ".log", errno.EIO),
    ("create", "", errno.ENOSPC),
    ("pwritev", ".checkpoint", errno.ENOSPC),
    ("pwritev", ".index", errno.ENOSPC),
    ("rename", ".index", errno.ENOSPC),
    ("fdatasync", ".index", errno.EIO),
    ("fdatasync", ".log", errno.EIO),
    ("fsync_dir", "messages", errno.EIO),
    ("open", "", errno.EMFILE),
    ("open", ".checkpoint", errno.EMFILE),
    ("open", ".index", errno.EMFILE),
    ("pread", "", errno.EIO),
    ("pread", ".log", errno.ENOMEM),
    ("pread", ".index", errno.ENOMEM),
]


class FaultyScenario(Scenario):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, Driver(total_bytes=30_000))
        self.refused = 0

    def act(self, action: Callable[[], object]) -> None:
        files, chance = self.driver.files, self.rng.random()
        if chance < 0.18:
            operation, name, error = self.rng.choice(FAULTS)
            written = self.rng.choice((0, 70, 500, 4000, 1 << 20))
            skip, times = self.rng.randrange(3), self.rng.randrange(1, 3)
            files.fail(Fault(operation, error, name, skip, times, written))
        elif chance < 0.21:
            files.capacity = files.used() + PAGE * self.rng.randrange(3)
        elif chance < 0.3:
            files.heal()
        with errors_told():
            try:
                action()
            except (StorageError, OSError):
                self.refused += 1
        if self.driver.log.fenced:
            self.restart()

    def restart(self) -> None:
        """A start that fails for want of room, or of a disk, is tried again when there is one."""
        try:
            super().restart()
        except (OSError, StorageError):
            self.driver.files.heal()
            super().restart()

    def finish(self) -> None:
        self.driver.files.heal()
        super().finish()


@pytest.mark.parametrize("seed", range(4))
def test_faults_and_cuts_together_lose_nothing_that_was_promised(seed: int) -> None:
    scenario = FaultyScenario(seed)
    cut_everywhere(scenario, actions=80, seeds=2)
    assert scenario.refused > 0
