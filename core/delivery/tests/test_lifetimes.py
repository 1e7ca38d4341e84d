"""What is forgotten with time, and what is not."""

from __future__ import annotations

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.lifetimes import expired
from kumquat.core.delivery.state import Group, Groups

DAY = 86_400_000
WEEK = 7 * DAY
IDLE = 600_000


def member(name: str = "m") -> Action:
    numbers = {"generation": 1, "session_ms": 1, "rebalance_ms": 1}
    fields = {"id": name, "kind": "eager", "client_id": "", "host": "", **numbers}
    return actions.Member(1, fields)


def history(*done: tuple[int, Action]) -> Group:
    """Actions, each with the day on which it was done."""
    groups = Groups()
    groups.apply(actions.Group(1, "g"))
    for day, action in done:
        groups.now_ms = day * DAY
        groups.apply(action)
    return groups.by_id[1]


def commit(subject_id: int) -> Action:
    return actions.Commit(1, subject_id, 5, -1, "")


def rejected(subject_id: int) -> Action:
    return actions.Doom(1, subject_id, 0, [[3, 1, 1]], "rejected", "")


def retried(subject_id: int) -> Action:
    return actions.Retry(1, subject_id, 0, [[3, 1, 2, 9000 * DAY]])


def settled(subject_id: int) -> Action:
    return actions.Settle(1, subject_id, [[3, 1]])


def shared(subject_id: int, attempt: int) -> tuple[Action, ...]:
    return actions.Share(1, subject_id, 5), actions.Again(1, subject_id, 3, 1, attempt, 0)


LEFT: Action = actions.Left(1, "m")
FORGET: Action = actions.Forget(1)


@pytest.mark.parametrize(
    ("group", "day", "found"),
    [
        (history((1, commit(1))), 7, []),
        (history((1, commit(1))), 8, [FORGET]),
        (history((1, commit(1)), (3, commit(2))), 8, [actions.Drop(1, 1)]),
        (history((1, commit(1)), (5, member())), 100, []),
        (history((1, commit(1)), (5, member()), (20, LEFT)), 26, []),
        (history((1, commit(1)), (5, member()), (20, LEFT)), 27, [FORGET]),
        (history((1, member()), (1, LEFT), (3, commit(1))), 9, []),
        (history((1, member()), (1, commit(2))), 8, [actions.Drop(1, 2)]),
        (history((1, member()), (2, LEFT)), 2, []),
        (history((1, member()), (2, LEFT)), 3, [FORGET]),
        (history((1, member()), (2, LEFT), (2, member())), 100, []),
        (history(), 1, [FORGET]),
        (history((1, commit(1)), (1, rejected(1))), 100, []),
        (history((1, commit(1)), (1, rejected(1)), (2, settled(1))), 100, [FORGET]),
        (history((1, commit(1)), (1, retried(1))), 1000, []),
        (history((1, commit(1)), (1, retried(1)), (1, commit(2))), 8, [actions.Drop(1, 2)]),
        (history(*((1, action) for action in shared(1, 2))), 100, []),
        (history(*((1, action) for action in shared(1, 1))), 100, [FORGET]),
    ],
)
def test_what_is_forgotten_when(group: Group, day: int, found: list[Action]) -> None:
    assert expired(group, {1} if group.members else set(), day * DAY, WEEK, IDLE) == found
