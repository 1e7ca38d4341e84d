"""CreatePartitions: always refused, with the reason. Key 37, versions 0 to 3.

What each version added: v1, v3 nothing a client sees; v2 flexible.

A subject has one virtual partition, which any number of consumers share. A client that adds partitions
wants more consumers to work at once, and has that already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.handlers.common.lookup import find_subject
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.net.dispatch import Session

REASON = "a topic has exactly one partition here, which any number of consumers can share"


def _refuse(request: CreatePartitionsRequest, code: int, message: str) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


@handles(
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    versions=range(4),
    refuse=_refuse,
)
async def create_partitions(
    session: Session, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    results = []
    turn = Turn()
    for topic in request.topics:
        code, message = ErrorCode.INVALID_PARTITIONS, REASON
        try:
            find_subject(session.broker, topic.name)
        except Refused as refused:
            code, message = refused.error_code, str(refused)
        results.append(
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
        )
        if turn.over:
            await turn.give_way()
    return CreatePartitionsResponse(results=results)
