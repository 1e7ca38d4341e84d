"""ShareGroupHeartbeat: members of share groups join, stay, change and leave. Key 76, version 1.

Version 0 was of Kafka's early access; Kafka has dropped it.

A member that leaves while its share session is open keeps what it has leased until the session ends:
librdkafka leaves on one connection while another one takes its last acknowledgements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.groups.membership.share import LEAVE
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.shares.sessions import Member
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
    broker, in_session = session.broker, False
    if request.member_epoch == LEAVE:
        in_session = broker.shares.keep(Member(request.group_id, request.member_id))
    return await broker.coordinator.share_heartbeat(session, request, in_session=in_session)
