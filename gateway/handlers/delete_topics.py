"""DeleteTopics: deletes subjects with all their messages, by name or by id. Key 20, versions 1 to 6.

What each version added:
  v1 to v3  nothing a client sees here
  v4  flexible
  v5  error messages
  v6  topics by id
Ignored: the time-out. A topic made again under the same name has a new id and begins at offset 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.handlers.common.lookup import find_subject
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session

NO_ID = bytes(16)


def _asked(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


def _refuse(request: DeleteTopicsRequest, code: int, message: str) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[_failed(topic, code, message) for topic in _asked(request)]
    )


def _failed(topic: DeleteTopicState, code: int, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
    )


@handles(
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    versions=range(1, 7),
    refuse=_refuse,
)
async def delete_topics(session: Session, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    broker = session.broker
    found: list[tuple[DeleteTopicState, Subject | Refused]] = []
    turn = Turn()
    for topic in _asked(request):
        if turn.over:
            await turn.give_way()
        try:
            found.append((topic, _find(broker, topic)))
        except Refused as refused:
            found.append((topic, refused))
    subjects = {subject for _, subject in found if not isinstance(subject, Refused)}
    failed = await broker.subjects.delete_all(list(subjects))
    results = []
    for topic, subject in found:
        error = subject if isinstance(subject, Refused) else failed.get(subject)
        if isinstance(error, ANSWERABLE):
            results.append(_failed(topic, error.error_code, str(error)))
        elif not isinstance(subject, Refused):
            results.append(DeletableTopicResult(name=subject.name, topic_id=subject.topic_id))
    return DeleteTopicsResponse(responses=results)


def _find(broker: Broker, topic: DeleteTopicState) -> Subject:
    if topic.name is not None and topic.topic_id != NO_ID:
        raise Refused(ErrorCode.INVALID_REQUEST, "a topic is named by name or by id, not by both")
    return find_subject(broker, topic.name, topic.topic_id)
