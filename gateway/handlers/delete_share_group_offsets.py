"""DeleteShareGroupOffsets: a share group without members forgets topics. Key 92, version 0.

When it reads such a topic again it begins by its share.auto.offset.reset. A group with members is
NON_EMPTY_GROUP; one that is not there, or of another type, GROUP_ID_NOT_FOUND. A topic that is not there,
or in which the group has no offset, is UNKNOWN_TOPIC_OR_PARTITION, as in Kafka. Answered when it is
durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.groups.share_offsets import delete, find, known
from kumquat.gateway.handlers.common.lookup import find_subject
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session


@handles(
    request=DeleteShareGroupOffsetsRequest,
    response=DeleteShareGroupOffsetsResponse,
    versions=range(1),
)
async def delete_share_group_offsets(
    session: Session, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    broker = session.broker
    groups = broker.coordinator.groups
    group = find(groups, request.group_id)
    answer = DeleteShareGroupOffsetsResponse(responses=[])
    subject_ids: set[int] = set()
    turn = Turn()
    for topic in dict.fromkeys(asked.topic_name for asked in request.topics):
        found = DeleteShareGroupOffsetsResponseTopic(topic)
        try:
            subject = _subject(broker, group, topic)
            found.topic_id = subject.topic_id
            subject_ids.add(subject.id)
        except Refused as refused:
            found.error_code, found.error_message = refused.error_code, str(refused)
        answer.responses.append(found)
        if turn.over:
            await turn.give_way()
    group = find(groups, request.group_id)  # others had their turn meanwhile
    still = sorted(subject_ids & known(group))
    if still:
        await broker.coordinator.change(delete(group, still))
    return answer


def _subject(broker: Broker, group: Group, topic: str) -> Subject:
    subject = find_subject(broker, topic)
    progress = group.progress.get(subject.id)
    if progress is None or not progress.shared:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"share group {group.name!r} has no offset of {topic!r} to delete",
        )
    return subject
