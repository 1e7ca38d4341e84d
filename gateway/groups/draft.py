"""What a decision has done so far: the actions to append, who is to be answered, what is to be looked at.

A decision (a request, a deadline that has passed, news from the rest of the broker) reads and changes
the groups as if it were alone. What it does goes through the one Draft, and can be taken back:

    what                           how                                      taken back by
    members, positions, pull logs  `append`: actions, applied at once so    `remember` in undo.py
                                   that the decision sees where they lead
    rosters, barriers, bindings    changed in place, after `undo.keep`,     `undo`
                                   `undo.item` or `undo.whole`
    timers, clocks of new members  Deadlines.set and drop                   `undo`, by Deadlines itself
    session clocks                 Deadlines.move_on                        stays: the member was heard
    answers to held requests       `answer`                                 never sent
    hand-outs, held JoinGroups     `touch`: to be looked at afterwards      never looked at
    lines in the log               `note`                                   never logged

`finish` puts the members, positions and pull logs back as they were and gives the Effects; the action
log then writes the actions in one frame and applies them, as it does for everybody (coordinator.py). So
what runs and what a replay makes of the log cannot differ. When the write fails, `discard` takes the
rest back too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from kumquat.core.delivery import actions, engine
from kumquat.core.delivery.give_back import Delay, RetryPolicy, give_back
from kumquat.core.delivery.state import SHARE, Member
from kumquat.core.delivery.undo import Undo, remember

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.pull_log import Lease
    from kumquat.core.delivery.state import Group, Groups
    from kumquat.gateway.groups.membership.roster import Ticket

FIELDS = tuple(field.name for field in fields(Member))
Pair = tuple[int, int]
"""A group's id and a subject's."""


@dataclass(slots=True)
class Effects:
    """What a decision comes to."""

    actions: list[Action]
    """To be appended in one frame, all or none."""
    heard: list[Action]
    """Signs of life. They go along; that they cannot be written is no reason to refuse a request."""
    answers: list[tuple[Ticket, Any]]
    """Held requests that are to be answered."""
    touched: dict[Pair, None]
    """Where more may be handed out, or a held JoinGroup answered."""
    notes: list[tuple[logging.Logger, int, str, tuple[object, ...]]]


class Draft:
    def __init__(
        self,
        groups: Groups,
        now_ms: Callable[[], int],
        retry_policy: Callable[[Group], RetryPolicy],
    ) -> None:
        self.groups = groups
        self.undo = Undo()
        """Of what is not durable."""
        self._now_ms = now_ms
        self._retry_policy = retry_policy
        self._applied = Undo()
        self.is_empty = True
        """The decision has no effects (it may have set session clocks, or bound a connection)."""
        self._effects = Effects([], [], [], {}, [])

    # --- the end of a decision -------------------------------------------------------------------

    def finish(self) -> Effects:
        """What was decided. All that is durable is as it was before."""
        self._applied.revert()
        effects, self._effects = self._effects, Effects([], [], [], {}, [])
        self.is_empty = True
        return effects

    def keep(self) -> None:
        """The effects are written: what is not durable stays as the decision left it."""
        self.undo.clear()

    def discard(self) -> None:
        """All is as it was before the decision."""
        self.finish()
        self.undo.revert()

    # --- what a decision does --------------------------------------------------------------------

    def append(self, changes: Sequence[Action]) -> None:
        self.groups.now_ms = self._now_ms()
        for action in changes:
            remember(self._applied, self.groups, action)
            self.groups.apply(action)
        self.append_last(changes)

    def append_last(self, changes: Sequence[Action]) -> None:
        """Likewise, where the decision does not look at what becomes of them: for commits, which are
        many."""
        if changes:
            self._effects.actions += changes
            self.is_empty = False

    def hear(self, gid: int, member_id: str) -> None:
        if (gid, member_id) in self.groups.silent:
            self._effects.heard.append(actions.Heard(gid, member_id))
            self.is_empty = False

    def answer(self, ticket: Ticket, answer: Any) -> None:
        self._effects.answers.append((ticket, answer))
        self.is_empty = False

    def touch(self, gid: int, subject_id: int) -> None:
        self._effects.touched[gid, subject_id] = None
        self.is_empty = False

    def note(self, logger: logging.Logger, level: int, text: str, *arguments: object) -> None:
        self._effects.notes.append((logger, level, text, arguments))
        self.is_empty = False

    # --- actions that belong together ------------------------------------------------------------

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
        """It holds these subjects too."""
        holds = dict(member.holds)
        share = member.kind == SHARE
        for subject_id in pull:
            kept = group.progress[subject_id].log_of(member.id) if share else None
            if kept is None:
                opening = engine.open_pull_log(
                    self.groups, group, subject_id, member.id, share=share
                )
                self.append([opening])
                holds[subject_id] = opening.slot
            else:  # it left, and is back while its share session goes on
                holds[subject_id] = kept.slot
        holds.update(dict.fromkeys(plain, 0))
        return self.put(group, member, holds=holds)

    def take(self, group: Group, member: Member, subject_ids: Iterable[int]) -> Member:
        """It no longer holds these; what it had not acked is delivered again."""
        taken = set(subject_ids)
        self._release(group, member, taken)
        holds = {
            subject_id: slot for subject_id, slot in member.holds.items() if subject_id not in taken
        }
        return self.put(group, member, holds=holds)

    def remove(self, group: Group, member: Member, counted: Container[int], delay: Delay) -> None:
        """It is gone. Of the subjects in `counted`, what it had not acked is delivered again as a further
        attempt, after that delay."""
        for subject_id, slot in member.holds.items():
            if slot and subject_id in counted:
                self.give_back(group, subject_id, slot, delay)
        self._release(group, member, set(member.holds))
        self.append([actions.Left(group.id, member.id)])

    def remove_sharer(self, group: Group, member: Member) -> None:
        """It has left a share group, and its share session goes on: what it has leased stays its own, so
        that it can still acknowledge it. The end of the session gives it back."""
        idle = {
            subject_id
            for subject_id, slot in member.holds.items()
            if not group.progress[subject_id].pull_logs[slot].leases
        }
        self._release(group, member, idle)
        self.append([actions.Left(group.id, member.id)])

    def give_back(self, group: Group, subject_id: int, slot: int, delay: Delay) -> None:
        """Deliveries through a pull log have failed."""
        leases = group.progress[subject_id].pull_logs[slot].leases
        self.give_back_some(group, subject_id, slot, leases, delay)

    def give_back_some(
        self, group: Group, subject_id: int, slot: int, leases: Iterable[Lease], delay: Delay | None
    ) -> None:
        """These have; None: they are to be delivered again at once, as the same attempt."""
        if delay is None:
            ranges = [[lease.first, lease.size, lease.attempt, 0] for lease in leases]
            self.append([actions.Retry(group.id, subject_id, slot, ranges)])
        else:
            policy, now = self._retry_policy(group), self._now_ms()
            self.append(give_back(group.id, subject_id, slot, leases, policy, now, delay))

    def forget_if_unused(self, group: Group) -> None:
        """A group that never had a member, nor a position, leaves nothing behind."""
        if not group.members and not group.progress and not group.last_kind:
            self.append([actions.Forget(group.id)])

    @staticmethod
    def member_action(group: Group, member: Member) -> actions.Member:
        return actions.Member(group.id, {name: getattr(member, name) for name in FIELDS})

    def _release(self, group: Group, member: Member, subject_ids: set[int]) -> None:
        self.append(
            [
                actions.Release(group.id, subject_id, slot)
                for subject_id, slot in member.holds.items()
                if subject_id in subject_ids and slot
            ]
        )
