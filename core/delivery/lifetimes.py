"""What time does to groups: which offsets, and which groups, are to be forgotten. Decisions only.

As Kafka does it with offsets.retention.minutes:
- A group without members forgets what it has not committed to for that long, counted from the day its last
  member left if that was later.
- A group with members forgets subjects that nobody in it is subscribed to, that long after the last commit.
  Where a client assigns, nobody knows who is subscribed to what, so nothing is forgotten.
- A group with neither members nor positions goes when it has been so for a whole check interval.

Unlike Kafka's, a subject may have messages for which the broker has promised something: they are to be
delivered again later, or to become dead letters. It is not forgotten while there are any.
"""

from __future__ import annotations

from collections.abc import Container

from kumquat.core.delivery import actions
from kumquat.core.delivery.state import Group, Progress


def expired(
    group: Group, in_use: Container[int], now_ms: int, retention_ms: int, idle_ms: int
) -> list[actions.Forget | actions.Drop]:
    """What is to be forgotten of a group. `in_use`: subjects that a member reads or is to read."""
    empty_since = 0 if group.members else group.empty_since
    due = [
        subject_id
        for subject_id, progress in group.progress.items()
        if subject_id not in in_use
        and now_ms - max(progress.committed_at, empty_since) >= retention_ms
        if not _promised(progress)
    ]
    idle = bool(due) or now_ms - empty_since >= idle_ms
    if idle and not group.members and len(due) == len(group.progress):
        return [actions.Forget(group.id)]
    return [actions.Drop(group.id, subject_id) for subject_id in due]


def _promised(progress: Progress) -> bool:
    """Whether messages wait for a retry, or for their dead letters. What is in `redelivery` as a first
    attempt has not failed: it is as unread as what lies above the cursor."""
    return bool(
        progress.doomed
        or progress.waiting.total
        or any(again.attempt > 1 for again in progress.redelivery)
    )
