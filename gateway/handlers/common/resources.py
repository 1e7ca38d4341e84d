"""What configs can belong to, as DescribeConfigs and the two AlterConfigs name it: numbers and names.

Topics and groups have configs that can be changed; `Configured` is what the two have in common. A group's
belong to its name, whether or not the group exists; with them is shown how many messages it has missed.
The broker's options can only be shown, except for those that have no effect (meta/broker_configs.py).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import trio

from kumquat.gateway.handlers.common.lookup import find_subject
from kumquat.gateway.net.dispatch import Refused
from kumquat.gateway.topics.subjects import check_name
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.meta.broker_configs import DOC, STORED, describe_broker, validate_broker
from kumquat.meta.definitions import (
    DEFINITIONS,
    ConfigRow,
    ConfigSource,
    Definition,
    Synonym,
    describe,
    validate,
)
from kumquat.meta.errors import InvalidConfig
from kumquat.meta.group_configs import GROUP_DEFINITIONS, MODE, describe_group, validate_group
from kumquat.meta.values import ConfigType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from kumquat.gateway.broker import Broker

MAX_GROUP_NAME = 255
_BROKER_DEFINITIONS = {
    name: Definition(name, kind, "", "stored", DOC) for name, kind in STORED.items()
}
EXPIRED = "expired.messages"

logger = logging.getLogger(__name__)


class Resource(IntEnum):
    """Kafka's numbers for kinds of resources."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Configured:
    """A resource whose configs can be changed."""

    configs: Mapping[str, str]
    """Those that were set explicitly."""
    definitions: Mapping[str, Definition]
    validate: Callable[[str, str], None]
    """Raises InvalidConfig for a config that it may not have."""
    describe: Callable[[Iterable[str] | None], list[ConfigRow]]
    alter: Callable[[Mapping[str, str | None]], Awaitable[None]]
    """None as value: back to the default. What is given must have been validated."""


def configured(broker: Broker, kind: int, name: str) -> Configured:
    """What a TOPIC, GROUP or BROKER resource names. Raises Refused."""
    if kind == Resource.TOPIC:
        return _topic(broker, name)
    if kind == Resource.GROUP:
        return _group(broker, name)
    if kind == Resource.BROKER:
        return _broker(broker, name)
    raise unsupported(kind)


def _topic(broker: Broker, name: str) -> Configured:
    check_name(name)
    subject, defaults = find_subject(broker, name), broker.subjects.defaults
    configs = broker.registry.configs(subject.id)

    async def alter(changes: Mapping[str, str | None]) -> None:
        await broker.subjects.alter(subject, changes)
        if MODE in changes:
            broker.coordinator.config_changed(subject_id=subject.id)

    return Configured(
        configs,
        DEFINITIONS,
        validate,
        lambda names: describe(configs, defaults, names),
        alter,
    )


def _group(broker: Broker, name: str) -> Configured:
    if not 0 < len(name) <= MAX_GROUP_NAME:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"a group name has 1 to {MAX_GROUP_NAME} characters, this one has {len(name)}",
        )
    configs = broker.registry.group_configs(name)

    async def alter(changes: Mapping[str, str | None]) -> None:
        with trio.CancelScope(shield=True):
            await broker.registry.alter_group(name, changes)
        logger.info("group %s: configs changed: %s", name, dict(changes))
        broker.coordinator.config_changed(group=name)

    def describe(names: Iterable[str] | None) -> list[ConfigRow]:
        wanted = None if names is None else list(names)
        rows = describe_group(configs, wanted)
        if wanted is None or EXPIRED in wanted:
            rows.append(_expired(broker, name))
        return rows

    return Configured(
        configs,
        GROUP_DEFINITIONS,
        validate_group,
        describe,
        alter,
    )


def _broker(broker: Broker, name: str) -> Configured:
    check_broker(broker, name)
    configs = broker.registry.broker_configs

    def validate(config: str, value: str) -> None:
        try:
            validate_broker(config, value)
        except InvalidConfig as error:
            code = ErrorCode.INVALID_CONFIG if config in STORED else ErrorCode.INVALID_REQUEST
            raise Refused(code, str(error)) from error

    async def alter(changes: Mapping[str, str | None]) -> None:
        with trio.CancelScope(shield=True):
            await broker.registry.alter_broker(changes)
        logger.info("configs of the broker, without effect: %s", dict(changes))

    return Configured(
        configs, _BROKER_DEFINITIONS, validate, lambda names: describe_broker(configs, names), alter
    )


def _expired(broker: Broker, name: str) -> ConfigRow:
    """Not a config, but this is where tools can show it: what a group has missed."""
    group = broker.coordinator.groups.by_name.get(name)
    count = sum(progress.expired for progress in group.progress.values()) if group else 0
    source = ConfigSource.GROUP_CONFIG if count else ConfigSource.DEFAULT_CONFIG
    return ConfigRow(
        name=EXPIRED,
        value=str(count),
        source=source,
        type=ConfigType.LONG,
        doc="How many messages were deleted, or could not be read, before the group had acked them.",
        synonyms=(Synonym(EXPIRED, str(count), source),),
        read_only=True,
    )


def check_broker(broker: Broker, name: str) -> None:
    """Raises Refused unless a BROKER resource names this broker, or no broker, which means all of them."""
    if name not in ("", str(broker.node_id)):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}; there is no {name!r}"
        )


def unsupported(kind: int) -> Refused:
    known = kind in Resource.__members__.values()
    what = f"{Resource(kind).name} configs" if known else f"resource type {kind}"
    return Refused(ErrorCode.INVALID_REQUEST, f"{what}: not served; TOPIC, GROUP and BROKER are")
