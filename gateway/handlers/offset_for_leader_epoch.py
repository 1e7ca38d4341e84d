"""OffsetForLeaderEpoch: where a leader epoch ended. Key 23, versions 2 to 4.

What each version added:
  v2  the leader epoch that the client knows: see leader_epoch.py
  v3  replica id (ignored)
  v4  flexible

There is one epoch, 0, and it ends at the high watermark. Of any other nothing is known (-1).

If the epoch ends below a consumer's position, the consumer assumes that messages are lost, and starts
over. Members that share a subject have positions far above its high watermark, and the request does not
say who asks. So where a subject has been shared the epoch ends above all positions: nothing was lost, and
that is what the client asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.pull_log import MAX_PULL, MAX_SLOT, pull_offset
from kumquat.gateway.handlers.common import leader_epoch
from kumquat.gateway.handlers.common.lookup import find_partition
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

BEYOND = pull_offset(MAX_SLOT, MAX_PULL)

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.wire import OffsetForLeaderPartition


def _refuse(
    request: OffsetForLeaderEpochRequest, code: int, message: str
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=partition.partition, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    versions=range(2, 5),
    refuse=_refuse,
)
async def offset_for_leader_epoch(
    session: Session, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    topics = []
    turn = Turn()
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            partitions.append(_end(session.broker, topic.topic, asked))
            if turn.over:
                await turn.give_way()
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        subject = find_partition(broker, topic, asked.partition)
        leader_epoch.check(asked.current_leader_epoch)
    except Refused as refused:
        return EpochEndOffset(partition=asked.partition, error_code=refused.error_code)
    if asked.leader_epoch != leader_epoch.CURRENT:
        return EpochEndOffset(partition=asked.partition)
    return EpochEndOffset(
        partition=asked.partition,
        leader_epoch=leader_epoch.CURRENT,
        end_offset=BEYOND if subject.id in broker.actions.groups.numbers else subject.readable_end,
    )
