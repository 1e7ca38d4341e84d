"""Single actions, each with the mistake that it could make."""

from itertools import pairwise
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kumquat.core.delivery import actions, engine, state
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.give_back import RetryPolicy, fail
from kumquat.core.delivery.policy import SharePolicy
from kumquat.core.delivery.ranges import Range, Ranges
from kumquat.core.delivery.state import FIRST_PULL, JUMP, Groups, PullLog, pull_offset, split_offset
from kumquat.core.errors import GroupMaxSizeReached

SID = 3


def shared(at: int = 0) -> Groups:
    groups = Groups()
    groups.apply(actions.Group(1, "g"))
    groups.apply(actions.Share(1, SID, at))
    return groups


def opened(groups: Groups, member_id: str = "m", gid: int = 1) -> PullLog:
    action = engine.open_pull_log(groups, groups.by_id[gid], SID, member_id)
    groups.apply(action)
    return groups.slots[SID][action.slot][1]


def member(generation: int = 1, holds: dict[str, int] | None = None) -> dict[str, object]:
    return {
        "id": "m",
        "generation": generation,
        "kind": "eager",
        "client_id": "c",
        "host": "h",
        "session_ms": 1,
        "rebalance_ms": 1,
        "holds": holds or {},
    }


def given_out(groups: Groups, log: PullLog, *ranges: tuple[int, int, int]) -> None:
    groups.apply(engine.pull_action(1, SID, log, [Range(*part) for part in ranges]))


def acked(groups: Groups, log: PullLog, pull: int) -> bool:
    action = engine.ack(1, SID, log, pull)
    if action is not None:
        groups.apply(action)
    return action is not None


# --- ranges --------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60), st.integers(1, 20)), max_size=30))
def test_ranges_are_what_a_dict_of_numbers_would_be(steps: list[tuple[bool, int, int]]) -> None:
    ranges, model = Ranges(), dict[int, int]()
    for add, first, size in steps:
        wanted = range(first, first + size)
        if add and not model.keys() & set(wanted):
            ranges.add(Range(first, size, 1 + size % 2))
            model |= dict.fromkeys(wanted, 1 + size % 2)
        elif not add:
            gone = [n for n in wanted if n in model]
            taken = ranges.cut(first, first + size)
            assert [n for part in taken for n in range(part.first, part.end)] == gone
            assert all(model[part.first] == part.attempt for part in taken)
            for number in gone:
                del model[number]
        found = {n: r.attempt for r in ranges for n in range(r.first, r.end)}
        assert found == model
        assert ranges.total == len(model)
        assert ranges.lowest == min(model, default=None)
        pairs = list(ranges)
        assert all(a.end < b.first or a.attempt != b.attempt for a, b in pairwise(pairs)), (
            "neighbours that could be one"
        )
        parts = list(ranges.parts(7, 3))
        assert sum(part.size for part in parts) <= 7
        assert len(parts) <= 3


# --- slots ---------------------------------------------------------------------------------------


def test_offsets_of_the_highest_slot_are_positive() -> None:
    offset = pull_offset(state.MAX_SLOT, (1 << 48) - 1)
    assert offset == (1 << 63) - 1
    assert split_offset(offset) == (state.MAX_SLOT, (1 << 48) - 1)
    assert split_offset(12345) == (0, 12345)


def test_slots_are_unique_over_all_groups_of_a_subject() -> None:
    groups = shared()
    groups.apply(actions.Group(2, "h"))
    groups.apply(actions.Share(2, SID, 0))
    assert [opened(groups, "a").slot, opened(groups, "b", 2).slot, opened(groups, "c").slot] == [
        1,
        2,
        3,
    ]


def test_a_taken_slot_is_passed_over_and_a_used_one_begins_higher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "MAX_SLOT", 3)
    groups = shared()
    first, second = opened(groups, "a"), opened(groups, "b")
    given_out(groups, first, (0, 50, 1))
    given_out(groups, second, (50, 7, 1))
    groups.apply(actions.Release(1, SID, second.slot))
    third = opened(groups, "c")
    assert third.slot == 3
    again = opened(groups, "d")
    assert again.slot == 2, "slot 1 is taken"
    assert again.begin > second.next
    assert not engine.owns(again, second.next)
    with pytest.raises(GroupMaxSizeReached):
        opened(groups, "e")


