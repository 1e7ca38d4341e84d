"""OffsetDelete: a group forgets how far it has come in some topics. Key 47, version 0.

Which codes there are is in gateway/groups/deletion.py. A share group is GROUP_ID_NOT_FOUND: see
delete_share_group_offsets.py. Answered when it is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.handlers.common.lookup import find_partition
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.net.dispatch import Session


@handles(request=OffsetDeleteRequest, response=OffsetDeleteResponse, versions=range(1))
async def offset_delete(session: Session, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    broker = session.broker
    found: dict[Subject, list[OffsetDeleteResponsePartition]] = {}
    topics = []
    turn = Turn()
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            answer = OffsetDeleteResponsePartition(asked.partition_index)
            try:
                subject = find_partition(broker, topic.name, asked.partition_index)
                found.setdefault(subject, []).append(answer)
            except Refused as refused:
                answer.error_code = refused.error_code
            partitions.append(answer)
            if turn.over:
                await turn.give_way()
        topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
    codes = await broker.coordinator.delete_offsets(request.group_id, list(found))
    for answers, code in zip(found.values(), codes, strict=True):
        for answer in answers:
            answer.error_code = code
    return OffsetDeleteResponse(topics=topics)
