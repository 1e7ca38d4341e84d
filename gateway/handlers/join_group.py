"""JoinGroup: a classic member joins, or rejoins. Key 11, versions 0 to 9.

What each version added:
  v1  the rebalance time-out (before: the session time-out counts)
  v2, v3  throttle time; nothing a client sees
  v4  a client without a member id is given one with MEMBER_ID_REQUIRED and has to join again with it
  v5  static members
  v6  flexible
  v7  the protocol type in the answer
  v8  the client's reason (ignored)
  v9  the answer can say that a static leader which comes back should not assign
Versions 4 and 9 change behaviour, so this handler looks at the version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session


def _refuse(request: JoinGroupRequest, code: int, message: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


@handles(request=JoinGroupRequest, response=JoinGroupResponse, versions=range(10), refuse=_refuse)
async def join_group(session: Session, request: JoinGroupRequest) -> JoinGroupResponse:
    return await session.broker.coordinator.join(session, request)