def test_a_slot_is_taken_from_a_pull_log_whose_release_was_lost() -> None:
    groups = shared()
    log = opened(groups, "a")
    given_out(groups, log, (0, 5, 1))
    groups.apply(actions.Group(2, "h"))
    groups.apply(actions.Slot(2, SID, log.slot, "b", log.next + 1))
    assert groups.slots[SID][log.slot][0].id == 2
    assert not groups.by_id[1].progress[SID].pull_logs
    assert list(groups.by_id[1].progress[SID].redelivery) == [Range(0, 5, 1)]


def test_a_deleted_subject_leaves_nothing_behind() -> None:
    groups = shared()
    log = opened(groups)
    groups.apply(actions.Member(1, member(holds={str(SID): log.slot, "9": 0})))
    groups.apply(actions.Gone(SID))
    assert groups.by_id[1].members["m"].holds == {9: 0}
    assert not groups.slots
    assert not groups.numbers
    assert not groups.by_id[1].progress


# --- acks ----------------------------------------------------------------------------------------


def test_acks_that_say_nothing_new_or_nothing_true_are_not_written() -> None:
    groups = shared()
    log = opened(groups)
    for pull in (-1, 0, log.next - 1, log.next, log.next + 1):
        assert not acked(groups, log, pull)
    given_out(groups, log, (0, 10, 1))
    assert not acked(groups, log, log.begin)
    assert not acked(groups, log, log.next + 1), "past what was given"
    assert acked(groups, log, log.begin + 4)
    assert not acked(groups, log, log.begin + 4), "the same again"
    assert not acked(groups, log, log.begin + 1)
    assert (log.unacked, log.position) == (6, log.begin + 4)
    assert acked(groups, log, log.next)
    assert (log.unacked, log.position) == (0, log.next)
    assert groups.by_id[1].progress[SID].settled


def test_a_commit_in_the_gap_of_an_unclean_start_acks_nothing() -> None:
    groups = shared()
    log = opened(groups)
    given_out(groups, log, (0, 10, 1))
    end = log.next
    groups.apply(actions.Jump(JUMP))
    groups.apply(actions.Jump(JUMP))
    for pull in (end + 1, end + 100, end + JUMP, log.next - 1):
        assert not acked(groups, log, pull)
    assert acked(groups, log, end), "all that is known was given below it"


def test_a_commit_over_messages_that_retention_took_acks_the_others() -> None:
    groups = shared()
    log = opened(groups)
    given_out(groups, log, (0, 10, 1))
    groups.apply(actions.Release(1, SID, log.slot))
    log = opened(groups)
    progress = groups.by_id[1].progress[SID]
    given_out(groups, log, (10, 5, 1), (0, 10, 2))
    expired = engine.overtaken(1, SID, progress, 8)
    assert expired is not None
    assert engine.missed(progress, 8) == 8
    groups.apply(expired)
    assert progress.expired == 8
    assert acked(groups, log, log.begin + 9), "inside what is gone"
    assert log.unacked == 2
    assert acked(groups, log, log.next)
    assert progress.settled


def test_entries_are_served_again_from_where_they_are_asked_for() -> None:
    groups = shared()
    log = opened(groups)
    given_out(groups, log, (0, 10, 1))
    given_out(groups, log, (10, 10, 1))
    assert [tuple(lease[:3]) for lease in engine.leases_from(log, log.begin + 5)] == [
        (log.begin + 5, 5, 5),
        (log.begin + 10, 10, 10),
    ]
    acked(groups, log, log.begin + 12)
    assert [lease.first for lease in engine.leases_from(log, log.begin)] == [12]
    assert engine.leases_from(log, log.next) == []


# --- positions -------------------------------------------------------------------------------------


