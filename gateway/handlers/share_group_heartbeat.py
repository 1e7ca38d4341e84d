"""ShareGroupHeartbeat: members of share groups join, stay, change and leave. Key 76, version 1.

Version 0 was of Kafka's early access; Kafka has dropped it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session


@handles(
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
    versions=range(1, 2),
)
async def share_group_heartbeat(
    session: Session, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    return await session.broker.coordinator.share_heartbeat(session, request)
