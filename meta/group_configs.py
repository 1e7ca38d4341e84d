"""A consumer group's configs: which are allowed, which values are in force. Kafka's resource type GROUP.

    validate_group("consume.mode", "shared")            # None, or InvalidConfig with the reason
    effective_group({"consume.mode": "shared"}).lease_max_records
    consume_mode(configs of the group, configs of the subject)
    describe_group({"consume.mode": "shared"})          # a row per config, for DescribeConfigs

A group's configs are a mapping of the explicitly set ones only, as text. They belong to the group's
name: they may be set before its first member comes, and outlive its deletion, as in Kafka. A subject
can have `consume.mode` too; it holds for groups that do not set it themselves. Nothing here keeps state.
The table of definitions is group_catalogue.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kumquat.meta.catalogue import Definition
from kumquat.meta.definitions import ConfigRow, ConfigSource, Synonym
from kumquat.meta.durations import read_iso_duration
from kumquat.meta.errors import InvalidConfig
from kumquat.meta.group_catalogue import BY_DURATION, DEAD_LETTERS, GROUP_DEFINITIONS, MODE
from kumquat.meta.values import Value

__all__ = [
    "GROUP_DEFINITIONS",
    "MODE",
    "GroupConfig",
    "consume_mode",
    "describe_group",
    "effective_group",
    "validate_group",
]


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What the coordinator and the hand-outs of a group use."""

    consume_mode: str
    lease_max_records: int
    lease_steal_after_ms: int
    auto_exclusive_after_ms: int
    auto_offset_reset: str
    retry_backoff_ms: int
    retry_backoff_multiplier: float
    retry_backoff_max_ms: int
    delivery_count_limit: int
    dead_letter_subject: str
    """With {subject} and {group} in it as they were set; empty: the default."""
    share_auto_offset_reset: str
    """`latest`, `earliest`, or `by_duration:` and the duration: see `share_reset_ms`."""
    share_record_lock_duration_ms: int
    share_delivery_count_limit: int
    share_max_record_locks: int
    share_session_timeout_ms: int
    share_heartbeat_interval_ms: int
    share_isolation_level: str
    share_renew_enable: bool

    @property
    def share_reset_ms(self) -> int | None:
        """How long ago a share group begins on a topic that it has not read; None: at one of the ends."""
        if not self.share_auto_offset_reset.startswith(BY_DURATION):
            return None
        return read_iso_duration(self.share_auto_offset_reset.removeprefix(BY_DURATION))


def validate_group(name: str, value: str) -> None:
    """Raises InvalidConfig unless a group may have this config with this value."""
    _parse(name, value)


def effective_group(configs: Mapping[str, str]) -> GroupConfig:
    """The values in force; a stored value that is no longer allowed counts as not set."""

    def text(name: str) -> str:
        return str(_in_force(name, configs))

    def number(name: str) -> int:
        value = _in_force(name, configs)
        assert isinstance(value, int)
        return value

    return GroupConfig(
        consume_mode=text(MODE),
        lease_max_records=number("lease.max.records"),
        lease_steal_after_ms=number("lease.steal.after.ms"),
        auto_exclusive_after_ms=number("auto.exclusive.after.ms"),
        auto_offset_reset=text("consume.auto.offset.reset"),
        retry_backoff_ms=number("retry.backoff.ms"),
        retry_backoff_multiplier=float(text("retry.backoff.multiplier")),
        retry_backoff_max_ms=number("retry.backoff.max.ms"),
        delivery_count_limit=number("delivery.count.limit"),
        dead_letter_subject=text(DEAD_LETTERS),
        share_auto_offset_reset=text("share.auto.offset.reset"),
        share_record_lock_duration_ms=number("share.record.lock.duration.ms"),
        share_delivery_count_limit=number("share.delivery.count.limit"),
        share_max_record_locks=number("share.partition.max.record.locks"),
        share_session_timeout_ms=number("share.session.timeout.ms"),
        share_heartbeat_interval_ms=number("share.heartbeat.interval.ms"),
        share_isolation_level=text("share.isolation.level"),
        share_renew_enable=_in_force("share.renew.acknowledge.enable", configs) is True,
    )


def consume_mode(group: Mapping[str, str], subject: Mapping[str, str]) -> str:
    """How a group reads a subject: the group's own config, else the subject's, else `auto`."""
    return str(_in_force(MODE, group if MODE in group else subject))


def describe_group(
    configs: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigRow]:
    """A row per config; `names` asks for some only, and unknown ones are left out, as in Kafka."""
    if names is None:
        return [_row(definition, configs) for definition in GROUP_DEFINITIONS.values()]
    return [_row(GROUP_DEFINITIONS[n], configs) for n in names if n in GROUP_DEFINITIONS]


def _row(definition: Definition, configs: Mapping[str, str]) -> ConfigRow:
    name = definition.name
    synonyms = [Synonym(name, definition.default, ConfigSource.DEFAULT_CONFIG)]
    if name in configs:
        synonyms.insert(0, Synonym(name, configs[name], ConfigSource.GROUP_CONFIG))
    return ConfigRow(
        name=name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        type=definition.kind.type,
        doc=definition.doc,
        synonyms=tuple(synonyms),
    )


def _in_force(name: str, configs: Mapping[str, str]) -> Value:
    if name in configs:
        try:
            return _parse(name, configs[name])
        except InvalidConfig:
            pass
    definition = GROUP_DEFINITIONS[name]
    return definition.kind.parse(definition.default)


def _parse(name: str, text: str) -> Value:
    definition = GROUP_DEFINITIONS.get(name)
    if definition is None:
        near = get_close_matches(name, GROUP_DEFINITIONS, n=1)
        hint = (
            f"; did you mean {near[0]}?" if near else f"; there are {', '.join(GROUP_DEFINITIONS)}"
        )
        raise InvalidConfig(f"unknown group config {name!r}{hint}")
    try:
        return definition.kind.parse(text)
    except ValueError as error:
        raise InvalidConfig(f"{name}={text!r} is not allowed: {error}") from None