def test_the_position_for_lag_tools_is_the_lowest_unacked_and_ends_at_the_cursor() -> None:
    groups = shared(100)
    progress = groups.by_id[1].progress[SID]
    first, second = opened(groups, "a"), opened(groups, "b")
    assert progress.lowest_unacked() == 100
    given_out(groups, first, (100, 10, 1))
    given_out(groups, second, (110, 10, 1))
    acked(groups, second, second.next)
    assert progress.lowest_unacked() == 100
    groups.apply(actions.Release(1, SID, first.slot))
    assert progress.lowest_unacked() == 100
    given_out(groups, second, (100, 10, 2))
    acked(groups, second, second.next)
    assert progress.lowest_unacked() == 120


def test_sharing_again_forgets_what_waited_and_what_was_leased() -> None:
    groups = shared()
    first, second = opened(groups, "a"), opened(groups, "b")
    given_out(groups, first, (0, 10, 1))
    given_out(groups, second, (10, 10, 1))
    groups.apply(actions.Release(1, SID, first.slot))
    groups.apply(actions.Share(1, SID, 5))
    progress = groups.by_id[1].progress[SID]
    assert (progress.cursor, progress.settled, second.unacked) == (5, True, 0)
    assert not acked(groups, second, second.next)


def test_a_group_goes_back_to_plain_offsets_only_when_all_is_acked() -> None:
    groups = shared()
    log = opened(groups)
    progress = groups.by_id[1].progress[SID]
    given_out(groups, log, (0, 10, 1))
    assert not progress.settled
    with pytest.raises(ValueError, match="unacked"):
        groups.apply(actions.Unshare(1, SID))
    acked(groups, log, log.next)
    groups.apply(actions.Unshare(1, SID))
    assert (progress.shared, progress.position, groups.slots[SID]) == (False, 10, {})


def test_what_waits_to_be_delivered_again_goes_first_with_its_attempts() -> None:
    groups = shared()
    first, second = opened(groups, "a"), opened(groups, "b")
    progress = groups.by_id[1].progress[SID]
    given_out(groups, first, (0, 2, 1))
    groups.apply(actions.Release(1, SID, first.slot))
    ranges = engine.hand_out(
        progress,
        second,
        SharePolicy(),
        earliest=0,
        readable_end=10,
        sharers=1,
        max_records=4,
        caution=engine.Caution(16, 500),
        now=0.0,
    )
    assert ranges == [Range(0, 2, 1), Range(2, 2, 1)]


def test_nothing_that_retention_took_is_handed_out() -> None:
    groups = shared()
    log = opened(groups)
    progress = groups.by_id[1].progress[SID]
    action = engine.overtaken(1, SID, progress, 7)
    assert action == actions.Expire(1, SID, 7)
    assert engine.missed(progress, 7) == 7
    groups.apply(action)
    assert engine.overtaken(1, SID, progress, 7) is None
    ranges = engine.hand_out(
        progress,
        log,
        SharePolicy(),
        earliest=7,
        readable_end=9,
        sharers=1,
        max_records=500,
        caution=engine.Caution(16, 500),
        now=0.0,
    )
    assert ranges == [Range(7, 1, 1)]


def test_sequences_that_are_no_messages_are_neither_held_nor_missed() -> None:
    groups = shared()
    log = opened(groups)
    progress = groups.by_id[1].progress[SID]
    given_out(groups, log, (0, 4, 1), (4, 4, 1))
    groups.apply(actions.Holes(1, SID, 2, 2))
    groups.apply(actions.Holes(1, SID, 6, 2))
    assert [(lease.first, lease.size) for lease in log.leases] == [(0, 2), (4, 2)]
    assert (progress.unacked, progress.expired) == (4, 0)
    groups.apply(actions.Ack(1, SID, log.slot, log.begin + 6))
    assert progress.settled
    assert progress.lowest_unacked() == 8


# --- groups ----------------------------------------------------------------------------------------


def test_a_group_forgotten_and_recreated_knows_nothing() -> None:
    groups = shared()
    log = opened(groups)
    given_out(groups, log, (0, 10, 1))
    groups.apply(actions.Forget(1))
    assert not groups.by_name
    assert not groups.slots[SID]
    groups.apply(actions.Group(groups.next_id, "g"))
    assert groups.by_name["g"].id == 2
    assert not groups.by_name["g"].progress
    assert groups.next_slot(SID)[1] > log.next, "its pull offsets could come again"


