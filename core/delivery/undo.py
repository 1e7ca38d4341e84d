"""Taking changes back: how a request that cannot be written leaves everything as it was.

`Undo` is a list of old values. Who is about to change something says so first:

    keep(object)        its attributes; of those in its class's KEPT, which are containers, a copy
    item(mapping, key)  one entry: it is set, replaced or removed
    whole(container)    all of a dict or set: entries are removed, and their order counts
    call(function, …)   anything else: what is to be called

`revert` puts the old values back, the last first.

`remember` does this for an action that is about to be applied to the groups (state.py). It knows the
actions that decisions of the gateway make; those that a Fetch makes are one to a write, and are applied
only when they are written.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from operator import attrgetter
from typing import Any

from kumquat.core.delivery import actions
from kumquat.core.delivery.actions import Action
from kumquat.core.delivery.progress import FEW, Doomed, Progress
from kumquat.core.delivery.state import Groups

_MISSING: Any = object()


class Undo:
    __slots__ = ("_kept", "_steps")

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._kept: dict[int, object] = {}
        """By their ids; the objects too, so that no other gets the same id meanwhile."""

    def keep(self, thing: Any) -> None:
        """The attributes of an object may change from here on."""
        if id(thing) in self._kept:
            return
        self._kept[id(thing)] = thing
        names, read, containers = _READERS.get(type(thing)) or _reader(type(thing))
        copies = [(name, getattr(thing, name).copy()) for name in containers]
        self._steps.append((_set_attributes, (thing, names, read(thing), copies)))

    def item(self, mapping: MutableMapping[Any, Any], key: Any) -> None:
        self._steps.append((_set_item, (mapping, key, mapping.get(key, _MISSING))))

    def whole(self, container: dict[Any, Any] | set[Any]) -> None:
        """The first copy is enough: thousands may be removed one by one."""
        if id(container) not in self._kept:
            self._kept[id(container)] = container
            self._steps.append((_set_all, (container, container.copy())))

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        self._steps.append((function, arguments))

    def revert(self) -> None:
        if self._steps:
            while self._steps:
                function, arguments = self._steps.pop()
                function(*arguments)
            self._kept.clear()

    def clear(self) -> None:
        """What was changed stays."""
        if self._steps:
            self._steps.clear()
            self._kept.clear()


_READERS: dict[type, tuple[tuple[str, ...], Callable[[Any], Any], tuple[str, ...]]] = {}
"""By class: attributes, what reads them all at once, and those that are containers to be copied."""


def _reader(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], Any], tuple[str, ...]]:
    containers = getattr(kind, "KEPT", ())
    slots = [name for one in kind.__mro__ for name in getattr(one, "__slots__", ())]
    names = tuple(name for name in slots if name not in containers)
    assert len(names) > 1, "of one name, attrgetter would give no tuple"
    found = _READERS[kind] = names, attrgetter(*names), containers
    return found


def _set_attributes(
    thing: object, names: tuple[str, ...], old: tuple[Any, ...], copies: list[tuple[str, Any]]
) -> None:
    for name, value in zip(names, old, strict=True):
        setattr(thing, name, value)
    for name, value in copies:
        setattr(thing, name, value)


def _set_item(mapping: MutableMapping[Any, Any], key: Any, old: Any) -> None:
    if old is _MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = old


def _set_all(container: dict[Any, Any] | set[Any], old: dict[Any, Any] | set[Any]) -> None:
    container.clear()
    container.update(old)


def remember(undo: Undo, groups: Groups, action: Action) -> None:
    """What it takes to take an action back, which is about to be applied."""
    match action:
        case actions.Group():
            _remember_group(undo, groups, action)
        case actions.Forget():
            _remember_forget(undo, groups, action.gid)
        case actions.Member():
            group = groups.by_id[action.gid]
            undo.keep(group)
            undo.item(group.members, action.fields["id"])
        case actions.Left():
            group = groups.by_id[action.gid]
            undo.keep(group)
            undo.whole(group.members)
            undo.item(groups.silent, (action.gid, action.member_id))
        case actions.Commit():
            _remember_progress(undo, groups, action.gid, action.subject_id)
        case actions.Share() | actions.Expire() | actions.Settle():
            _remember_all(undo, groups, action.gid, action.subject_id)
        case actions.Doom():
            _remember_doom(undo, groups, action)
        case actions.Retry():
            _remember_retry(undo, groups, action)
        case actions.Unshare() | actions.InOrder():
            _remember_slots(undo, groups, action.gid, action.subject_id)
        case actions.Drop():
            _remember_slots(undo, groups, action.gid, action.subject_id)
            undo.whole(groups.by_id[action.gid].progress)
        case actions.Slot():
            _remember_slot(undo, groups, action)
        case actions.Ack():
            progress = _remember_progress(undo, groups, action.gid, action.subject_id)
            assert progress is not None
            undo.keep(progress.pull_logs[action.slot])
        case actions.Release():
            _remember_release(undo, groups, action.gid, action.subject_id, action.slot)
        case actions.Gone():
            _remember_gone(undo, groups, action.subject_id)
        case actions.Heard():
            undo.item(groups.silent, (action.gid, action.member_id))
        case actions.Silent():
            undo.whole(groups.silent)
        case _:
            raise TypeError(f"no decision makes {action}")


def _remember_group(undo: Undo, groups: Groups, action: actions.Group) -> None:
    for known in (groups.by_id.get(action.gid), groups.by_name.get(action.name)):
        if known is not None:
            _remember_forget(undo, groups, known.id)
    undo.item(groups.by_id, action.gid)
    undo.item(groups.by_name, action.name)
    undo.call(setattr, groups, "next_id", groups.next_id)


def _remember_forget(undo: Undo, groups: Groups, gid: int) -> None:
    group = groups.by_id[gid]
    undo.item(groups.by_id, gid)
    undo.item(groups.by_name, group.name)
    for subject_id in group.progress:
        _remember_slots(undo, groups, gid, subject_id)
    for member_id in group.members:
        undo.item(groups.silent, (gid, member_id))


def _remember_progress(undo: Undo, groups: Groups, gid: int, subject_id: int) -> Progress | None:
    """None: the group has none of the subject yet, or no longer."""
    group = groups.by_id[gid]
    progress = group.progress.get(subject_id)
    if progress is None:
        undo.item(group.progress, subject_id)
    else:
        undo.keep(progress)
    return progress


def _remember_all(undo: Undo, groups: Groups, gid: int, subject_id: int) -> None:
    """Messages may be taken from wherever they are."""
    progress = _remember_places(undo, groups, gid, subject_id)
    if progress is not None:
        undo.whole(progress.doomed)


def _remember_places(undo: Undo, groups: Groups, gid: int, subject_id: int) -> Progress | None:
    """The same, but for those that are doomed."""
    progress = _remember_progress(undo, groups, gid, subject_id)
    if progress is not None:
        for log in progress.pull_logs.values():
            undo.keep(log)
    return progress


def _remember_doom(undo: Undo, groups: Groups, action: actions.Doom) -> None:
    """100,000 may be doomed while a client rejects more, message by message. As a rule none of the new ones
    is doomed already: then they are added at the end, and nothing is copied."""
    progress = _remember_places(undo, groups, action.gid, action.subject_id)
    if progress is None:
        return
    doomed = progress.doomed
    if len(action.ranges) <= FEW and not any(
        progress.doomed_in(first, first + size) for first, size, _ in action.ranges
    ):
        undo.call(_shorten, doomed, len(doomed))
    else:
        undo.whole(doomed)


def _shorten(doomed: dict[int, Doomed], size: int) -> None:
    """Take out those that were added last."""
    while len(doomed) > size:
        doomed.popitem()


def _remember_retry(undo: Undo, groups: Groups, action: actions.Retry) -> None:
    """As a rule they are all in one pull log."""
    progress = _remember_progress(undo, groups, action.gid, action.subject_id)
    log = None if progress is None else progress.pull_logs.get(action.slot)
    if log is None:
        _remember_all(undo, groups, action.gid, action.subject_id)
    else:
        undo.keep(log)


def _remember_numbers(undo: Undo, groups: Groups, subject_id: int) -> None:
    numbers = groups.numbers.get(subject_id)
    if numbers is None:
        undo.item(groups.numbers, subject_id)
    else:
        undo.keep(numbers)


def _remember_slots(undo: Undo, groups: Groups, gid: int, subject_id: int) -> None:
    """All pull logs of a group end."""
    progress = _remember_progress(undo, groups, gid, subject_id)
    if progress is not None and progress.pull_logs:
        _remember_numbers(undo, groups, subject_id)
        undo.whole(groups.slots[subject_id])


def _remember_slot(undo: Undo, groups: Groups, action: actions.Slot) -> None:
    subject_id, slots = action.subject_id, groups.slots.get(action.subject_id)
    taken = None if slots is None else slots.get(action.slot)
    if taken is not None:
        _remember_release(undo, groups, taken[0].id, subject_id, action.slot)
    if slots is None:
        undo.item(groups.slots, subject_id)
    else:
        undo.item(slots, action.slot)
    _remember_progress(undo, groups, action.gid, subject_id)
    _remember_numbers(undo, groups, subject_id)


def _remember_release(undo: Undo, groups: Groups, gid: int, subject_id: int, slot: int) -> None:
    progress = _remember_progress(undo, groups, gid, subject_id)
    assert progress is not None
    _remember_numbers(undo, groups, subject_id)
    undo.item(groups.slots[subject_id], slot)


def _remember_gone(undo: Undo, groups: Groups, subject_id: int) -> None:
    for group in groups.by_id.values():
        if subject_id in group.progress:
            undo.whole(group.progress)
        for member in group.members.values():
            if subject_id in member.holds:
                undo.whole(member.holds)
    undo.item(groups.slots, subject_id)
    undo.item(groups.numbers, subject_id)
