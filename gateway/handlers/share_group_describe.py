"""ShareGroupDescribe: share groups and their members. Key 77, version 1.

A group of another type is GROUP_ID_NOT_FOUND. Each member has its own epoch; the group's is the highest.
Every member is shown with every subject that it reads: tools ask for the lag by group
(DescribeShareGroupOffsets), so they count nothing twice. The assignor is called `simple`, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.groups.views import DEAD, held
from kumquat.gateway.handlers.common.authorized import GROUP_OPERATIONS, NOT_ASKED
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    DescribedShareAssignment,
    DescribedShareGroup,
    DescribedShareGroupMember,
    DescribedShareTopicPartitions,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Member
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session

ASSIGNOR = "simple"


def _refuse(
    request: ShareGroupDescribeRequest, code: int, message: str
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[_failed(name, code, message) for name in request.group_ids]
    )


def _failed(name: str, code: int, message: str) -> DescribedShareGroup:
    return DescribedShareGroup(
        error_code=code, error_message=message, group_id=name, group_state=DEAD
    )


@handles(
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
    versions=range(1, 2),
    refuse=_refuse,
)
async def share_group_describe(
    session: Session, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    described = []
    turn = Turn()
    for name in dict.fromkeys(request.group_ids):
        described.append(_describe(session.broker, name))
        if turn.over:
            await turn.give_way()
    allowed = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    for group in described:
        group.authorized_operations = allowed
    return ShareGroupDescribeResponse(groups=described)


def _describe(broker: Broker, name: str) -> DescribedShareGroup:
    if not name:
        return _failed(name, ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
    group = broker.coordinator.groups.by_name.get(name)
    if group is None:
        return _failed(name, ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    if not group.is_share:
        return _failed(name, ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r} is no share group")
    return DescribedShareGroup(
        group_id=name,
        group_state=broker.coordinator.state(group),
        group_epoch=group.generation,
        assignment_epoch=group.generation,
        assignor_name=ASSIGNOR,
        members=[_member(broker, member) for member in group.members.values()],
    )


def _member(broker: Broker, member: Member) -> DescribedShareGroupMember:
    subscribed = set(member.subscription)
    return DescribedShareGroupMember(
        member_id=member.id,
        rack_id=member.rack,
        member_epoch=member.generation,
        client_id=member.client_id,
        client_host=member.host,
        subscribed_topic_names=sorted(subscribed),
        assignment=DescribedShareAssignment(
            [
                DescribedShareTopicPartitions(subject.topic_id, subject.name, [0])
                for subject in held(broker, member)
                if subject.name in subscribed
            ]
        ),
    )
