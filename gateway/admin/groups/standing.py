"""How far a group is in a subject, in numbers that an operator can act on.

Each message that the group has not finished is counted in exactly one of these:

    in_flight   leased: some member has it
    again       given back, and for whoever asks next
    waiting     given back, and to be delivered again when its time comes; the first of them at `next_due`
    doomed      to become a dead letter, which is not durable yet
    behind      never handed out: from the cursor (with plain offsets: the position) to the high watermark

`lag` is their sum: how many messages are left to do. Lag tools for Kafka show the distance from the lowest
of them to the high watermark, which is more where messages above the lowest are done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kumquat.core.delivery.state import SHARE
from kumquat.gateway.groups.membership.protocol import CLIENT_ASSIGNED
from kumquat.gateway.groups.views import group_type

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group, Progress
    from kumquat.core.logs.messages.subject import Subject

SHARED, EXCLUSIVE = "shared", "exclusive"


def kind(group: Group) -> str:
    """How its members speak to the broker; of a group without members, how the last one did."""
    if group.is_share:
        return SHARE
    kinds = {member.kind for member in group.members.values()} or {group.last_kind}
    return "client-assigned" if CLIENT_ASSIGNED in kinds else group_type(group)


def mode(progress: Progress) -> str:
    return SHARED if progress.shared else EXCLUSIVE


def standing(progress: Progress, subject: Subject) -> dict[str, Any]:
    """The position is null where the group has none yet, and so is its lag."""
    position = progress.lowest_unacked()
    if position is not None and position < 0:  # a client committed "the earliest" or "the latest"
        position = None
    begin = progress.cursor if progress.shared else position
    behind = None if begin is None else max(0, subject.readable_end - begin)
    return {
        "position": position,
        "cursor": progress.cursor if progress.shared else None,
        "high_watermark": subject.readable_end,
        "lag": None if behind is None else behind + progress.unacked,
        "behind": behind,
        "in_flight": progress.leased,
        "again": progress.redelivery.total,
        "waiting": progress.waiting.total,
        "next_due": progress.waiting.next_due,
        "doomed": progress.dying,
        "expired": progress.expired,
    }
