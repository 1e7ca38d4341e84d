"""A power cut at every step of a mixed life of the action log: no commit that was answered is lost, what
is left is what some moment was, and no pull offset names two messages.

The same checker must catch a log on a disk whose syncs do nothing.
"""

import copy
from pathlib import Path
from random import Random

import pytest

from kumquat.core.logs.actions.tests.driver import (
    DATA,
    ActionDriver,
    ActionScenario,
    open_again,
)
from kumquat.core.logs.tests.power import FakeFiles


def cut_everywhere(scenario: ActionScenario, actions: int, seeds: int) -> int:
    """Runs the scenario with a look at every step; gives how many cuts were looked at."""
    driver, looked = scenario.driver, 0

    def look() -> None:
        nonlocal looked
        for seed in range(seeds):
            looked += 1
            left = driver.files.after_power_cut(Random(driver.files.steps * 100 + seed))
            try:
                opened = open_again(driver, left, copy.deepcopy(driver.book))
                assert not opened.errors, f"taken for corruption: {opened.errors}"
                opened.found()
                if seed == 0:
                    opened.goes_on()
            except BaseException as error:
                error.add_note(f"cut before step {driver.files.steps + 1}, seed {seed}")
                error.add_note("\n".join(driver.files.journal[-20:]))
                raise

    driver.files.before_step = look
    scenario.run(actions)
    return looked


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_at_any_step_loses_nothing_that_was_promised(seed: int) -> None:
    assert cut_everywhere(ActionScenario(seed), actions=70, seeds=2) > 200


@pytest.mark.parametrize("seed", range(10, 12))
def test_a_kill_at_any_step_loses_nothing_that_was_written(seed: int) -> None:
    scenario = ActionScenario(seed)
    driver = scenario.driver

    def look() -> None:
        opened = open_again(driver, driver.files.after_kill(), copy.deepcopy(driver.book))
        assert not opened.errors
        assert opened.found() >= opened.before - 1, "only what is being written may be missing"

    driver.files.before_step = look
    scenario.run(50)


class NeverSyncs(FakeFiles):
    def fdatasync(self, fd: int) -> None:
        pass


class ForgetsNames(FakeFiles):
    def fsync_dir(self, directory: Path | int) -> None:
        pass


@pytest.mark.parametrize("broken", [NeverSyncs, ForgetsNames])
def test_a_log_that_does_not_sync_is_caught(broken: type[FakeFiles]) -> None:
    scenario = ActionScenario(0, ActionDriver(broken(DATA)))
    with pytest.raises(AssertionError):
        cut_everywhere(scenario, actions=60, seeds=3)
