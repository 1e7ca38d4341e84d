"""ShareAcknowledge: what became of the records that a share consumer was given. Key 79, versions 1 and 2.

What each version added:
  v1  the first that is served
  v2  renewals (a type of acknowledgement, and `is_renew_ack`); the answer says how long a lock lasts

The request belongs to the member's share session and counts with its epoch: see shares/sessions.py. Epoch
-1 closes the session: what is acknowledged is applied first, the rest of what the member holds is given
back. A partition is applied as a whole or not at all, and has an error code of its own. Answered when all
of it is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.handlers.common.share_requests import Acknowledging, by_topic, member_of
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.shares.sessions import CLOSES, Partition
from kumquat.gateway.wire import (
    AcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Answerable, Session


@handles(request=ShareAcknowledgeRequest, response=ShareAcknowledgeResponse, versions=range(1, 3))
async def share_acknowledge(
    session: Session, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    shares = session.broker.shares
    member = member_of(request)
    share = shares.sessions.acknowledge(member, request.share_session_epoch)
    acknowledging = Acknowledging(session.broker, member, renews=request.is_renew_ack)
    results = []
    turn = Turn()
    for topic in request.topics:
        for asked in topic.partitions:
            partition = Partition(topic.topic_id, asked.partition_index)
            error = await acknowledging.apply(partition, asked.acknowledgement_batches)
            results.append((partition, _result(partition, error)))
            if turn.over:
                await turn.give_way()
    if request.share_session_epoch == CLOSES:
        shares.close(share)
    await acknowledging.durable()
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.lock_ms(member.group),
        responses=[
            ShareAcknowledgeTopicResponse(topic_id, rows)
            for topic_id, rows in by_topic(results).items()
        ],
    )


def _result(partition: Partition, error: Answerable | None) -> AcknowledgedPartition:
    if error is None:
        return AcknowledgedPartition(partition_index=partition.number)
    return AcknowledgedPartition(
        partition_index=partition.number, error_code=error.error_code, error_message=str(error)
    )
