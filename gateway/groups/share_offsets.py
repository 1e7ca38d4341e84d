"""Where a share group is in its subjects, and how an admin changes that. Decisions.

The start offset of a group on a subject is the lowest message that is not settled; the lag is how many are
not. An admin changes either only while the group has no members (NON_EMPTY_GROUP): then nothing is leased.
What was to be delivered again is forgotten with the old offset, as in Kafka; a message below the new one
that is to become a dead letter still does (core/delivery/progress.py).

`alter` and `delete` give the actions to append, in one frame. A group that was not there comes into being
with its first offset, and is a share group from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.delivery import actions
from kumquat.core.delivery.state import SHARE
from kumquat.gateway.groups.errors import GroupIdNotFound, NonEmptyGroup
from kumquat.gateway.groups.membership.members import check_group_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kumquat.core.delivery.actions import Action
    from kumquat.core.delivery.state import Group, Groups
    from kumquat.core.logs.messages.subject import Subject

NONE = -1


class Start(NamedTuple):
    """Where a group is on a subject."""

    offset: int = NONE
    lag: int = NONE


def start(group: Group | None, subject: Subject) -> Start:
    progress = None if group is None else group.progress.get(subject.id)
    lowest = None if progress is None else progress.lowest_unacked()
    if group is None or not group.is_share or progress is None or lowest is None:
        return Start()
    fresh = max(0, subject.readable_end - max(progress.cursor, subject.earliest))
    return Start(max(lowest, subject.earliest), fresh + progress.unacked)


def find(groups: Groups, group_id: str) -> Group:
    """A share group whose offsets may be changed. Raises GroupError."""
    check_group_id(group_id)
    group = groups.by_name.get(group_id)
    if group is None or not group.is_share:
        raise GroupIdNotFound(f"there is no share group {group_id!r}")
    if group.members:
        raise NonEmptyGroup(
            f"share group {group_id!r} has {len(group.members)} members: stop them first"
        )
    return group


def alter(
    groups: Groups, group_id: str, starts: Mapping[Subject, int], now_ms: int
) -> list[Action]:
    """The group begins there; where a subject does not reach that far, at its nearest end. The group may be
    altered: `check_alterable`."""
    if not starts:
        return []
    group = groups.by_name.get(group_id)
    gid = groups.next_id if group is None else group.id
    made: list[Action] = []
    if group is None:
        made += [actions.Group(gid, group_id), actions.Emptied(gid, SHARE, SHARE, now_ms)]
    for subject, offset in starts.items():
        begin = max(subject.earliest, min(offset, subject.readable_end))
        made.append(actions.Share(gid, subject.id, begin))
    return made


def check_alterable(groups: Groups, group_id: str) -> None:
    """Raises GroupError unless the offsets of a share group of this name may be changed, or made."""
    check_group_id(group_id)
    group = groups.by_name.get(group_id)
    if group is not None:
        find(groups, group_id)


def delete(group: Group, subject_ids: Iterable[int]) -> list[Action]:
    """The group forgets these: it begins again by its share.auto.offset.reset. Doomed messages do not come
    again then: they still become dead letters."""
    return [actions.Drop(group.id, subject_id, actions.EVERY) for subject_id in subject_ids]


def known(group: Group) -> set[int]:
    """The subjects of which a share group has an offset."""
    return {subject_id for subject_id, progress in group.progress.items() if progress.shared}
