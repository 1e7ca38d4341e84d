"""ConsumerGroupDescribe: groups with KIP-848 members. Key 69, versions 0 and 1.

What each version added:
  v1  whether a member speaks KIP-848 (1) or the classic protocol (0); both may be in one group

A group without such members is answered GROUP_ID_NOT_FOUND: clients then ask DescribeGroups. An empty
group has the type of its last member. Each member has its own epoch; the group's is the highest. The
target assignment is what a member holds: a change that is under way shows when it is done. The current
one is the same, except for subjects that are shared: their partition is shown with one member
(groups/views.py). The field for the assignor shows how the group's subjects are read: `exclusive`,
`shared`, or both; and, if a client that is not known to share is the reason why they are not shared,
which one (gateway/groups/assignment/sharers.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.groups.membership.protocol import KIP_848
from kumquat.gateway.groups.views import (
    explained,
    fronts,
    held,
    is_consumer_group,
    modes,
    shown,
)
from kumquat.gateway.handlers.common.authorized import GROUP_OPERATIONS, NOT_ASKED
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedTopicPartitions,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kumquat.core.delivery.state import Member
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session


def _refuse(
    request: ConsumerGroupDescribeRequest, code: int, message: str
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[_failed(name, code, message) for name in request.group_ids]
    )


def _failed(name: str, code: int, message: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(error_code=code, error_message=message, group_id=name)


@handles(
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
    versions=range(2),
    refuse=_refuse,
)
async def consumer_group_describe(
    session: Session, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    described = []
    turn = Turn()
    for name in dict.fromkeys(request.group_ids):
        described.append(_describe(session.broker, name))
        if turn.over:
            await turn.give_way()
    allowed = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    for group in described:
        group.authorized_operations = allowed
    return ConsumerGroupDescribeResponse(groups=described)


def _describe(broker: Broker, name: str) -> DescribedConsumerGroup:
    if not name:
        return _failed(name, ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
    group = broker.coordinator.groups.by_name.get(name)
    if group is None:
        return _failed(name, ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    if not is_consumer_group(group):
        message = f"group {name!r} has no member of the consumer protocol"
        return _failed(name, ErrorCode.GROUP_ID_NOT_FOUND, message)
    front = fronts(group)
    return DescribedConsumerGroup(
        group_id=name,
        group_state=broker.coordinator.state(group),
        group_epoch=group.generation,
        assignment_epoch=group.generation,
        assignor_name=explained(modes(group), broker.coordinator.why_exclusive(group)),
        members=[_member(broker, member, front) for member in group.members.values()],
    )


def _member(
    broker: Broker, member: Member, front: Mapping[int, str]
) -> DescribedConsumerGroupMember:
    return DescribedConsumerGroupMember(
        member_id=member.id,
        instance_id=member.instance_id,
        member_epoch=member.generation,
        client_id=member.client_id,
        client_host=member.host,
        subscribed_topic_names=sorted(member.subscription),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(shown(broker, member, front)),
        target_assignment=_assignment(held(broker, member)),
        member_type=int(member.kind == KIP_848),
    )


def _assignment(subjects: Iterable[Subject]) -> DescribedAssignment:
    return DescribedAssignment(
        [DescribedTopicPartitions(subject.topic_id, subject.name, [0]) for subject in subjects]
    )
