"""AlterConfigs (key 33, versions 0 to 2) and IncrementalAlterConfigs (key 44, versions 0 and 1).

What each version added: flexible from 2 and from 1; nothing else a client sees.

AlterConfigs replaces all configs of a resource by those given. IncrementalAlterConfigs sets or deletes
single configs, or, for lists, appends to them and subtracts from them. Both can be asked to validate
only. A resource's configs change together or not at all, and are answered when they are durable.
Resources are topics, groups and the broker. Of the broker's options only those can be set that have no
effect; the others are read at its start, and a change is refused.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kumquat.gateway.handlers.common.resources import configured
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.meta.values import ConfigType

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.handlers.common.resources import Configured
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.wire import (
        IncrementalAlterableConfig,
        IncrementalAlterConfigsResource,
    )

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Changes = dict[str, str | None]


class Outcome(NamedTuple):
    """The answer for a resource: code, message, and which resource it is."""

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
    turn = Turn()
    for resource in request.resources:
        if turn.over:
            await turn.give_way()
        kind, name = resource.resource_type, resource.resource_name
        try:
            if times[kind, name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{name!r} is there more than once")
            target = configured(broker, kind, name)
            if isinstance(resource, AlterConfigsResource):
                changes = _replacing(target, resource)
            else:
                changes = _incremental(target, resource)
            if changes and not request.validate_only:
                await target.alter(changes)
        except ANSWERABLE as error:
            outcomes.append(Outcome(error.error_code, str(error), kind, name))
        else:
            outcomes.append(Outcome(ErrorCode.NONE, None, kind, name))
    return outcomes


def _replacing(target: Configured, resource: AlterConfigsResource) -> Changes:
    """Every config that is set now is unset, unless it is given again."""
    changes: Changes = dict.fromkeys(target.configs)
    for config in resource.configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        target.validate(config.name, config.value)
        changes[config.name] = config.value
    return changes


def _incremental(target: Configured, resource: IncrementalAlterConfigsResource) -> Changes:
    changes: Changes = {}
    for config in resource.configs:
        if config.name in changes:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{config.name} is there more than once")
        value = _changed(target, config)
        if value is not None:
            target.validate(config.name, value)
        changes[config.name] = value
    return changes


def _changed(target: Configured, config: IncrementalAlterableConfig) -> str | None:
    """What the config becomes; None: its default."""
    operation, value = config.config_operation, config.value
    definition = target.definitions.get(config.name)
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
    return _changed_list(target.describe([config.name])[0].value, value, operation)


def _changed_list(present: str, value: str, operation: int) -> str:
    items = [item.strip() for item in present.split(",") if item.strip()]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)
