"""A history of which some frames are lost, as damage to the action log leaves it.

Whatever is missing, what is left must fit together, and no message may be lost that nobody has acked: one
in doubt is delivered once more.
"""

import contextlib
from random import Random

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.state import Groups, Progress
from kumquat.core.logs.actions.recovery import repairs
from kumquat.core.logs.actions.tests.driver import ActionScenario


def replayed(frames: list[list[actions.Action]]) -> Groups:
    groups = Groups()
    for frame in frames:
        for action in frame:
            with contextlib.suppress(KeyError, ValueError):
                groups.apply(action)
    return groups


def places(progress: Progress) -> list[int]:
    """Every unacked sequence below the cursor, as often as it is somewhere."""
    ranges = [(r.first, r.size) for r in progress.redelivery]
    for log in progress.pull_logs.values():
        ranges += [(lease.first, lease.size) for lease in log.leases]
        assert log.unacked == sum(lease.size for lease in log.leases)
        pulls = [lease.pull for lease in log.leases]
        assert pulls == sorted(pulls)
    return [first + i for first, size in ranges for i in range(size)]


def check_whole(groups: Groups) -> None:
    assert {group.name: group for group in groups.by_id.values()} == groups.by_name
    slots = {}
    for group in groups.by_id.values():
        for subject_id, progress in group.progress.items():
            unacked = places(progress)
            assert len(unacked) == len(set(unacked)), "a message is in two places"
            assert all(sequence < progress.cursor for sequence in unacked)
            for slot, log in progress.pull_logs.items():
                slots[subject_id, slot] = (group, log)
    assert slots == {
        (subject_id, slot): owner
        for subject_id, taken in groups.slots.items()
        for slot, owner in taken.items()
    }


@pytest.mark.parametrize("seed", range(25))
def test_lost_frames_lose_no_message_that_was_not_acked(seed: int) -> None:
    rng = Random(seed)
    scenario = ActionScenario(seed)
    scenario.run(120)
    frames = scenario.driver.book.frames
    truth = replayed(frames)
    check_whole(truth)
    for _ in range(40):
        lost = set(rng.sample(range(len(frames)), rng.randint(1, 6)))
        groups = replayed([frame for i, frame in enumerate(frames) if i not in lost])
        check_whole(groups)
        for action in repairs(groups):
            groups.apply(action)
        check_whole(groups)
        for gid, group in truth.by_id.items():
            for subject_id, progress in group.progress.items():
                if (
                    gid in groups.by_id
                    and subject_id in groups.by_id[gid].progress
                    and progress.shared
                ):
                    left = groups.by_id[gid].progress[subject_id]
                    unacked = set(places(left))
                    assert left.cursor <= progress.cursor
                    missing = [s for s in places(progress) if s not in unacked]
                    assert all(s >= left.cursor for s in missing), f"{missing} lost without {lost}"


@pytest.mark.parametrize("seed", range(10))
def test_frames_in_any_order_leave_the_groups_whole(seed: int) -> None:
    """Nothing writes such a log; but nothing in it may break what is built on it."""
    rng = Random(seed)
    scenario = ActionScenario(seed)
    scenario.run(60)
    frames = list(scenario.driver.book.frames)
    for _ in range(40):
        rng.shuffle(frames)
        check_whole(replayed(frames))
