"""DescribeShareGroupOffsets: where share groups are, and their lag. Key 90, versions 0 and 1.

What each version added:
  v1  the lag: messages that are not settled (gateway/groups/share_offsets.py)

What is not there (a group, a topic, a partition, an offset) is -1, not an error, as in Kafka. Without
topics in the request all that the group has an offset of are answered. A group that is named again, or for
which there is no room in the answer, is INVALID_REQUEST: a small request must not become a huge answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.groups.share_offsets import Start, known, start
from kumquat.gateway.handlers.common.leader_epoch import CURRENT
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.gateway.wire.declare import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.core.delivery.state import Group
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session

MAX_OFFSETS = 200_000
"""In one answer."""


def _refuse(
    request: DescribeShareGroupOffsetsRequest, code: int, message: str
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group.group_id, [], code, message)
            for group in request.groups
        ]
    )


@handles(
    request=DescribeShareGroupOffsetsRequest,
    response=DescribeShareGroupOffsetsResponse,
    versions=range(2),
    refuse=_refuse,
)
async def describe_share_group_offsets(
    session: Session, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    turn, room = Turn(), MAX_OFFSETS
    groups = []
    seen: set[str] = set()
    for asked in request.groups:
        again = asked.group_id in seen
        seen.add(asked.group_id)
        groups.append(await _group(session.broker, asked, turn, 0 if again else room))
        room -= len(groups[-1].topics)
        if turn.over:
            await turn.give_way()
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(
    broker: Broker, asked: DescribeShareGroupOffsetsRequestGroup, turn: Turn, room: int
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(asked.group_id, [])
    if not asked.group_id:
        answer.error_code = ErrorCode.INVALID_GROUP_ID
        answer.error_message = "a group id cannot be empty"
        return answer
    group = broker.coordinator.groups.by_name.get(asked.group_id)
    count = 0 if group is None or asked.topics is not None else len(group.progress)
    if room <= 0 or count > room:
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.error_message = (
            f"name a group once, and groups with up to {MAX_OFFSETS} offsets in one request"
        )
        return answer
    if asked.topics is None:
        by_id = broker.log.subjects.by_id
        subject_ids = set[int]() if group is None else known(group)
        named: list[tuple[str, Sequence[int]]] = [
            (name, (0,))
            for name in sorted(
                by_id[subject_id].name for subject_id in subject_ids if subject_id in by_id
            )
        ]
    else:
        named = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    for name, partitions in named:
        answer.topics.append(_topic(broker, group, name, partitions))
        if turn.over:
            await turn.give_way()
    return answer


def _topic(
    broker: Broker, group: Group | None, name: str, partitions: Sequence[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    subject = broker.log.subjects.by_name.get(name)
    first = Start() if subject is None else start(group, subject)
    found = []
    for index in partitions:
        offset, lag = Start() if index else first
        found.append(DescribeShareGroupOffsetsResponsePartition(index, offset, CURRENT, lag))
    topic_id = ZERO_UUID if subject is None else subject.topic_id
    return DescribeShareGroupOffsetsResponseTopic(name, topic_id, found)
