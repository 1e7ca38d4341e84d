"""CreateTopics: new subjects, each with one virtual partition. Key 19, versions 2 to 7.

What each version added:
  v2  (the oldest served) validate only
  v3  nothing a client sees
  v4  -1 partitions or replicas: the broker's default
  v5  flexible; partitions, replicas and configs in the answer
  v6  nothing a client sees
  v7  topic id in the answer
Ignored: the time-out.

Any number of partitions and a replication factor of up to MAX_REPLICAS is accepted, since everyday scripts
give them; the answer says what was made: 1 and 1. Kafka with one broker refuses a factor of 2, but a script
that was written for a cluster of three must run here unchanged. A larger factor is surely a mistake
(a port, a number of partitions), and is INVALID_REPLICATION_FACTOR. A replica assignment is accepted if it
names this broker only: there is no other. Names, configs and repeated
topics are checked as in Kafka. A topic is answered when it is durable (topics/subjects.py).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kumquat.core.logs.messages.subject import Subject
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Encoded,
)
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.meta.definitions import describe, validate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.wire import CreatableTopic, CreatableTopicConfig

DEFAULT = -1
MAX_REPLICAS = 16


def _refuse(request: CreateTopicsRequest, code: int, message: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[_failed(topic.name, code, message) for topic in request.topics]
    )


def _failed(name: str, code: int, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


@handles(
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    versions=range(2, 8),
    refuse=_refuse,
)
async def create_topics(session: Session, request: CreateTopicsRequest) -> CreateTopicsResponse:
    broker = session.broker
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, bytes] = {}
    """Encoded at once: as objects, thousands of them with their configs take much memory."""

    def answer(result: CreatableTopicResult) -> None:
        results[result.name] = CreatableTopicResult.encode_element(result, session.version)

    accepted: dict[str, Mapping[str, str]] = {}
    rows = _Rows(broker)
    turn = Turn()
    for topic in request.topics:
        if turn.over:
            await turn.give_way()
        try:
            if times[topic.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{topic.name!r} is there more than once")
            accepted[topic.name] = _check(broker, topic)
        except ANSWERABLE as error:
            answer(_failed(topic.name, error.error_code, str(error)))
    if request.validate_only:
        for name, configs in accepted.items():
            answer(_made(name, None, rows.of(configs)))
            if turn.over:
                await turn.give_way()
    else:
        for name, outcome in (await broker.subjects.create_all(accepted)).items():
            if isinstance(outcome, Subject):
                answer(_made(name, outcome, rows.of(accepted[name])))
            else:
                answer(_failed(name, outcome.error_code, str(outcome)))
            if turn.over:
                await turn.give_way()
    topics = b"".join(results[name] for name in times)
    return CreateTopicsResponse(topics=Encoded(len(times), topics))


def _check(broker: Broker, topic: CreatableTopic) -> Mapping[str, str]:
    """The configs of a topic to be made. Raises what is wrong with it."""
    broker.subjects.check_new(topic.name)
    if topic.assignments:
        _check_assignments(broker, topic)
    elif topic.num_partitions != DEFAULT and topic.num_partitions < 1:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, f"{topic.num_partitions} is no number of partitions"
        )
    elif topic.replication_factor != DEFAULT and not 1 <= topic.replication_factor <= MAX_REPLICAS:
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor is from 1 to {MAX_REPLICAS}, not {topic.replication_factor}",
        )
    return {config.name: _check_config(config) for config in topic.configs}


def _check_config(config: CreatableTopicConfig) -> str:
    if config.value is None:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
    validate(config.name, config.value)
    return config.value


def _check_assignments(broker: Broker, topic: CreatableTopic) -> None:
    if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "with a replica assignment the numbers of partitions and replicas must be -1",
        )
    indexes = sorted(assignment.partition_index for assignment in topic.assignments)
    if indexes != list(range(len(indexes))):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered 0, 1, 2, …"
        )
    for assignment in topic.assignments:
        if assignment.broker_ids != [broker.node_id]:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {assignment.partition_index} can only be on broker {broker.node_id}, "
                f"not on {assignment.broker_ids}",
            )


def _made(
    name: str, subject: Subject | None, rows: list[CreatableTopicConfigs]
) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=subject.topic_id if subject is not None else bytes(16),
        error_message=None,
        num_partitions=1,
        replication_factor=1,
        configs=rows,
    )


class _Rows:
    """The configs of topics as answers show them; most topics have the same."""

    def __init__(self, broker: Broker) -> None:
        self._defaults = broker.subjects.defaults
        self._known: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}

    def of(self, configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        key = frozenset(configs.items())
        if key not in self._known:
            self._known[key] = [
                CreatableTopicConfigs(
                    name=row.name,
                    value=row.value,
                    read_only=row.read_only,
                    config_source=row.source,
                )
                for row in describe(configs, self._defaults)
            ]
        return self._known[key]
