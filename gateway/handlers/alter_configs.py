"""AlterConfigs (key 33, versions 0 to 2) and IncrementalAlterConfigs (key 44, versions 0 and 1).

What each version added: flexible from 2 and from 1; nothing else a client sees.

The older one replaces all configs of a topic by those given. The incremental one sets, deletes, or, for
lists, appends to and subtracts from single ones. Both can only validate. A topic's configs change together
or not at all, and are answered when they are durable. The broker's own options are read at its start and
are refused here, with that reason.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from gateway.dispatch import ANSWERABLE, Refused, handles
from gateway.handlers.resources import Resource, check_broker, topic_of, unsupported
from gateway.wire import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from gateway.wire.codes import ErrorCode
from meta.definitions import DEFINITIONS, describe, validate
from meta.values import ConfigType

if TYPE_CHECKING:
    from core.logs.subject import Subject
    from gateway.broker import Broker
    from gateway.dispatch import Session
    from gateway.wire import (
        IncrementalAlterableConfig,
        IncrementalAlterConfigsResource,
    )

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Changes = dict[str, str | None]


class Outcome(NamedTuple):
    """What a resource is answered with: code, message, and which it is."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


def _refuse_replacing(
    request: AlterConfigsRequest, code: int, message: str
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(code, message, r.resource_type, r.resource_name)
            for r in request.resources
        ]
    )


@handles(
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    versions=range(3),
    refuse=_refuse_replacing,
)
async def alter_configs(session: Session, request: AlterConfigsRequest) -> AlterConfigsResponse:
    outcomes = await _alter(session.broker, request)
    return AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(*outcome) for outcome in outcomes]
    )


def _refuse_incremental(
    request: IncrementalAlterConfigsRequest, code: int, message: str
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResourceResponse(code, message, r.resource_type, r.resource_name)
            for r in request.resources
        ]
    )


@handles(
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    versions=range(2),
    refuse=_refuse_incremental,
)
async def incremental_alter_configs(
    session: Session, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    outcomes = await _alter(session.broker, request)
    return IncrementalAlterConfigsResponse(
        responses=[IncrementalAlterConfigsResourceResponse(*outcome) for outcome in outcomes]
    )


async def _alter(
    broker: Broker, request: AlterConfigsRequest | IncrementalAlterConfigsRequest
) -> list[Outcome]:
    times = Counter((r.resource_type, r.resource_name) for r in request.resources)
    outcomes = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        try:
            if times[kind, name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{name!r} is there more than once")
            subject = _subject(broker, kind, name)
            if isinstance(resource, AlterConfigsResource):
                changes = _replacing(broker, subject, resource)
            else:
                changes = _incremental(broker, subject, resource)
            if changes and not request.validate_only:
                await broker.subjects.alter(subject, changes)
        except ANSWERABLE as error:
            outcomes.append(Outcome(error.error_code, str(error), kind, name))
        else:
            outcomes.append(Outcome(ErrorCode.NONE, None, kind, name))
    return outcomes


def _subject(broker: Broker, kind: int, name: str) -> Subject:
    if kind == Resource.TOPIC:
        return topic_of(broker, name)
    if kind == Resource.BROKER:
        check_broker(broker, name)
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "the broker's options are read at its start and stay as they are",
        )
    raise unsupported(kind)


def _replacing(broker: Broker, subject: Subject, resource: AlterConfigsResource) -> Changes:
    """Every config that is set now goes, unless it is given anew."""
    changes: Changes = dict.fromkeys(broker.registry.configs(subject.id))
    for config in resource.configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        validate(config.name, config.value, broker.subjects.defaults)
        changes[config.name] = config.value
    return changes


def _incremental(
    broker: Broker, subject: Subject, resource: IncrementalAlterConfigsResource
) -> Changes:
    changes: Changes = {}
    for config in resource.configs:
        if config.name in changes:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{config.name} is there more than once")
        value = _changed(broker, subject, config)
        if value is not None:
            validate(config.name, value, broker.subjects.defaults)
        changes[config.name] = value
    return changes


def _changed(broker: Broker, subject: Subject, config: IncrementalAlterableConfig) -> str | None:
    """What the config becomes; None: its default."""
    operation, value = config.config_operation, config.value
    definition = DEFINITIONS.get(config.name)
    if operation == DELETE:
        if definition is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"unknown config {config.name!r}")
        return None
    if value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{config.name} has no value")
    if operation == SET or definition is None:
        return value
    if operation not in (APPEND, SUBTRACT) or definition.kind.type != ConfigType.LIST:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"operation {operation} is not possible for {config.name}"
        )
    row = describe(broker.registry.configs(subject.id), broker.subjects.defaults, [config.name])[0]
    return _changed_list(row.value, value, operation)


def _changed_list(present: str, value: str, operation: int) -> str:
    items = [item.strip() for item in present.split(",") if item.strip()]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)
