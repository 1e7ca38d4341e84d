"""DescribeConfigs: configs of topics, groups and the broker, and their sources. Key 32, versions 1 to 4.

What each version added:
  v1  source and synonyms of each value
  v2  nothing a client sees
  v3  type and documentation
  v4  flexible

BROKER shows the options that the broker was started with, and those that were set since (they have no
effect: meta/broker_configs.py). Where advertised.listeners is not set, its value is what clients are told.
A broker with no name shows only what was set since. Other resources are refused with the reason. A
resource that is named twice is shown once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kumquat.gateway.handlers.common.resources import Resource, check_broker, configured
from kumquat.gateway.net.dispatch import ANSWERABLE, Refused, handles
from kumquat.gateway.net.turns import Turn
from kumquat.gateway.wire import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    Encoded,
)
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.meta.broker_configs import describe_broker
from kumquat.meta.definitions import ConfigSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.gateway.broker import Broker
    from kumquat.gateway.config.options import OptionRow
    from kumquat.gateway.net.dispatch import Session
    from kumquat.gateway.wire import DescribeConfigsResource
    from kumquat.meta.definitions import ConfigRow

MAX_ANSWER = 160 << 20
"""The answer for 100,000 topics has 140 MB, and `kafka-topics --describe` asks for all of them at once."""
MANY = 5_000
"""A request for so many resources is answered only when no other such answer waits to be sent."""


def _refuse(request: DescribeConfigsRequest, code: int, message: str) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_failed(resource, code, message) for resource in request.resources]
    )


def _failed(resource: DescribeConfigsResource, code: int, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


@handles(
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
    versions=range(1, 5),
    refuse=_refuse,
)
async def describe_configs(
    session: Session, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Each result is encoded at once: as objects, those of 10,000 topics take hundreds of megabytes."""
    resources = {(r.resource_type, r.resource_name): r for r in request.resources}
    if len(resources) <= MANY:
        return await _describe(session, request, resources.values())
    huge = session.broker.room.huge
    await huge.take(1)
    try:
        await session.account.wait_for_batch()
        return await _describe(session, request, resources.values())
    finally:
        huge.give(1)


async def _describe(
    session: Session,
    request: DescribeConfigsRequest,
    resources: Iterable[DescribeConfigsResource],
) -> DescribeConfigsResponse:
    results: list[bytes] = []
    size = 0
    turn = Turn()
    for resource in resources:
        if turn.over:
            await turn.give_way()
        result = _result(session.broker, request, resource)
        results.append(DescribeConfigsResult.encode_element(result, session.version))
        size += len(results[-1])
        if size > MAX_ANSWER:
            raise Refused(
                ErrorCode.INVALID_REQUEST, f"the answer is over {MAX_ANSWER} bytes: ask for less"
            )
    session.account.made(size)
    return DescribeConfigsResponse(results=Encoded(len(results), b"".join(results)))


def _result(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        configs = _configs(broker, resource)
    except ANSWERABLE as error:
        return _failed(resource, error.error_code, str(error))
    for config in configs:
        if not request.include_synonyms:
            config.synonyms = []
        if not request.include_documentation:
            config.documentation = None
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _configs(
    broker: Broker, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    kind, name, wanted = resource.resource_type, resource.resource_name, resource.configuration_keys
    if kind == Resource.BROKER:
        check_broker(broker, name)
        options = _broker_options(broker, wanted) if name else []
        return options + _shown(describe_broker(broker.registry.broker_configs, wanted))
    return _shown(configured(broker, kind, name).describe(wanted))


def _shown(rows: Iterable[ConfigRow]) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            name=row.name,
            value=row.value,
            read_only=row.read_only,
            config_source=row.source,
            synonyms=[
                DescribeConfigsSynonym(
                    name=synonym.name, value=synonym.value, source=synonym.source
                )
                for synonym in row.synonyms
            ],
            config_type=row.type,
            documentation=row.doc,
        )
        for row in rows
    ]


def _broker_options(
    broker: Broker, wanted: list[str] | None
) -> list[DescribeConfigsResourceResult]:
    static, default = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG
    configs = []
    for row in broker.config.describe():
        if wanted is not None and row.name not in wanted:
            continue
        synonyms = [DescribeConfigsSynonym(name=row.name, value=row.default, source=default)]
        if not row.is_default:
            given = DescribeConfigsSynonym(name=row.name, value=row.value, source=static)
            synonyms.insert(0, given)
        configs.append(
            DescribeConfigsResourceResult(
                name=row.name,
                value=_in_force(broker, row),
                read_only=row.read_only,
                config_source=default if row.is_default else static,
                synonyms=synonyms,
                config_type=row.type,
                documentation=row.doc,
            )
        )
    return configs


def _in_force(broker: Broker, row: OptionRow) -> str | None:
    if row.name == "advertised.listeners" and row.value is None:
        return ",".join(map(str, broker.advertised))
    return row.value