def test_a_generation_is_remembered_when_its_member_is_gone() -> None:
    groups = shared()
    groups.apply(actions.Member(1, member(generation=41)))
    groups.apply(actions.Left(1, "m"))
    twin = Groups()
    for action in groups.snapshot(groups.by_id[1]):
        twin.apply(action)
    assert twin.by_id[1].generation == 41


@pytest.mark.parametrize(
    "action",
    [
        ("nonsense",),
        ("progress", 1, 1),
        actions.Ack(9, SID, 1, 5),
        actions.Pull(1, SID, 9, FIRST_PULL, [[0, 1, 1]]),
        actions.Member(1, {"id": "m", "surprise": 1}),
        actions.Release(1, SID, 9),
        actions.Left(9, "m"),
    ],
)
def test_an_action_that_does_not_fit_changes_nothing(action: Action) -> None:
    groups = shared()
    before = groups.snapshot(groups.by_id[1])
    with pytest.raises((KeyError, TypeError, ValueError)):
        groups.apply(action)
    assert groups.snapshot(groups.by_id[1]) == before


def test_what_is_lost_across_the_cursor_is_passed_over_at_once_and_below_it_only_there() -> None:
    groups = shared()
    log = opened(groups)
    given_out(groups, log, (0, 10, 1))
    groups.apply(actions.Lost(1, SID, 4, 1_000_000))
    progress = groups.by_id[1].progress[SID]
    assert (progress.cursor, progress.unacked, progress.expired) == (1_000_004, 4, 1_000_000)
    groups.apply(actions.Lost(1, SID, 2, 1))
    assert (progress.cursor, progress.unacked, progress.expired) == (1_000_004, 3, 1_000_001)
    groups.apply(actions.Lost(1, SID, 2_000_000, 5))
    assert progress.cursor == 1_000_004


def test_a_retry_at_once_is_not_lost_when_the_group_begins_to_share() -> None:
    """A group that reads in order fails a message, commits past it, and is then shared."""
    groups = Groups()
    groups.apply(actions.Group(1, "g"))
    groups.apply(actions.Retry(1, SID, 0, [[6, 1, 2, 0]]))
    groups.apply(actions.Commit(1, SID, 9, -1, ""))
    groups.apply(actions.Share(1, SID, 9))
    assert [tuple(r[:3]) for r in groups.by_id[1].progress[SID].redelivery] == [(6, 1, 2)]


def test_a_reset_drops_no_dead_letter_below_it() -> None:
    """Of a range of doomed messages, those above come again, and those below are still to be written."""
    groups = shared()
    log = opened(groups)
    given_out(groups, log, (0, 10, 1))
    groups.apply(actions.Doom(1, SID, log.slot, [[2, 6, 1]], "rejected", ""))
    groups.apply(actions.Share(1, SID, 5))
    doomed = groups.by_id[1].progress[SID].doomed
    assert [(each.first, each.end) for each in doomed.values()] == [(2, 5)]


def test_messages_are_settled_and_given_back_one_by_one_while_a_member_holds_thousands_of_leases() -> (
    None
):
    """Each was looked for in all leases, by an own call for each: 3,000 of 6,000 took half a minute."""
    groups, many = shared(), 3_000
    log = opened(groups)
    given_out(groups, log, (0, 2 * many, 1))
    began = thread_time()
    for i in range(many):
        [action] = fail(
            groups,
            groups.by_id[1],
            SID,
            pull_offset(log.slot, log.begin + 2 * i),
            readable_end=2 * many,
            reject=False,
            after_ms=None,
            reason="",
            policy=RetryPolicy(),
            now_ms=1,
        )
        groups.apply(action)
    progress = groups.by_id[1].progress[SID]
    assert (len(log.leases), log.unacked, progress.waiting.total) == (many, many, many)
    groups.apply(actions.Doom(1, SID, 0, [[2 * i, 1, 1] for i in range(many)], "expired", ""))
    groups.apply(actions.Settle(1, SID, [[2 * i, 1] for i in range(many)]))
    assert thread_time() - began < 4.0
    assert (progress.unacked, progress.leased, progress.doomed_span) == (many, many, 1)
