"""DescribeGroups: members of groups and what they hold. Key 15, versions 0 to 6.

What each version added:
  v1, v2  nothing a client sees here
  v3  authorized operations
  v4  static members' instance ids
  v5  flexible
  v6  a group that is not there is GROUP_ID_NOT_FOUND, with a message; before, it is Dead, without an error

Where the broker assigns, each member is shown with what it holds now. Of the members that share a subject
one is shown with its partition (groups/views.py). Groups with KIP-848 members are shown too (Kafka does
not find them here), since many admin clients know no other request. Share groups are GROUP_ID_NOT_FOUND, as
in Kafka: clients then ask ShareGroupDescribe. If a group does not share because of
a client that is not known to work with it, the reason follows the assignor's name
(gateway/groups/assignment/sharers.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.dead_letters.open_letters import INTERNAL_GROUP
from kumquat.gateway.groups.membership.protocol import unpack
from kumquat.gateway.groups.views import (
    DEAD,
    assignment,
    explained,
    fronts,
    protocol,
    protocol_type,
)
from kumquat.gateway.handlers.common.authorized import GROUP_OPERATIONS, NOT_ASKED
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kumquat.gateway.wire.codes import ErrorCode

MISSING_FROM = 6

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.core.delivery.state import Member
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session


def _refuse(request: DescribeGroupsRequest, code: int, message: str) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[DescribedGroup(code, group_id=name, group_state=DEAD) for name in request.groups]
    )


@handles(
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    versions=range(7),
    refuse=_refuse,
)
async def describe_groups(
    session: Session, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    described = []
    turn = Turn()
    for name in dict.fromkeys(request.groups):
        described.append(_describe(session.broker, name))
        if turn.over:
            await turn.give_way()
    allowed = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    for group in described:
        group.authorized_operations = allowed
        if session.version < MISSING_FROM:
            group.error_message = None
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                group.error_code = ErrorCode.NONE
    return DescribeGroupsResponse(groups=described)


def _describe(broker: Broker, name: str) -> DescribedGroup:
    if not name:
        return _failed(name, ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
    group = broker.coordinator.groups.by_name.get(name)
    if group is None or name == INTERNAL_GROUP:
        return _failed(name, ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    if group.is_share:
        message = f"group {name!r} is a share group: ask ShareGroupDescribe"
        return _failed(name, ErrorCode.GROUP_ID_NOT_FOUND, message)
    front = fronts(group)
    return DescribedGroup(
        group_id=name,
        group_state=broker.coordinator.state(group),
        protocol_type=protocol_type(group),
        protocol_data=explained(protocol(group), broker.coordinator.why_exclusive(group)),
        members=[_member(broker, member, front) for member in group.members.values()],
    )


def _failed(name: str, code: int, message: str) -> DescribedGroup:
    return DescribedGroup(code, message, group_id=name, group_state=DEAD)


def _member(broker: Broker, member: Member, front: Mapping[int, str]) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.host,
        member_metadata=unpack(member.metadata),
        member_assignment=assignment(broker, member, front),
    )
