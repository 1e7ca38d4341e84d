"""An action that was applied and taken back has never been: whatever the state, whatever the action."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.ranges import Range
from kumquat.core.delivery.state import Groups, Member
from kumquat.core.delivery.undo import Undo, remember

GIDS, SIDS, MEMBERS = [1, 2], [5, 6], ["m", "n"]


def shape(groups: Groups) -> dict[str, Any]:
    """All of it, in its order where that counts."""
    return {
        "groups": {gid: groups.snapshot(group) for gid, group in groups.by_id.items()},
        "names": {name: group.id for name, group in groups.by_name.items()},
        "slots": {
            subject_id: dict.fromkeys(slots) for subject_id, slots in groups.slots.items() if slots
        },
        "numbers": {subject_id: (n.given, n.top) for subject_id, n in groups.numbers.items()},
        "next": groups.next_id,
        "silent": dict(groups.silent),
    }


def identities(groups: Groups) -> dict[object, int]:
    """Objects that others hold on to: pull logs and groups."""
    found: dict[object, int] = {gid: id(group) for gid, group in groups.by_id.items()}
    for subject_id, slots in groups.slots.items():
        for slot, (group, log) in slots.items():
            assert group.progress[subject_id].pull_logs[slot] is log
            found[subject_id, slot] = id(log)
    return found


def made(
    groups: Groups, kind: str, gid: int, subject_id: int, member_id: str, n: int
) -> Action | None:
    """An action of this kind that fits the groups; None: there is none."""
    if kind == "group":
        return actions.Group(groups.next_id, f"g{groups.next_id}")
    if kind in ("gone", "silent"):
        return actions.Gone(subject_id) if kind == "gone" else actions.Silent(n)
    group = groups.by_id.get(gid)
    if group is None:
        return None
    progress = group.progress.get(subject_id)
    log = next(iter(progress.pull_logs.values()), None) if progress is not None else None
    simple: dict[str, Action] = {
        "forget": actions.Forget(gid),
        "left": actions.Left(gid, member_id),
        "commit": actions.Commit(gid, subject_id, n, -1, ""),
        "share": actions.Share(gid, subject_id, n),
        "expire": actions.Expire(gid, subject_id, n),
        "drop": actions.Drop(gid, subject_id, n if n % 2 else None),
        "heard": actions.Heard(gid, member_id),
    }
    if kind in simple:
        return simple[kind]
    if kind == "member":
        member = Member(member_id, n, "eager", "c", "h", 1, 1, holds={subject_id: n % 2})
        return actions.Member(gid, {name: getattr(member, name) for name in Member.__slots__})
    if kind == "slot":
        return engine.open_pull_log(groups, group, subject_id, member_id)
    if progress is None:
        return None
    if kind == "unshare":
        return actions.Unshare(gid, subject_id) if progress.settled else None
    if kind == "inorder":
        return actions.InOrder(gid, subject_id, n) if progress.shared else None
    if log is None:
        return None
    if kind == "release":
        return actions.Release(gid, subject_id, log.slot)
    if kind == "pull":
        return engine.pull_action(gid, subject_id, log, [Range(progress.cursor, n + 1, 1)])
    return engine.ack(gid, subject_id, log, log.position + n)


KINDS = ["group", "forget", "member", "left", "commit", "share", "unshare", "slot"]
KINDS += ["release", "drop", "inorder", "gone", "heard", "silent", "ack", "expire"]
"""`pull` is applied, and never taken back."""
STEPS = st.tuples(
    st.sampled_from([*KINDS, "pull", "pull"]),
    st.sampled_from(GIDS),
    st.sampled_from(SIDS),
    st.sampled_from(MEMBERS),
    st.integers(0, 5),
)


def lived() -> Groups:
    """Two groups of two members that share a subject, some of it leased and acked."""
    groups = Groups()
    for gid in GIDS:
        groups.apply(actions.Group(gid, f"g{gid}"))
        groups.apply(actions.Share(gid, 5, 0))
        for member_id in MEMBERS:
            for kind, n in (("member", 1), ("slot", 0), ("pull", 4), ("ack", 2)):
                action = made(groups, kind, gid, 5, member_id, n)
                if action is not None:
                    groups.apply(action)
    groups.apply(actions.Jump(0))
    return groups


@given(st.lists(st.tuples(STEPS, st.booleans()), min_size=10, max_size=40))
@settings(deadline=None, max_examples=200)
def test_what_is_taken_back_leaves_nothing(history: list[tuple[Any, bool]]) -> None:
    """Runs of actions that are taken back together, between others that stay."""
    groups, undo = lived(), Undo()
    before, objects = copy.deepcopy(shape(groups)), identities(groups)
    for step, taken_back in history:
        action = made(groups, *step)
        if taken_back and action is not None and not isinstance(action, actions.Pull):
            remember(undo, groups, action)
            groups.apply(action)
            continue
        undo.revert()
        assert shape(groups) == before
        assert identities(groups) == objects
        action = made(groups, *step)
        if action is not None and not taken_back:
            groups.apply(action)
        before, objects = copy.deepcopy(shape(groups)), identities(groups)


@pytest.mark.parametrize(
    "action", [actions.Jump(0), actions.Stopped(), actions.Pull(1, 5, 1, 1, [])]
)
def test_what_no_decision_makes_cannot_be_remembered(action: Action) -> None:
    with pytest.raises(TypeError, match="no decision makes"):
        remember(Undo(), Groups(), action)


def test_a_container_is_copied_once_however_much_is_removed() -> None:
    """Thousands of members that time out together would otherwise take gigabytes."""
    groups, undo = Groups(), Undo()
    groups.apply(actions.Group(1, "g"))
    members = groups.by_id[1].members = _Counted()
    for n in range(50):
        member = Member(f"m{n}", 1, "client", "c", "h", 1, 1)
        fields = {name: getattr(member, name) for name in Member.__slots__}
        groups.apply(actions.Member(1, fields))
    before = copy.deepcopy(shape(groups))
    for n in range(50):
        action = actions.Left(1, f"m{n}")
        remember(undo, groups, action)
        groups.apply(action)
    assert members.copies == 1
    undo.revert()
    assert shape(groups) == before


class _Counted(dict[str, Member]):
    copies = 0

    def copy(self) -> dict[str, Member]:
        self.copies += 1
        return dict(self)


def test_an_expire_that_is_taken_back_gives_the_leases_back() -> None:
    groups, undo = lived(), Undo()
    before = copy.deepcopy(shape(groups))
    expire = actions.Expire(1, 5, 5)
    remember(undo, groups, expire)
    groups.apply(expire)
    assert shape(groups) != before
    undo.revert()
    assert shape(groups) == before


@pytest.mark.parametrize(
    "changes",
    [
        [actions.Retry(1, 5, 1, [[5, 1, 2, 900]])],
        [actions.Retry(1, 5, 0, [[5, 1, 2, 900]])],
        [actions.Retry(1, 5, 1, [[5, 1, 2, 900]]), actions.Unshare(1, 5, 0)],
        [actions.Retry(1, 5, 1, [[5, 1, 2, 900]]), actions.InOrder(1, 5, 6)],
        [actions.Retry(1, 5, 1, [[5, 1, 2, 900]]), actions.InOrder(1, 5, 0)],
        [actions.Retry(1, 5, 1, [[5, 1, 2, 900]]), actions.Settle(1, 5, [[0, 12]])],
        [
            actions.Retry(1, 5, 1, [[5, 1, 2, 0]]),
            actions.Doom(1, 5, 1, [[5, 3, 2]], "rejected", ""),
        ],
        [actions.Doom(1, 5, 1, [[5, 1, 1]], "rejected", ""), actions.Share(1, 5, 0)],
        [actions.Expire(1, 5, 30)],
        [actions.Settle(1, 5, [[20, 2], [24, 1]])],
        [actions.Share(1, 5, 25)],
        [actions.Doom(1, 5, 0, [[20, 40, 1]], "unreadable", "rot")],
        [actions.Forget(1)],
        [actions.Gone(5)],
        [actions.Drop(1, 5)],
        [actions.Drop(1, 5, 25)],
        [actions.Drop(1, 5, actions.EVERY), actions.Share(1, 5, 0)],
    ],
)
def test_waiting_and_doomed_messages_are_as_they_were(changes: list[Action]) -> None:
    groups, undo = lived(), Undo()
    progress = groups.by_id[1].progress[5]
    groups.apply(engine.pull_action(1, 5, progress.pull_logs[1], [Range(progress.cursor, 20, 1)]))
    groups.apply(actions.Retry(1, 5, 1, [[20, 2, 2, 700], [22, 1, 2, 800]]))
    groups.apply(actions.Doom(1, 5, 1, [[24, 2, 1]], "attempts", ""))
    before, objects = copy.deepcopy(shape(groups)), identities(groups)
    for action in changes:
        remember(undo, groups, action)
        groups.apply(action)
    assert shape(groups) != before
    undo.revert()
    assert shape(groups) == before
    assert identities(groups) == objects
