"""A client says which message it could not handle: by group, subject, and the offset that it saw.

The message is given back (core/delivery/give_back.py), although the client's commits pass over it. It comes
again through a pull log, so a group that reads in order begins to share (assignment/modes.py). Where it
cannot, a retry is refused: the message could never come again. A reject needs no pull log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.delivery import give_back
from kumquat.core.delivery.give_back import Refused
from kumquat.gateway.groups.assignment.modes import EXCLUSIVE
from kumquat.gateway.groups.membership.members import check_group_id

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.groups.membership.members import Members


class Failure(NamedTuple):
    group: str
    subject: str
    offset: int
    """As the member saw it."""
    reject: bool = False
    """It is to become a dead letter at once."""
    after_ms: int | None = None
    """When it is to come again; None: as the group's configs say."""
    reason: str = ""


class Failures:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._draft = members.draft
        self._world = members.world

    def fail(self, failure: Failure, now: float) -> None:
        """Raises Refused."""
        check_group_id(failure.group)
        group = self._draft.groups.by_name.get(failure.group)
        subject = self._world.subjects.by_name.get(failure.subject)
        if subject is None:
            raise Refused(f"there is no topic {failure.subject!r}")
        if group is None or not self._reads(group, subject):
            raise Refused(f"there is no group {failure.group!r} that reads {failure.subject!r}")
        if not failure.reject:
            self._check_can_share(group, subject)
        changes = give_back.fail(
            self._draft.groups,
            group,
            subject.id,
            failure.offset,
            readable_end=subject.readable_end,
            reject=failure.reject,
            after_ms=failure.after_ms,
            reason=failure.reason,
            policy=self._world.retry_policy(group),
            now_ms=self._world.now_ms(),
        )
        self._draft.append(changes)
        roster = self._members.rosters.get(group.id)
        if changes and roster is not None and subject.id in roster.divisions:
            self._members.divisions.advance(roster, subject.id, now)

    def _reads(self, group: Group, subject: Subject) -> bool:
        """Whether it was, or may have been, given messages of the subject. One that never had any must not
        get retries or dead letters there: nobody would ever take them."""
        if subject.id in group.progress:
            return True
        roster = self._members.peek(group)
        if roster.client_assigned is not None:  # nobody knows what its members read
            return bool(group.members)
        return subject.id in roster.divisions and not group.is_share

    def _check_can_share(self, group: Group, subject: Subject) -> None:
        progress, roster = group.progress.get(subject.id), self._members.peek(group)
        shares = progress is not None and progress.shared
        division, why = roster.divisions.get(subject.id), ""
        if group.is_share:
            return
        if self._world.mode(group.name, subject.id) == EXCLUSIVE:
            why = "the mode is consume.mode=exclusive"
        elif roster.client_assigned is not None:
            why = "its members assign partitions themselves"
        elif not group.members and not group.last_kind:
            why = "it has never had a member, its consumers choose what they read"
        elif not shares and division is not None and division.non_sharers:
            why = f"the client of member {next(iter(division.non_sharers))} is not known to share"
        if why:
            raise Refused(
                f"group {group.name!r} reads {subject.name!r} in order, so no message comes again: {why}. "
                "Set consume.mode=shared for the group, or reject the message"
            )
