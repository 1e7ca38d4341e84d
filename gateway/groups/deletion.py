"""OffsetDelete and DeleteGroups: what an admin has groups forget. Decisions.

Each call looks and forgets in one step: nobody can join in between. So a request that names many things is
to be cut into calls, and what one call has found says nothing about the next.

OffsetDelete
- A subject that a member reads, or is to read, is GROUP_SUBSCRIBED_TO_TOPIC. What the members of a
  client-assigned group read is unknown here: such a group is NON_EMPTY_GROUP.
- A subject in which the group has no position is no error.
- Messages that are to become dead letters still do, and retries that wait are forgotten with the position.

DeleteGroups
- A group with members is NON_EMPTY_GROUP. So is one with messages that are to become dead letters: the
  letter names the group, and is written for it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kumquat.core.delivery import actions
from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.groups.errors import GroupIdNotFound, NonEmptyGroup
from kumquat.gateway.groups.membership.members import check_group_id
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.groups.membership.members import Members

logger = logging.getLogger(__name__)


class Deletion:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._draft = members.draft

    def delete_offsets(self, group_id: str, subjects: Iterable[Subject]) -> list[int]:
        """A code for each subject. GroupError: for all of it."""
        check_group_id(group_id)
        group = self._draft.groups.by_name.get(group_id)
        if group is None or group.is_share:
            raise GroupIdNotFound(f"there is no consumer group {group_id!r}")
        if self._members.peek(group).client_assigned is not None:
            raise NonEmptyGroup(f"group {group_id!r} has members that assign")
        return [self._delete_offset(group, subject) for subject in subjects]

    def _delete_offset(self, group: Group, subject: Subject) -> int:
        roster = self._members.peek(group)
        division = roster.divisions.get(subject.id)
        if subject.deleted:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if division is not None and division.in_use:
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        if subject.id in group.progress:
            self._draft.append([actions.Drop(group.id, subject.id, actions.EVERY)])
            if division is not None:
                self._members.divisions.forget(roster, subject.id)
                self._members.tidy(roster)
        return ErrorCode.NONE

    def delete_group(self, name: str) -> int:
        """The group's code."""
        if not name:
            return ErrorCode.INVALID_GROUP_ID
        group = self._draft.groups.by_name.get(name)
        if group is None or name == INTERNAL_GROUP:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not self._members.is_empty(group):
            return ErrorCode.NON_EMPTY_GROUP
        dying = group.dying
        if dying:
            self._draft.note(
                *(logger, logging.WARNING),
                "group %s is not deleted: %d messages are to become dead letters first. kumquat groups "
                "describe shows why one cannot be written",
                *(name, dying),
            )
            return ErrorCode.NON_EMPTY_GROUP
        roster = self._members.rosters.get(group.id)
        self._draft.append([actions.Forget(group.id)])
        if roster is not None:
            self._members.drop(roster)
        return ErrorCode.NONE
