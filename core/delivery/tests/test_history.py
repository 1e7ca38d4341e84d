"""A history that tells of other messages than those that were acked, pulled, given back or given up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.delivery import actions, history
from kumquat.core.delivery.history import Circumstances, events_of
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.pull_log import FIRST_PULL, SHARE_PULL
from kumquat.core.delivery.state import Groups
from kumquat.core.delivery.whereabouts import (
    ACKED,
    DOOMED,
    IN_FLIGHT,
    NOT_DELIVERED,
    WAITING,
    whereabouts,
)

GID, SID = 1, 7
END = 40

STATES = {
    history.PULLED: IN_FLIGHT,
    history.ACKED: ACKED,
    history.RELEASED: WAITING,
    history.RETRIED: WAITING,
    history.DIED: DOOMED,
}


def group(*slots: tuple[int, int]) -> tuple[Groups, Progress]:
    groups = Groups()
    groups.now_ms = 1
    groups.apply(actions.Group(GID, "g"))
    groups.apply(actions.Share(GID, SID, 0))
    for slot, pull in slots:
        groups.apply(actions.Slot(GID, SID, slot, f"m{slot}", pull))
    return groups, groups.by_id[GID].progress[SID]


def state(progress: Progress) -> dict[int, str]:
    return {n: whereabouts(progress, n).state for n in range(END)}


def sequences(ranges: list[list[int]]) -> list[int]:
    return [n for first, count in ranges for n in range(first, first + count)]


@st.composite
def lives(draw: st.DrawFn) -> list[actions.Action]:
    """Decisions as the broker makes them: of what is there, at each moment."""
    slots = [(1, FIRST_PULL), (2, FIRST_PULL), (3, SHARE_PULL), (4, SHARE_PULL)]
    groups, progress = group(*slots)
    made: list[actions.Action] = []

    def do(action: actions.Action) -> None:
        groups.apply(action)
        made.append(action)

    for _ in range(draw(st.integers(1, 25))):
        groups.now_ms += 1
        kind = draw(st.sampled_from(["pull", "pull", "ack", "give back", "doom", "release"]))
        if not progress.pull_logs:
            break
        log = draw(st.sampled_from(list(progress.pull_logs.values())))
        if kind == "pull":
            progress.wake(1 << 40)
            pieces = [[r.first, r.size, r.attempt] for r in progress.redelivery.parts(6, 3)]
            fresh = min(draw(st.integers(0, 8)), END - progress.cursor)
            if fresh:
                pieces.append([progress.cursor, fresh, 1])
            if pieces:
                do(actions.Pull(GID, SID, log.slot, log.next, pieces))
        elif kind == "release":
            do(actions.Release(GID, SID, log.slot))
        elif not log.leases:
            continue
        elif kind == "ack" and log.slot < 3:
            pull = draw(st.integers(log.leases[0].pull + 1, log.next))
            do(actions.Ack(GID, SID, log.slot, pull))
        else:
            lease = draw(st.sampled_from(list(log.leases)))
            skipped = draw(st.integers(0, lease.size - 1))
            part = lease.part(skipped, draw(st.integers(1, lease.size - skipped)))
            if kind == "ack":
                do(actions.Accept(GID, SID, log.slot, [[part.first, part.size]]))
            elif kind == "doom":
                ranges = [[part.first, part.size, part.attempt]]
                do(actions.Doom(GID, SID, log.slot, ranges, actions.REJECTED, "no"))
            else:
                same, due = draw(st.booleans()), draw(st.sampled_from([0, 1 << 39]))
                attempt = part.attempt + (0 if same and log.slot > 2 else 1)
                do(actions.Retry(GID, SID, log.slot, [[part.first, part.size, attempt, due]]))
    return made


@given(lives())
@settings(max_examples=300, deadline=None)
def test_each_event_names_exactly_the_messages_whose_state_changes(
    life: list[actions.Action],
) -> None:
    """What became acked in the state is what the history calls acked, and so for each kind."""
    groups, progress = group((1, FIRST_PULL), (2, FIRST_PULL), (3, SHARE_PULL), (4, SHARE_PULL))
    for action in life:
        groups.now_ms += 1
        if isinstance(action, actions.Pull):
            progress.wake(1 << 40)
        before = state(progress)
        told = events_of(groups, action, Circumstances())
        groups.apply(action)
        after = state(progress)
        expected: dict[str, set[int]] = {}
        for n in range(END):
            if before[n] != after[n]:
                expected.setdefault(after[n], set()).add(n)
        found: dict[str, set[int]] = {}
        for event in told:
            named = sequences(event.ranges)
            assert len(named) == len(set(named))
            found.setdefault(STATES[event.event], set()).update(named)
        assert found == expected, action


def test_a_release_that_comes_behind_a_retry_does_not_tell_of_the_same_messages() -> None:
    groups, _ = group((1, FIRST_PULL))
    groups.apply(actions.Pull(GID, SID, 1, FIRST_PULL, [[0, 4, 1]]))
    beside: list[actions.Action] = [
        actions.Retry(GID, SID, 1, [[0, 4, 2, 99]]),
        actions.Release(GID, SID, 1),
        actions.Left(GID, "m1"),
    ]
    told = []
    for action in beside:
        if type(action) in history.TELLING:
            told += events_of(groups, action, Circumstances({(GID, "m1")}, served=False))
        groups.apply(action)
    assert [(t.event, t.ranges, t.fields["reason"]) for t in told] == [
        (history.RETRIED, [[0, 4]], history.SESSION)
    ]


def test_where_a_message_is_with_plain_offsets() -> None:
    progress = Progress()
    assert whereabouts(progress, 0).state == NOT_DELIVERED
    progress.position = 5
    assert [whereabouts(progress, n).state for n in (4, 5)] == ["below position", NOT_DELIVERED]
    progress.retry(0, [[6, 1, 2, 1 << 40]], 1)
    place = whereabouts(progress, 6)
    assert (place.state, place.due, place.attempt) == (WAITING, 1 << 40, 2)
