"""OffsetFetch: where to go on reading. Key 9, versions 1 to 9.

What each version added:
  v2  all topics at once; an error for the whole answer
  v3, v4  throttle time; nothing a client sees
  v5  leader epochs
  v6  flexible
  v7  require_stable (ignored: there are no transactions)
  v8  several groups at once, with an error for each
  v9  KIP-848 members say who they are
Who is told what: see gateway/groups/offsets.py. An error of one partition is also that of the whole answer:
clients differ in where they look. Version 8 is another layout, so this handler looks at the version.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from core.errors import KumquatError
from gateway.dispatch import handles
from gateway.wire import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.dispatch import Session
    from gateway.groups.offsets import Position
    from gateway.wire import (
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )

NO_OFFSET = -1


def _refuse(request: OffsetFetchRequest, code: int, message: str) -> OffsetFetchResponse:
    if request.groups:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group.group_id, [], code) for group in request.groups]
        )
    return OffsetFetchResponse(topics=_failed(request.topics, code), error_code=code)


def _failed(
    topics: Sequence[OffsetFetchRequestTopic] | None, code: int
) -> list[OffsetFetchResponseTopic]:
    """Version 1 has room for an error in the partitions alone."""
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
def offset_fetch(session: Session, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if session.version >= 8:
        return OffsetFetchResponse(groups=[_group(session, group) for group in request.groups])
    asked = _asked(request.topics)
    positions = session.broker.coordinator.fetch_offsets(session, request.group_id, None, -1, asked)
    topics = [
        OffsetFetchResponseTopic(
            name,
            [
                OffsetFetchResponsePartition(
                    p.partition, p.offset, p.epoch, p.metadata, p.error_code
                )
                for p in found
            ],
        )
        for name, found in groupby(positions, key=lambda p: p.topic)
    ]
    return OffsetFetchResponse(topics=topics, error_code=_worst(positions))


def _group(session: Session, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    try:
        positions = session.broker.coordinator.fetch_offsets(
            session, group.group_id, group.member_id, group.member_epoch, _asked(group.topics)
        )
    except KumquatError as error:
        return OffsetFetchResponseGroup(group.group_id, [], error.error_code)
    topics = [
        OffsetFetchResponseTopics(
            name,
            [
                OffsetFetchResponsePartitions(
                    p.partition, p.offset, p.epoch, p.metadata, p.error_code
                )
                for p in found
            ],
        )
        for name, found in groupby(positions, key=lambda p: p.topic)
    ]
    return OffsetFetchResponseGroup(group.group_id, topics, _worst(positions))


def _asked(
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> list[tuple[str, list[int]]] | None:
    if topics is None:
        return None
    return [(topic.name, topic.partition_indexes) for topic in topics]


def _worst(positions: Sequence[Position]) -> int:
    return next((p.error_code for p in positions if p.error_code), ErrorCode.NONE)
