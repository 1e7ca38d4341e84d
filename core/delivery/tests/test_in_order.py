"""Back to plain offsets while messages are not acked: what is read in order, and what waits on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.delivery import actions
from kumquat.core.delivery.progress import Progress
from kumquat.core.delivery.state import Groups

SID, NOW, PAST, LATER = 7, 1000, 500, 90_000
ACKED, AGAIN, DUE, WAITS, DOOMED = "acked", "again", "due", "waits", "doomed"
STATES = st.lists(st.sampled_from([ACKED, AGAIN, DUE, WAITS, DOOMED]), min_size=1, max_size=24)


def shared(states: list[str]) -> Groups:
    """A group that was given as many messages, and has come so far with each."""
    groups = Groups()
    done: list[actions.Action] = [
        actions.Group(1, "g"),
        actions.Share(1, SID, 0),
        actions.Slot(1, SID, 1, "m", 1 << 24),
        actions.Pull(1, SID, 1, 1 << 24, [[0, len(states), 1]]),
    ]
    for sequence, state in enumerate(states):
        if state == DOOMED:
            done.append(actions.Doom(1, SID, 1, [[sequence, 1, 1]], "rejected", ""))
        elif state != ACKED:
            due = {AGAIN: 0, DUE: PAST, WAITS: LATER}[state]
            done.append(actions.Retry(1, SID, 1, [[sequence, 1, 2, due]]))
    done += [actions.Ack(1, SID, 1, (1 << 24) + len(states)), actions.Release(1, SID, 1)]
    for action in done:
        groups.apply(action)
    return groups


def left(progress: Progress) -> set[int]:
    again = [*progress.redelivery, *progress.waiting]
    return {n for each in again for n in range(each.first, each.end)}


@settings(deadline=None)
@given(states=STATES, exact=st.booleans())
def test_nothing_is_read_before_its_time_and_what_is_acked_is_known(
    states: list[str], exact: bool
) -> None:
    groups, end = shared(states), len(states)
    progress = groups.by_id[1].progress[SID]
    at = progress.in_order_from(NOW, exact=exact)
    read = states[at:]
    assert WAITS not in read
    if exact:
        assert set(read) <= {AGAIN, DUE}
        assert at == 0 or states[at - 1] not in (AGAIN, DUE)
    else:
        below = [n for n in range(at) if states[n] in (AGAIN, DUE)]
        assert all(WAITS in states[n:] for n in below), "it could have been read in order"
        assert not read or read[0] in (AGAIN, DUE)
    before = left(progress)
    groups.apply(actions.InOrder(1, SID, at))
    assert (progress.shared, progress.position) == (False, at)
    assert left(progress) == {n for n in before if n < at}
    assert {wait.attempt for wait in progress.waiting} <= {2}
    again = Groups()
    for action in groups.snapshot(groups.by_id[1]):
        again.apply(action)
    assert again.snapshot(again.by_id[1]) == groups.snapshot(groups.by_id[1])
    again.apply(actions.Share(1, SID, at))
    assert left(again.by_id[1].progress[SID]) | set(
        range(again.by_id[1].progress[SID].cursor, end)
    ) == (before), "what is acked is not delivered again when sharing begins below it"
