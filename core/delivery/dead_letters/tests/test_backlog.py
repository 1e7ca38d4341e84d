"""Dead letters that cannot be written: tried too often, or never again."""

from __future__ import annotations

from time import thread_time

import pytest

from kumquat.core.delivery import actions
from kumquat.core.delivery.dead_letters.backlog import LONGEST_PAUSE, Backlog
from kumquat.core.delivery.state import Groups

PAIR = (1, 7)


def doomed(*sequences: int) -> Groups:
    groups = Groups()
    groups.apply(actions.Group(1, "g"))
    groups.apply(actions.Share(1, 7, 100))
    groups.apply(actions.Slot(1, 7, 1, "m", 1 << 24))
    groups.apply(actions.Pull(1, 7, 1, 1 << 24, [[100, 10, 1]]))
    ranges = [[sequence, 1, 1] for sequence in sequences]
    groups.apply(actions.Doom(1, 7, 1, ranges, "rejected", ""))
    return groups


def backlog(*sequences: int) -> Backlog:
    made = Backlog(doomed(*sequences))
    made.add([PAIR])
    return made


def test_the_next_look_is_never_in_the_past_when_all_of_a_failed_pair_is_left_alone() -> None:
    found = backlog(100)
    found.failed(PAIR, "the disk is full", 0.0)
    for now in (0.0, 1.0, 3.0):
        found.stuck(PAIR, 100, "too large", now)
    now = 4.0
    assert found.ready(now) == []
    due = found.next_due()
    assert due is not None
    assert due > now
    assert found.ready(due) == [PAIR]


def test_a_message_that_is_too_large_does_not_hold_up_its_neighbours() -> None:
    found = backlog(100, 101, 102)
    found.stuck(PAIR, 101, "too large", 0.0)
    assert [each.first for each in found.pick(PAIR, 0.5)] == [100, 102]
    assert [each.first for each in found.pick(PAIR, 1.5)] == [100, 101, 102]


def test_pauses_grow_and_end_when_something_was_written() -> None:
    found = backlog(100)
    now, pauses = 0.0, []
    for _ in range(10):
        found.failed(PAIR, "the disk is full", now)
        due = found.next_due()
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == LONGEST_PAUSE
    assert found.reasons() == {("g", 7): "the disk is full"}
    found.worked(PAIR)
    assert found.reasons() == {}
    assert found.ready(now) == [PAIR]


def test_a_message_that_is_doomed_no_more_is_not_waited_for() -> None:
    """A reset of the group has taken it back. Its time would be past for ever, and the task never sleep."""
    groups = doomed(100, 105)
    found = Backlog(groups)
    found.add([PAIR])
    found.stuck(PAIR, 100, "too large", 0.0)
    found.stuck(PAIR, 105, "too large", 0.0)
    groups.apply(actions.Share(1, 7, 103))
    found.stuck(PAIR, 100, "too large", 1.0)
    now = 1.5
    assert found.ready(now) == []
    due = found.next_due()
    assert due is not None
    assert due > now
    assert found.reasons() == {("g", 7): "message 100: too large"}


def test_many_messages_that_cannot_be_written_cost_no_more_than_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """20,000 of them, each looked at for each other, stopped the broker for half a minute."""
    groups, many = Groups(), 20_000
    groups.apply(actions.Group(1, "g"))
    groups.apply(actions.Share(1, 7, 0))
    groups.apply(actions.Doom(1, 7, 0, [[2 * i, 1, 1] for i in range(many)], "rejected", ""))
    found = Backlog(groups)
    found.add([PAIR])
    began = thread_time()
    for i in range(many):
        found.stuck(PAIR, 2 * i, f"{i} bytes are too many", 0.0)
    assert found.ready(0.5) == []
    assert len(found.pick(PAIR, 1.5)) == 1000
    for i in range(many):
        found.unstuck(PAIR, 2 * i, 2 * i + 1)
    assert thread_time() - began < 2.0
    assert found.reasons() == {}
    assert len(caplog.records) == 1
