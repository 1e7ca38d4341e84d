"""A power cut at every step of a mixed life loses nothing that was promised.

At each step of a scenario the disk is asked what a cut right there could leave, for several seeds;
a log is opened on each and held against the promises made by then. The same checker must catch a
log on a disk whose syncs do nothing.
"""

import copy
from pathlib import Path
from random import Random

import pytest

from core.logs.tests.driver import DATA, Driver
from core.logs.tests.power import FakeFiles
from core.logs.tests.scenario import Scenario, check_goes_on, check_recovery


def cut_everywhere(scenario: Scenario, actions: int, seeds: int, every: int = 1) -> int:
    """Runs the scenario with a look at every step; gives how many cuts were looked at."""
    driver, looked = scenario.driver, 0

    def look() -> None:
        nonlocal looked
        if driver.files.steps % every:
            return
        for seed in range(seeds):
            looked += 1
            left = driver.files.after_power_cut(Random(driver.files.steps * 100 + seed))
            promises = copy.deepcopy(driver.promises) if seed == 0 else driver.promises
            try:
                opened = Driver(left, promises, total_bytes=driver.options.total_bytes)
                check_recovery(scenario, opened)
                if seed == 0:
                    check_goes_on(opened)
            except BaseException as error:
                error.add_note(f"cut before step {driver.files.steps + 1}, seed {seed}")
                error.add_note("\n".join(driver.files.journal[-20:]))
                raise

    driver.files.before_step = look
    scenario.run(actions)
    return looked


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_at_any_step_loses_nothing_that_was_promised(seed: int) -> None:
    assert cut_everywhere(Scenario(seed), actions=60, seeds=3) > 300


class NeverSyncs(FakeFiles):
    def fdatasync(self, fd: int) -> None:
        pass


class ForgetsNames(FakeFiles):
    def fsync_dir(self, path: Path) -> None:
        pass


@pytest.mark.parametrize("broken", [NeverSyncs, ForgetsNames])
def test_a_log_that_does_not_sync_is_caught(broken: type[FakeFiles]) -> None:
    scenario = Scenario(0, Driver(broken(DATA)))
    with pytest.raises(AssertionError):
        cut_everywhere(scenario, actions=60, seeds=3)
