"""DeleteRecords: everything below an offset is gone for readers at once. Key 21, versions 0 to 2.

What each version added:
  v1  nothing a client sees
  v2  flexible
Ignored: the time-out.

-1 means up to the high watermark. An offset below the earliest changes nothing and is no error. Answered
when the new earliest offset is durable; disk space is freed when the segments are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kumquat.gateway.handlers.common.lookup import find_partition
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.topics.table import INTERNAL
from kumquat.gateway.wire import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session

HIGH_WATERMARK = -1


def _refuse(request: DeleteRecordsRequest, code: int, message: str) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=-1,
                        error_code=code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@handles(
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    versions=range(3),
    refuse=_refuse,
)
async def delete_records(session: Session, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    broker = session.broker
    topics = []
    turn = Turn()
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            partitions.append(_delete(broker, topic.name, asked.partition_index, asked.offset))
            if turn.over:
                await turn.give_way()
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    with trio.CancelScope(shield=True):
        await broker.log.wait_synced()
    return DeleteRecordsResponse(topics=topics)


def _delete(broker: Broker, name: str, partition: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        subject = find_partition(broker, name, partition)
        if subject.name in INTERNAL:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} is internal")
        if offset == HIGH_WATERMARK:
            offset = subject.readable_end
        if not 0 <= offset <= subject.readable_end:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not between 0 and the high watermark {subject.readable_end}",
            )
        if offset > subject.earliest:
            broker.log.raise_earliest_nowait(subject, offset)
    except ANSWERABLE as error:
        return DeleteRecordsPartitionResult(
            partition_index=partition, low_watermark=-1, error_code=error.error_code
        )
    return DeleteRecordsPartitionResult(partition_index=partition, low_watermark=subject.earliest)
