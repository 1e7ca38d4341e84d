"""LeaveGroup: members leave, or are removed by an admin. Key 13, versions 0 to 5.

What each version added:
  v1, v2  throttle time; nothing a client sees
  v3  several members, each by its member id or its instance id, with an error for each
  v4  flexible
  v5  reasons (ignored)
Before v3 the one member's error is the error of the answer: this handler looks at the version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session


@handles(request=LeaveGroupRequest, response=LeaveGroupResponse, versions=range(6))
async def leave_group(session: Session, request: LeaveGroupRequest) -> LeaveGroupResponse:
    coordinator = session.broker.coordinator
    if session.version < 3:
        (code,) = await coordinator.leave(session, request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(error_code=code)
    leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    codes = await coordinator.leave(session, request.group_id, leaving)
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id, instance_id, code)
            for (member_id, instance_id), code in zip(leaving, codes, strict=True)
        ]
    )
