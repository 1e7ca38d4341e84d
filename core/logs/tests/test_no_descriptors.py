"""A process that has run out of descriptors: the logs go on and are never fenced."""

import errno

import pytest

from kumquat.core.logs.actions.tests.driver import ActionDriver
from kumquat.core.logs.tests.driver import Driver, errors_told
from kumquat.core.logs.tests.power import Fault

OUT = Fault("open", errno.EMFILE, times=None)
CREATE = Fault("create", errno.EMFILE, times=None)


@pytest.mark.parametrize("held_back", [False, True])
def test_no_sync_needs_a_new_descriptor_and_the_message_log_is_not_fenced(held_back: bool) -> None:
    """`held_back`: the roll came before they ran out, and its first sync comes after."""
    driver = Driver(segment_bytes=3000)
    driver.create("a")
    driver.append("a", 100)
    driver.settle()
    if held_back:
        driver.append("a", 4000)
        assert len(driver.log.state.segments) == 2
    for fault in (OUT, CREATE):
        driver.files.fail(fault)
    for _ in range(10):
        driver.append("a", 1000)
        driver.sync()
        assert driver.log.fenced is None
    assert len(driver.log.state.segments) == (2 if held_back else 1), (
        "it goes on in the segment that it has"
    )
    driver.files.heal()
    driver.settle()
    driver.now += 10_000
    driver.append("a", 1000)
    driver.settle()
    assert len(driver.log.state.segments) > 1 + held_back
    driver.check()
    driver.start()
    driver.check()


def test_no_sync_needs_a_new_descriptor_and_the_action_log_is_not_fenced() -> None:
    driver = ActionDriver(segment_bytes=3000)
    log = driver.join("g", 1)
    driver.settle()
    group = driver.group("g")
    while len(driver.log.segments) == 1:
        driver.pull(group, 1, log, 1)
    for fault in (OUT, CREATE):
        driver.files.fail(fault)
    with errors_told() as told:
        driver.sync()
        for _ in range(100):
            driver.pull(group, 1, log, 1)
            driver.sync()
        while driver.log.snapshot_step():
            pass
        for _ in range(100):
            driver.pull(group, 1, log, 1)
            driver.sync()
    assert driver.log.fenced is None
    assert len([line for line in told if "no new segment" in line]) <= 1, (
        "said once, not for each append"
    )
    driver.files.heal()
    driver.settle()
    driver.start()
    assert driver.found() == driver.before
