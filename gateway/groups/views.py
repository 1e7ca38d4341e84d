"""How groups look to those who ask about them: their type, state, and what their members hold.

Type: `share` of a share group, `consumer` as soon as one member speaks KIP-848, else `classic`, as in
Kafka; a group without members
keeps the type and the protocol type of the last one. A group that never had any has no protocol type.

Of the members that share a subject only one is shown with its partition. Tools list a partition's lag
once for each member that has it, so the sum over the rows would be the lag times the members. The
partition is shown with the member that the group's position waits for: the one that has leased the lowest
message that is not acked. So the row names the member to look at. ConsumerGroupDescribe has room for
both: there the target assignment shows what each member reads.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from kumquat.core.delivery.state import SHARE
from kumquat.gateway.groups.membership.protocol import (
    CLIENT_ASSIGNED,
    CONSUMER,
    KIP_848,
    assignment_bytes,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.core.delivery.state import Group, Member, PullLog
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker

CLASSIC = "classic"
DEAD = "Dead"
"""The state of a group that is not there; of all others the coordinator knows it."""


def is_consumer_group(group: Group) -> bool:
    if not group.members:
        return group.last_kind == KIP_848
    return any(member.kind == KIP_848 for member in group.members.values())


def group_type(group: Group) -> str:
    if group.is_share:
        return SHARE
    return CONSUMER if is_consumer_group(group) else CLASSIC


def protocol_type(group: Group) -> str:
    """`consumer`, or whatever the members of a group that assigns itself call it; empty: it had none."""
    members = group.members.values()
    return next((member.protocol_type for member in members), group.last_protocol_type)


def protocol(group: Group) -> str:
    """The assignor that the members speak of; they need not agree, then it is the commonest."""
    names = [member.protocol for member in group.members.values() if member.protocol]
    return max(sorted(set(names)), key=names.count, default="")


def modes(group: Group) -> str:
    """How its subjects are read."""
    found = {"shared" if p.shared else "exclusive" for p in group.progress.values()}
    return "+".join(sorted(found))


def explained(text: str, why: str) -> str:
    """How a group reads, and why not shared, where a client that is not known to share is the reason."""
    return f"{text} (exclusive: {why})" if why else text


def fronts(group: Group) -> dict[int, str]:
    """Subjects that are shared → the member with which the one partition is shown."""
    return {
        subject_id: min(progress.pull_logs.values(), key=_lowest).member_id
        for subject_id, progress in group.progress.items()
        if progress.shared and progress.pull_logs
    }


def _lowest(log: PullLog) -> tuple[float, int]:
    return min((lease.first for lease in log.leases), default=inf), log.slot


def held(broker: Broker, member: Member) -> list[Subject]:
    """The subjects that a member reads, by name."""
    by_id = broker.log.subjects.by_id
    return sorted(
        (by_id[subject_id] for subject_id in member.holds if subject_id in by_id),
        key=lambda s: s.name,
    )


def shown(broker: Broker, member: Member, fronts: Mapping[int, str]) -> list[Subject]:
    """The subjects with which a member is listed: those that it shares only where it is in front."""
    return [
        subject
        for subject in held(broker, member)
        if not member.holds[subject.id] or fronts.get(subject.id) == member.id
    ]


def assignment(broker: Broker, member: Member, fronts: Mapping[int, str]) -> bytes:
    """With what a member is listed, as classic members are told it."""
    if member.kind == CLIENT_ASSIGNED:
        return unpack(member.assignment)
    return assignment_bytes(subject.name for subject in shown(broker, member, fronts))
