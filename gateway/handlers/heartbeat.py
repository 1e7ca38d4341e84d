"""Heartbeat: a classic member is alive, and learns whether it should rejoin. Key 12, versions 0 to 4.

What each version added:
  v1, v2  throttle time; nothing a client sees
  v3  static members
  v4  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session


@handles(request=HeartbeatRequest, response=HeartbeatResponse, versions=range(5))
def heartbeat(session: Session, request: HeartbeatRequest) -> HeartbeatResponse:
    return session.broker.coordinator.heartbeat(session, request)
