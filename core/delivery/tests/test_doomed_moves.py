"""Where a group goes on elsewhere, each doomed message becomes a letter or comes again: one of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.delivery import actions
from kumquat.core.delivery.state import Groups
from kumquat.core.delivery.tests.rig import SID, stored

if TYPE_CHECKING:
    from kumquat.core.delivery.actions import Action

END = 40


def dying(groups: Groups) -> set[int]:
    progress = groups.by_id[1].progress.get(SID)
    found = () if progress is None else progress.doomed.values()
    return {sequence for each in found for sequence in range(each.first, each.end)}


def moves(to: int) -> dict[str, list[Action]]:
    return {
        "OffsetCommit or reset of a consumer group": [
            actions.Drop(1, SID, to),
            actions.Commit(1, SID, to, -1, ""),
        ],
        "reset of a share group": [actions.Drop(1, SID, to), actions.Share(1, SID, to)],
        "AlterShareGroupOffsets": [actions.Share(1, SID, to)],
    }


@pytest.mark.parametrize("move", moves(0))
@given(
    doomed=st.sets(st.integers(0, END - 1)),
    to=st.integers(0, END),
    then_settled=st.sets(st.integers(0, END - 1)),
)
def test_what_is_below_stays_doomed_and_the_rest_comes_again(
    move: str, doomed: set[int], to: int, then_settled: set[int]
) -> None:
    groups = Groups()
    history: list[Action] = [actions.Group(1, "g"), actions.Share(1, SID, END)]
    history += [
        actions.Doomed(1, SID, first, 1, 1, "rejected", "", 1, 1) for first in sorted(doomed)
    ]
    history += moves(to)[move]
    for action in stored(history):
        groups.apply(action)
    assert dying(groups) == {sequence for sequence in doomed if sequence < to}
    # Letters of which only the message log knew, as a start brings them in: they are not delivered again.
    groups.apply(actions.Settle(1, SID, [[first, 1] for first in sorted(then_settled)]))
    if not groups.by_id[1].progress[SID].shared:
        groups.apply(actions.Share(1, SID, to))
    progress = groups.by_id[1].progress[SID]
    comes = {s for part in progress.redelivery for s in range(part.first, part.end)}
    comes |= set(range(progress.cursor, END))
    assert comes == set(range(to, END)) - then_settled
    assert not comes & dying(groups)
    again = Groups()
    for action in stored(groups.snapshot(groups.by_id[1])):
        again.apply(action)
    assert dying(again) == dying(groups)
