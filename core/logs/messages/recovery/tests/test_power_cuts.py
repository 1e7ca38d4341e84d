"""A power cut at every step of a mixed life loses nothing that was promised.

At each step of a scenario the disk is asked what a cut right there could leave, for several seeds;
a log is opened on each and held against the promises made by then. The same checker must catch a
log on a disk whose syncs do nothing.
"""

import copy
from pathlib import Path
from random import Random

import pytest

from kumquat.core.logs.tests.driver import DATA, Driver
from kumquat.core.logs.tests.power import FakeFiles, PowerCut
from kumquat.core.logs.tests.scenario import Scenario, check_goes_on, check_recovery


def cut_everywhere(scenario: Scenario, actions: int, seeds: int) -> int:
    """Runs the scenario with a look at every step; gives how many cuts were looked at."""
    driver, looked = scenario.driver, 0

    def look() -> None:
        nonlocal looked
        for seed in range(seeds):
            looked += 1
            left = driver.files.after_power_cut(Random(driver.files.steps * 100 + seed))
            try:
                check_recovery(scenario, Driver(left, driver.promises))
                if seed == driver.files.steps % 5:
                    check_goes_on(Driver(left, copy.deepcopy(driver.promises)))
            except BaseException as error:
                error.add_note(f"cut before step {driver.files.steps + 1}, seed {seed}")
                error.add_note("\n".join(driver.files.journal[-20:]))
                raise

    driver.files.before_step = look
    scenario.run(actions)
    return looked


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_at_any_step_loses_nothing_that_was_promised(seed: int) -> None:
    assert cut_everywhere(Scenario(seed), actions=60, seeds=3) > 200


def test_a_cut_during_the_first_start_leaves_a_folder_that_can_be_started_on() -> None:
    files = FakeFiles(DATA)

    def look() -> None:
        for seed in range(10):
            opened = Driver(files.after_power_cut(Random(seed)))
            assert not opened.errors
            opened.create("first")
            opened.append("first", 10)
            opened.settle()
            opened.start()
            opened.check()

    files.before_step = look
    Driver(files)
    assert files.steps > 10


@pytest.mark.parametrize("seed", range(10))
def test_a_cut_during_the_start_after_a_cut_loses_nothing(seed: int) -> None:
    scenario = Scenario(seed)
    scenario.driver.files.cut_power(100 + 7 * seed)
    with pytest.raises(PowerCut):
        scenario.run(80)
    left = scenario.driver.files.after_power_cut(Random(seed), "any")

    def look() -> None:
        for again in range(4):
            twice = left.after_power_cut(Random(again))
            check_recovery(scenario, Driver(twice, scenario.driver.promises))

    left.before_step = look
    check_recovery(scenario, Driver(left, scenario.driver.promises))


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_at_any_step_loses_nothing_that_was_written(seed: int) -> None:
    scenario = Scenario(seed)
    driver = scenario.driver

    def look() -> None:
        opened = Driver(driver.files.after_kill(), driver.promises)
        check_recovery(scenario, opened)
        opened.promises.check_written(opened.log, opened.reader)

    driver.files.before_step = look
    scenario.run(60)


class NeverSyncs(FakeFiles):
    def fdatasync(self, fd: int) -> None:
        pass


class ForgetsNames(FakeFiles):
    def fsync_dir(self, directory: Path | int) -> None:
        pass


@pytest.mark.parametrize("broken", [NeverSyncs, ForgetsNames])
def test_a_log_that_does_not_sync_is_caught(broken: type[FakeFiles]) -> None:
    scenario = Scenario(0, Driver(broken(DATA)))
    with pytest.raises(AssertionError):
        cut_everywhere(scenario, actions=60, seeds=3)
