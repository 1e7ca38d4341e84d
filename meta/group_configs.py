"""A consumer group's configs: which are allowed, which values are in force. Kafka's resource type GROUP.

    validate_group("consume.mode", "shared")            # None, or InvalidConfig with the reason
    effective_group({"consume.mode": "shared"}).lease_max_records
    consume_mode(configs of the group, configs of the subject)
    describe_group({"consume.mode": "shared"})          # a row per config, for DescribeConfigs

A group's configs are a mapping of the explicitly set ones only, as text. They belong to the group's
name: they may be set before its first member comes, and outlive its deletion, as in Kafka. A subject
can have `consume.mode` too; it holds for groups that do not set it themselves. Nothing here keeps state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kumquat.meta.catalogue import CONSUME_MODES, Definition
from kumquat.meta.definitions import ConfigRow, ConfigSource, Synonym
from kumquat.meta.errors import InvalidConfig
from kumquat.meta.values import INT_MAX, Value, integer, one_of, whole

MODE = "consume.mode"

_DEFINITIONS = (
    Definition(
        "auto.exclusive.after.ms",
        whole(0),
        "60000",
        "real",
        "With consume.mode=auto: how long a single member must have been left, with all that was "
        "handed out acked, before it reads in order again.",
    ),
    Definition(
        "consume.auto.offset.reset",
        one_of("earliest", "latest"),
        "earliest",
        "real",
        "With consume.mode=shared: where the group begins on a subject of which it has committed "
        "nothing. In the other modes the first member's own auto.offset.reset decides.",
    ),
    Definition(
        MODE,
        CONSUME_MODES,
        "auto",
        "real",
        "exclusive: one member reads a subject, in order, the others stand by. shared: each message "
        "goes to one of the members, in no order. auto: exclusive while there is one member, shared "
        "from the second on.",
    ),
    Definition(
        "lease.max.records",
        integer(1, INT_MAX),
        "2000",
        "real",
        "The most messages that a sharing member is handed in one answer.",
    ),
    Definition(
        "lease.steal.after.ms",
        whole(0),
        "1000",
        "real",
        "How long a sharing member waits with nothing to do before another one, that holds more than "
        "its pace explains, is told to give back what it has not acked.",
    ),
)

GROUP_DEFINITIONS = {definition.name: definition for definition in _DEFINITIONS}
assert list(GROUP_DEFINITIONS) == sorted(GROUP_DEFINITIONS), "kept in alphabetical order"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What the coordinator and the hand-outs of a group use."""

    consume_mode: str
    lease_max_records: int
    lease_steal_after_ms: int
    auto_exclusive_after_ms: int
    auto_offset_reset: str


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
    )


def consume_mode(group: Mapping[str, str], subject: Mapping[str, str]) -> str:
    """How a group reads a subject: the group's own config, else the subject's, else `auto`."""
    return str(_in_force(MODE, group if MODE in group else subject))


def describe_group(
    configs: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigRow]:
    """A row per config; `names` asks for some only, and unknown ones are left out, as in Kafka."""
    if names is None:
        return [_row(definition, configs) for definition in _DEFINITIONS]
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
