"""A message that was rejected by a group that reads with plain offsets: it comes again, or dies twice.

Its letter is durable some milliseconds later, long before the group commits past it.
"""

from typing import Any

import pytest

from kumquat.core.delivery import actions, progress
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.give_back import Refused, RetryPolicy, fail
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.state import Groups
from kumquat.core.delivery.tests.rig import SID, stored
from kumquat.core.delivery.undo import Undo, remember


def plain(position: int | None = 0) -> Groups:
    groups = Groups()
    groups.apply(actions.Group(1, "g"))
    if position is not None:
        groups.apply(actions.Commit(1, SID, position, -1, ""))
    return groups


def command(groups: Groups, offset: int, *, reject: bool = True) -> list[Action]:
    return fail(
        groups,
        groups.by_id[1],
        SID,
        offset,
        readable_end=1_000_000,
        reject=reject,
        after_ms=None,
        reason="",
        policy=RetryPolicy(),
        now_ms=1,
    )


def rejected(groups: Groups, *offsets: int) -> None:
    """And their letters are durable."""
    for offset in offsets:
        [doom] = command(groups, offset)
        groups.apply(doom)
        groups.apply(actions.Settle(1, SID, [[offset, 1]]))


def restarted(groups: Groups) -> Groups:
    """From the snapshot of the group."""
    again = Groups()
    for action in stored(groups.snapshot(groups.by_id[1])):
        again.apply(action)
    return again


def progress_of(groups: Groups) -> Progress:
    return groups.by_id[1].progress[SID]


def test_a_reject_that_is_sent_again_makes_no_second_letter() -> None:
    """The producer of the command has lost the answer."""
    for position in (None, 0, 3):
        groups = plain(position)
        rejected(groups, 5)
        assert command(groups, 5) == []
        assert command(restarted(groups), 5) == []
        assert len(command(groups, 6)) == 1


def test_a_message_that_has_its_letter_is_not_delivered_when_sharing_begins_below_it() -> None:
    for again in (False, True):
        groups = plain()
        rejected(groups, 5, 6, 9)
        if again:
            groups = restarted(groups)
        groups.apply(actions.Share(1, SID, 2))
        found = progress_of(groups)
        assert [(each.first, each.end) for each in found.redelivery] == [(2, 5), (7, 9)]
        assert (found.cursor, found.done.total) == (10, 0)


def test_who_goes_back_may_reject_once_more() -> None:
    groups = plain(4)
    rejected(groups, 5)
    groups.apply(actions.Commit(1, SID, 2, -1, ""))
    assert len(command(groups, 5)) == 1


def test_a_message_that_has_its_letter_may_be_retried() -> None:
    groups = plain()
    rejected(groups, 5)
    [retry] = command(groups, 5, reject=False)
    groups.apply(retry)
    assert progress_of(groups).waiting.holds(5)
    assert progress_of(groups).done.total == 0


def test_what_is_settled_above_the_position_is_forgotten_in_time() -> None:
    groups = plain()
    rejected(groups, 5, 7)
    groups.apply(actions.Commit(1, SID, 6, -1, ""))
    assert [tuple(each[:2]) for each in progress_of(groups).done] == [(7, 1)]
    groups.apply(actions.Expire(1, SID, 8))
    assert progress_of(groups).done.total == 0
    many = progress.MOST_DONE + 5
    groups.apply(actions.Settle(1, SID, [[10 + 2 * i, 1] for i in range(many)]))
    assert len(progress_of(groups).done) == progress.MOST_DONE
    assert progress_of(groups).done.lowest == 20


def test_a_reject_or_a_commit_that_cannot_be_written_forgets_nothing() -> None:
    groups = plain(4)
    rejected(groups, 5)
    for change in (
        actions.Commit(1, SID, 9, -1, ""),
        actions.Commit(1, SID, 2, -1, ""),
        actions.Share(1, SID, 2),
        actions.Retry(1, SID, 0, [[5, 1, 2, 9]]),
    ):
        undo = Undo()
        remember(undo, groups, change)
        groups.apply(change)
        undo.revert()
        assert command(groups, 5) == []


def test_a_plain_offset_from_the_position_to_the_end_is_believed_read_or_not() -> None:
    """A Fetch does not say for which group it is, so nobody could tell."""
    groups = plain(4)
    with pytest.raises(Refused, match="acked already"):
        command(groups, 3)
    assert [type(each) for each in command(groups, 999_999)] == [actions.Doom]
    with pytest.raises(Refused, match="never delivered"):
        command(groups, 1_000_000)


def test_a_reject_is_remembered_until_as_many_others_as_are_kept_have_followed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then it would make a second letter: a message is rather told twice than forgotten."""
    monkeypatch.setattr(progress, "MOST_DONE", 10)
    groups = plain()
    rejected(groups, *range(0, 20, 2))
    assert command(groups, 0) == []
    rejected(groups, 20)
    assert len(command(groups, 0)) == 1
    assert command(groups, 2) == []
    for offset in (1, 3):
        assert len(command(groups, offset)) == 1, "what lies between two is not settled"


def test_a_reject_copies_nothing_of_those_that_are_doomed() -> None:
    """With letters that cannot be written there may be 100,000."""
    groups = plain()
    doomed = progress_of(groups).doomed = _Counted()
    for offset in range(0, 200, 2):
        [doom] = command(groups, offset)
        undo, before = Undo(), list(doomed.items())
        remember(undo, groups, doom)
        groups.apply(doom)
        assert len(doomed) == len(before) + 1
        undo.revert()
        assert list(doomed.items()) == before
        groups.apply(doom)
        if offset < 10:  # to go through so few costs less
            doomed.walks = 0
    assert doomed.copies == doomed.walks == 0


def test_a_reject_beside_a_long_range_looks_at_few_of_those_that_are_doomed() -> None:
    """A damaged batch may doom 100,000 messages at once."""
    groups = plain()
    groups.apply(actions.Doom(1, SID, 0, [[0, 100_000, 1]], "unreadable", ""))
    found = progress_of(groups)
    assert (found.dying, found.doomed_span) == (100_000, progress.MOST_TOGETHER)
    assert found.is_doomed(77_777)
    assert found.is_doomed(0, 100_000)
    assert not found.is_doomed(99_999, 2)
    assert command(groups, 77_777) == []
    groups.apply(actions.Settle(1, SID, [[50_000, 1000]]))
    assert not found.is_doomed(50_999)
    assert found.is_doomed(51_000, 49_000)
    assert progress_of(restarted(groups)).dying == 99_000


class _Counted(dict[int, progress.Doomed]):
    copies = walks = 0

    def copy(self) -> dict[int, progress.Doomed]:
        self.copies += 1
        return dict(self)

    def values(self) -> Any:
        self.walks += 1
        return super().values()
