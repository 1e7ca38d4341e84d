"""SyncGroup: a classic member gets its assignment; a leader brings all of them. Key 14, versions 0 to 5.

What each version added:
  v1, v2  throttle time; nothing a client sees
  v3  static members
  v4  flexible
  v5  protocol type and name, which have to be the group's
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session


@handles(request=SyncGroupRequest, response=SyncGroupResponse, versions=range(6))
async def sync_group(session: Session, request: SyncGroupRequest) -> SyncGroupResponse:
    return await session.broker.coordinator.sync(session, request)
