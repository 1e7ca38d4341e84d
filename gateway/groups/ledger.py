"""The durable side of groups, and the only way to change it: actions, appended and applied at once.

`append` is the action log's (ActionService.append_nowait) or, in tests, a list. `position` is what has
to be synced before an answer that builds on what was appended may leave.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.state import Member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.state import Group, Groups


FIELDS = tuple(field.name for field in fields(Member))


class Ledger:
    def __init__(self, groups: Groups, append: Callable[[Sequence[Action]], int]) -> None:
        self.groups = groups
        self._append = append
        self.position = 0

    def append(self, changes: Sequence[Action]) -> None:
        if changes:
            self.position = self._append(changes)

    def make_group(self, name: str) -> Group:
        group = self.groups.by_name.get(name)
        if group is None:
            self.append([actions.Group(self.groups.next_id, name)])
            group = self.groups.by_name[name]
        return group

    def put(self, group: Group, member: Member, **changes: Any) -> Member:
        """A member is there, or has changed; gives it as it is now."""
        self.append([self.member_action(group, replace(member, **changes))])
        return group.members[member.id]

    def give(
        self, group: Group, member: Member, plain: Iterable[int], pull: Iterable[int]
    ) -> Member:
        """It holds these subjects too, in a new generation."""
        holds = dict(member.holds)
        opened: list[Action] = []
        for sid in pull:
            opening = engine.open_pull_log(self.groups, group, sid, member.id)
            opened.append(opening)
            holds[sid] = opening.slot
        holds.update(dict.fromkeys(plain, 0))
        changed = replace(member, holds=holds)
        self.append([*opened, self.member_action(group, changed)])
        return group.members[member.id]

    def take(self, group: Group, member: Member, sids: Iterable[int]) -> Member:
        """It no longer holds these; what it had not acked is delivered again."""
        released, holds = self._released(group, member, set(sids))
        changed = replace(member, holds=holds)
        self.append([*released, self.member_action(group, changed)])
        return group.members[member.id]

    def remove(self, group: Group, member: Member) -> None:
        released, _ = self._released(group, member, set(member.holds))
        self.append([*released, actions.Left(group.id, member.id)])

    def forget_if_unused(self, group: Group) -> None:
        """A group that never had a member, nor a position, leaves nothing behind."""
        if not group.members and not group.progress and not group.last_kind:
            self.append([actions.Forget(group.id)])

    @staticmethod
    def member_action(group: Group, member: Member) -> actions.Member:
        return actions.Member(group.id, {name: getattr(member, name) for name in FIELDS})

    @staticmethod
    def _released(
        group: Group, member: Member, sids: set[int]
    ) -> tuple[list[Action], dict[int, int]]:
        released: list[Action] = [
            actions.Release(group.id, sid, slot)
            for sid, slot in member.holds.items()
            if sid in sids and slot
        ]
        return released, {sid: slot for sid, slot in member.holds.items() if sid not in sids}
