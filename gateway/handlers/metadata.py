"""Metadata: the broker, and topics by name, by id, or all of them. Key 3, versions 0 to 13.

What each version added:
  v0  no topics asked means all of them
  v1  no topics asked means none, null means all; controller, rack, internal topics (topics/subjects.py)
  v2  cluster id
  v3  throttle time (always 0)
  v4  whether topics may be created; before, they always may
  v5  offline replicas (never any)
  v7  leader epoch (always 0)
  v8  authorized operations, when asked for: all, since there is no authorization
  v9  flexible
  v10 topic ids in the answer
  v11 authorized operations of the cluster are gone
  v12 topics asked by id: where one is, ids count and names do not (before, a topic without a name is
      answered as one with an empty name)
  v13 an error for the whole answer (for clients that should bootstrap again; never given)

A missing topic is created when the request and `auto.create.topics.enable` allow it, as clients expect
before their first Produce. It is answered when it is durable. All topics at once come from
topics/table.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.core.logs.messages.subject import Subject
from kumquat.gateway.handlers.common.authorized import (
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
)
from kumquat.gateway.handlers.common.lookup import find_subject
from kumquat.gateway.net.dispatch import Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.topics.subjects import check_name
from kumquat.gateway.topics.table import topic_metadata
from kumquat.gateway.wire import (
    Encoded,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kumquat.gateway.wire.codes import ErrorCode

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.wire import MetadataRequestTopic


NAMELESS_SINCE = 12
"""Before this version an answer cannot leave out a name, though a request can."""
NO_ID = bytes(16)


def _refuse(request: MetadataRequest, code: int, message: str) -> MetadataResponse:
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )


@handles(request=MetadataRequest, response=MetadataResponse, versions=range(14), refuse=_refuse)
async def metadata(session: Session, request: MetadataRequest) -> MetadataResponse:
    broker, endpoint = session.broker, session.endpoint
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    asked = request.topics
    topics: list[MetadataResponseTopic] | Encoded
    if asked is None or (not asked and session.version == 0):
        topics = await broker.subjects.table.encoded(session.version, broker.node_id, operations)
    else:
        if session.version < NAMELESS_SINCE:
            for topic in asked:
                topic.name = topic.name or ""
        elif any(topic.topic_id != NO_ID for topic in asked):
            for topic in asked:  # Java writes an empty name beside the id
                topic.name = None
        topics = await _named(broker, asked, request.allow_auto_topic_creation, operations)
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(broker.node_id, endpoint.host, endpoint.port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


async def _named(
    broker: Broker, asked: list[MetadataRequestTopic], may_create: bool, operations: int
) -> list[MetadataResponseTopic]:
    failures: dict[str, int] = {}
    if may_create and broker.config.auto_create_topics_enable:
        known = broker.log.subjects.by_name
        missing = dict.fromkeys(t.name for t in asked if t.name and t.name not in known)
        outcome = await broker.subjects.create_all({name: {} for name in missing})
        failures = {
            name: error.error_code
            for name, error in outcome.items()
            if not isinstance(error, Subject)
            # Two clients may ask for the same new topic: it was made, and that is what counts.
            and error.error_code != ErrorCode.TOPIC_ALREADY_EXISTS
        }
    topics = []
    turn = Turn()
    for topic in asked:
        topics.append(_topic(broker, topic, failures, operations))
        if turn.over:
            await turn.give_way()
    return topics


def _topic(
    broker: Broker, asked: MetadataRequestTopic, failures: dict[str, int], operations: int
) -> MetadataResponseTopic:
    try:
        if asked.name is not None and asked.name not in broker.log.subjects.by_name:
            check_name(asked.name)
            if asked.name in failures:
                return MetadataResponseTopic(error_code=failures[asked.name], name=asked.name)
        subject = find_subject(broker, asked.name, asked.topic_id)
    except Refused as refused:
        return MetadataResponseTopic(
            error_code=refused.error_code, name=asked.name, topic_id=asked.topic_id
        )
    return topic_metadata(subject, broker.node_id, operations, listed=False)
