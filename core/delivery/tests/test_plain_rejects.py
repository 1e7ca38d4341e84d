"""A message that was rejected by a group that reads with plain offsets: it comes again, or dies twice.

Its letter is durable some milliseconds later, long before the group commits past it.
"""

from kumquat.core.delivery import actions, progress
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.give_back import RetryPolicy, fail
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
        high_watermark=1_000_000,
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
