"""ConsumerGroupHeartbeat: KIP-848 members join, stay, change and leave. Key 68, versions 0 and 1.

What each version added:
  v1  subscription by a pattern; the client chooses its member id (in v0 the broker may)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session


@handles(
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
    versions=range(2),
)
async def consumer_group_heartbeat(
    session: Session, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    return await session.broker.coordinator.consumer_heartbeat(session, request)
