"""OffsetCommit: positions of a member, or of a group without members. Key 8, versions 2 to 9.

What each version added:
  v3, v4  throttle time; nothing a client sees
  v5  no retention time any more (before: ignored)
  v6  the leader epoch of the committed position
  v7  static members
  v8  flexible
  v9  KIP-848 members, with their epoch
Answered when it is durable. What counts as a commit: see gateway/groups/offsets.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.net.dispatch import handles
from kumquat.gateway.wire import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.gateway.net.dispatch import Session


def _answer(request: OffsetCommitRequest, codes: Iterable[int]) -> OffsetCommitResponse:
    coming = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(partition.partition_index, next(coming))
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refuse(request: OffsetCommitRequest, code: int, message: str) -> OffsetCommitResponse:
    return _answer(request, [code] * sum(len(topic.partitions) for topic in request.topics))


@handles(
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    versions=range(2, 10),
    refuse=_refuse,
)
async def offset_commit(session: Session, request: OffsetCommitRequest) -> OffsetCommitResponse:
    return _answer(request, await session.broker.coordinator.commit(session, request))
