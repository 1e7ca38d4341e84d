"""At start: what the action log gives is made to fit.

Actions may have been lost with a damaged part of the log, and a subject deleted just before a crash.
So subjects that are gone are forgotten, and a holding is ended, loudly, where it does not match: a
pull log that is not there or is another's, plain offsets of a subject that is shared or that another
member holds too. A pull log that nobody holds is released. Its client hears of it by the next
assignment that it is told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kumquat.core.delivery import actions

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group, Member
    from kumquat.core.logs.messages.subject import Subjects
    from kumquat.gateway.groups.draft import Draft

logger = logging.getLogger(__name__)


def repair(draft: Draft, subjects: Subjects) -> None:
    groups, known = draft.groups, subjects.by_id
    gone = {
        subject_id
        for group in groups.by_id.values()
        for subject_id in group.progress
        if subject_id not in known
    }
    draft.append([actions.Gone(subject_id) for subject_id in sorted(gone)])
    for group in list(groups.by_id.values()):
        owners: set[int] = set()
        for member in list(group.members.values()):
            wrong = [
                subject_id
                for subject_id in member.holds
                if not _fits(group, member, subject_id, owners, subjects)
            ]
            if wrong:
                holds = {
                    subject_id: slot
                    for subject_id, slot in member.holds.items()
                    if subject_id not in wrong
                }
                draft.put(group, member, holds=holds)
                _note(draft, group, f"member {member.id} does not hold subjects {wrong} after all")
        _release_unheld(draft, group)


def _fits(
    group: Group, member: Member, subject_id: int, owners: set[int], subjects: Subjects
) -> bool:
    slot, progress = member.holds[subject_id], group.progress.get(subject_id)
    if subject_id not in subjects.by_id:
        return False
    if slot:
        log = None if progress is None else progress.pull_logs.get(slot)
        return log is not None and log.member_id == member.id
    if subject_id in owners or (progress is not None and progress.shared):
        return False
    owners.add(subject_id)
    return True


def _release_unheld(draft: Draft, group: Group) -> None:
    for subject_id, progress in group.progress.items():
        for slot, log in list(progress.pull_logs.items()):
            owner = group.members.get(log.member_id)
            if owner is None or owner.holds.get(subject_id) != slot:
                draft.append([actions.Release(group.id, subject_id, slot)])
                _note(draft, group, f"nobody holds slot {slot} of subject {subject_id}")


def _note(draft: Draft, group: Group, what: str) -> None:
    text = "group %s as stored does not fit together: %s"
    draft.note(logger, logging.WARNING, text, group.name, what)
