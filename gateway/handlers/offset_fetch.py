"""OffsetFetch: where to continue reading. Key 9, versions 1 to 9.

What each version added:
  v2  all topics at once; an error for the whole answer
  v3, v4  throttle time; nothing a client sees
  v5  leader epochs
  v6  flexible
  v7  require_stable (ignored: there are no transactions)
  v8  several groups at once, with an error for each
  v9  KIP-848 members say who they are
Who gets which offset: see gateway/groups/offsets.py. An error of one partition is also that of the whole
answer: clients differ in where they look. Version 8 is another layout, so this handler looks at the
version.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from kumquat.core.errors import KumquatError
from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kumquat.gateway.groups.offsets import Position
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.wire import (
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )

T = TypeVar("T")
NO_OFFSET = -1
PARTITIONS_AT_A_TIME = 200
MAX_POSITIONS = 400_000
"""In one answer: a request may name the same group any number of times."""


def _refuse(request: OffsetFetchRequest, code: int, message: str) -> OffsetFetchResponse:
    if request.groups:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group.group_id, [], code) for group in request.groups]
        )
    return OffsetFetchResponse(topics=_failed(request.topics, code), error_code=code)


def _failed(
    topics: Sequence[OffsetFetchRequestTopic] | None, code: int
) -> list[OffsetFetchResponseTopic]:
    """In version 1 only partitions have an error."""
    return [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(index, NO_OFFSET, -1, "", code)
                for index in topic.partition_indexes
            ],
        )
        for topic in topics or ()
    ]


@handles(
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    versions=range(1, 10),
    refuse=_refuse,
)
async def offset_fetch(session: Session, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if session.version >= 8:
        groups, count, turn = [], 0, Turn()
        seen: set[str] = set()
        for asked in request.groups:
            if turn.over:
                await turn.give_way()
            room = 0 if asked.group_id in seen else MAX_POSITIONS - count
            seen.add(asked.group_id)
            answer, size = await _group(session, asked, room)
            groups.append(answer)
            count += size
        return OffsetFetchResponse(groups=groups)
    positions = await _positions(session, request.group_id, None, -1, _asked(request.topics))
    topics = await _by_topic(positions, OffsetFetchResponseTopic, OffsetFetchResponsePartition)
    return OffsetFetchResponse(topics=topics, error_code=_worst(positions))


async def _group(
    session: Session, group: OffsetFetchRequestGroup, room: int
) -> tuple[OffsetFetchResponseGroup, int]:
    """The answer for a group, and how many positions are in it; an error if there are more than `room`."""
    known = session.broker.coordinator.groups.by_name.get(group.group_id)
    expected = len(known.progress) if group.topics is None and known is not None else 0
    if room <= 0 or expected > room:
        return OffsetFetchResponseGroup(group.group_id, [], ErrorCode.INVALID_REQUEST), 1
    try:
        positions = await _positions(
            session, group.group_id, group.member_id, group.member_epoch, _asked(group.topics)
        )
    except KumquatError as error:
        return OffsetFetchResponseGroup(group.group_id, [], error.error_code), 1
    if len(positions) > room:
        return OffsetFetchResponseGroup(group.group_id, [], ErrorCode.INVALID_REQUEST), 1
    topics = await _by_topic(positions, OffsetFetchResponseTopics, OffsetFetchResponsePartitions)
    answer = OffsetFetchResponseGroup(group.group_id, topics, _worst(positions))
    return answer, len(positions) + 1


async def _positions(
    session: Session,
    group_id: str,
    member_id: str | None,
    epoch: int,
    asked: list[tuple[str, list[int]]] | None,
) -> list[Position]:
    def fetch(part: list[tuple[str, list[int]]] | None) -> list[Position]:
        return session.broker.coordinator.fetch_offsets(session, group_id, member_id, epoch, part)

    if not asked:
        return fetch(asked)
    found: list[Position] = []
    turn = Turn()
    for name, indexes in asked:
        for start in range(0, len(indexes), PARTITIONS_AT_A_TIME):
            found += fetch([(name, indexes[start : start + PARTITIONS_AT_A_TIME])])
            if turn.over:
                await turn.give_way()
    return found


async def _by_topic(
    positions: Sequence[Position],
    topic: Callable[[str, list[Any]], T],
    partition: Callable[[int, int, int, str, int], Any],
) -> list[T]:
    topics: list[T] = []
    turn = Turn()
    for name, found in groupby(positions, key=lambda p: p.topic):
        partitions = []
        for p in found:
            partitions.append(partition(p.partition, p.offset, p.epoch, p.metadata, p.error_code))
            if turn.over:
                await turn.give_way()
        topics.append(topic(name, partitions))
    return topics


def _asked(
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> list[tuple[str, list[int]]] | None:
    if topics is None:
        return None
    return [(topic.name, topic.partition_indexes) for topic in topics]


def _worst(positions: Sequence[Position]) -> int:
    return next((p.error_code for p in positions if p.error_code), ErrorCode.NONE)
