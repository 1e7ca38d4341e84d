"""Leader epochs: there is one leader for ever, so the epoch is always 0.

A client that knows no epoch sends -1. One that knows a higher epoch than ours has talked to another
broker; it is answered that it should try again, as in Kafka.
"""

from __future__ import annotations

from kumquat.gateway.net.dispatch import Refused
from kumquat.gateway.wire.codes import ErrorCode

CURRENT = 0
UNKNOWN = -1


def check(epoch: int) -> None:
    """Raises Refused when the epoch that a client knows is not ours."""
    if epoch in (CURRENT, UNKNOWN):
        return
    if epoch > CURRENT:
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here")
    raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over")
