"""AlterShareGroupOffsets: a share group without members goes on elsewhere. Key 91, version 0.

A group with members is NON_EMPTY_GROUP, one of another type GROUP_ID_NOT_FOUND; one that is not there is
made. An offset beyond an end of the topic counts as that end. Answered when it is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.groups.share_offsets import alter, check_alterable
from kumquat.gateway.handlers.common.lookup import find_partition
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.gateway.wire.declare import ZERO_UUID

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session


@handles(
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
    versions=range(1),
)
async def alter_share_group_offsets(
    session: Session, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    broker = session.broker
    groups, subjects = broker.coordinator.groups, broker.log.subjects
    check_alterable(groups, request.group_id)
    answer = AlterShareGroupOffsetsResponse(responses=[])
    starts: dict[Subject, int] = {}
    turn = Turn()
    for topic in request.topics:
        partitions = [_one(broker, topic.topic_name, asked, starts) for asked in topic.partitions]
        subject = subjects.by_name.get(topic.topic_name)
        topic_id = ZERO_UUID if subject is None else subject.topic_id
        answer.responses.append(
            AlterShareGroupOffsetsResponseTopic(topic.topic_name, topic_id, partitions)
        )
        if turn.over:
            await turn.give_way()
    check_alterable(groups, request.group_id)  # others had their turn meanwhile
    still = {s: offset for s, offset in starts.items() if subjects.by_id.get(s.id) is s}
    changes = alter(groups, request.group_id, still, broker.actions.now_ms())
    if changes:
        await broker.coordinator.change(changes)
    return answer


def _one(
    broker: Broker,
    topic: str,
    asked: AlterShareGroupOffsetsRequestPartition,
    starts: dict[Subject, int],
) -> AlterShareGroupOffsetsResponsePartition:
    answer = AlterShareGroupOffsetsResponsePartition(asked.partition_index)
    try:
        subject = find_partition(broker, topic, asked.partition_index)
        if asked.start_offset < 0:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{asked.start_offset} is no offset")
        starts[subject] = asked.start_offset
    except Refused as refused:
        answer.error_code, answer.error_message = refused.error_code, str(refused)
    return answer
