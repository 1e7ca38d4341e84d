"""OffsetDelete: a group forgets how far it has come in some topics. Key 47, version 0.

A topic that a member is subscribed to is GROUP_SUBSCRIBED_TO_TOPIC. What the members of a client-assigned
group are subscribed to is unknown here: such a group is NON_EMPTY_GROUP. A topic in which the group has
no position is no error. A share group is GROUP_ID_NOT_FOUND: see delete_share_group_offsets.py. Answered
when it is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.delivery.actions import Drop
from kumquat.gateway.groups.membership.protocol import CLIENT_ASSIGNED
from kumquat.gateway.handlers.common.lookup import find_partition
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.delivery.state import Group
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session


@handles(request=OffsetDeleteRequest, response=OffsetDeleteResponse, versions=range(1))
async def offset_delete(session: Session, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    broker = session.broker
    group = _find(broker, request.group_id)
    dropped: set[int] = set()
    topics = []
    turn = Turn()
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            answer = OffsetDeleteResponsePartition(asked.partition_index)
            try:
                subject = find_partition(broker, topic.name, asked.partition_index)
                _check(group, subject)
                dropped.add(subject.id)
            except Refused as refused:
                answer.error_code = refused.error_code
            partitions.append(answer)
            if turn.over:
                await turn.give_way()
        topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
    known = sorted(dropped & group.progress.keys())
    if known:
        await broker.coordinator.change([Drop(group.id, sid) for sid in known])
    return OffsetDeleteResponse(topics=topics)


def _find(broker: Broker, name: str) -> Group:
    if not name:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
    group = broker.coordinator.groups.by_name.get(name)
    if group is None or group.is_share:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {name!r}")
    if any(member.kind == CLIENT_ASSIGNED for member in group.members.values()):
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {name!r} has members that assign")
    return group


def _check(group: Group, subject: Subject) -> None:
    for member in group.members.values():
        if subject.name in member.subscription or subject.id in member.holds:
            raise Refused(
                ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                f"a member of {group.name!r} is subscribed to {subject.name!r}",
            )
