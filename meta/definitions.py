"""A subject's configs: which are allowed, which values are in force, how they are shown. For handlers.

    defaults = SubjectDefaults({"log.retention.ms": "86400000"})    # from the broker's options
    validate("retention.ms", "3600000")               # None, or InvalidConfig with the reason
    effective({"retention.ms": "3600000"}, defaults)  # the values that the log uses
    describe({"retention.ms": "3600000"}, defaults)   # a row per config, for DescribeConfigs

A subject's configs are a mapping of those that were set explicitly, as text, just as the client
wrote them. Everything else follows from the broker's options (`synonym`) or from the definition's
default. The table of definitions is catalogue.py; nothing here keeps state or does I/O.

A stored value may be none that is allowed: an older version took it, or the SQL file was edited by hand.
Such a value is shown as it is, but has no effect (`effective` takes the broker's), and `outdated` says
so in words, for the log at start.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import IntEnum
from types import MappingProxyType

from kumquat.meta.catalogue import DEFINITIONS, RETIRED, Definition
from kumquat.meta.errors import InvalidConfig
from kumquat.meta.values import ConfigType, Value

__all__ = [
    "DEFINITIONS",
    "ConfigRow",
    "ConfigSource",
    "Definition",
    "EffectiveConfig",
    "SubjectDefaults",
    "Synonym",
    "describe",
    "effective",
    "outdated",
    "validate",
]

_SYNONYMS = frozenset(d.synonym for d in DEFINITIONS.values() if d.synonym)


class ConfigSource(IntEnum):
    """Where a value comes from: the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class SubjectDefaults:
    """The broker's options, by Kafka name, that stand in for configs that a subject does not set.

    Only options that the operator changed belong here: the others have the definitions' defaults.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    rows: dict[str, "ConfigRow"] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Rows of configs that are not set, made once: most configs of most subjects are not set."""

    def __post_init__(self) -> None:
        unknown = set(self.options) - _SYNONYMS
        assert not unknown, f"no subject config takes its default from {unknown}"
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))

    @classmethod
    def changed(cls, options: Mapping[str, object]) -> "SubjectDefaults":
        """Of all these options, those that differ from the defaults of the definitions."""
        usual = {(d.synonym, d.default) for d in DEFINITIONS.values()}
        texts = {name: str(value) for name, value in options.items()}
        return cls({name: text for name, text in texts.items() if (name, text) not in usual})

    def default_of(self, definition: Definition) -> str:
        return self.options.get(definition.synonym or "", definition.default)

    @property
    def retention_ms(self) -> int:
        return int(self.default_of(DEFINITIONS["retention.ms"]))


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """What the log uses; -1 is "no limit"."""

    max_message_bytes: int
    retention_ms: int
    retention_bytes: int
    log_append_time: bool
    delay_enabled: bool
    index_keys: bool
    history: int
    """Of how many messages one has its life recorded; 1: of all, 0: of none."""


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """One config as DescribeConfigs shows it. `synonyms`: the winner first, then what it hides."""

    name: str
    value: str
    source: ConfigSource
    type: ConfigType
    doc: str
    synonyms: tuple[Synonym, ...]
    read_only: bool = False

    @property
    def is_default(self) -> bool:
        return self.source not in (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.GROUP_CONFIG)


def validate(name: str, value: str) -> None:
    """Raises InvalidConfig unless a subject may have this config with this value."""
    _parse(name, value)


def effective(configs: Mapping[str, str], defaults: SubjectDefaults) -> EffectiveConfig:
    """The values in force; a stored value that is no longer allowed counts as not set."""

    def in_force(name: str) -> Value:
        if name in configs:
            try:
                return _parse(name, configs[name])
            except InvalidConfig:
                pass
        definition = DEFINITIONS[name]
        return definition.kind.parse(defaults.default_of(definition))

    def number(name: str) -> int:
        value = in_force(name)
        assert isinstance(value, int)
        return value

    return EffectiveConfig(
        max_message_bytes=number("max.message.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        log_append_time=in_force("message.timestamp.type") == "LogAppendTime",
        delay_enabled=in_force("delay.enabled") is True,
        index_keys=in_force("index.keys") is True,
        history=(
            number("history.sample")
            if in_force("history") == "sampled"
            else int(in_force("history") == "all")
        ),
    )


def outdated(configs: Mapping[str, str]) -> list[str]:
    """Why stored values are not in force: a reason for each that would be refused today."""
    reasons = []
    for name, value in configs.items():
        try:
            _parse(name, value)
        except InvalidConfig as error:
            reasons.append(str(error))
    return reasons


def describe(
    configs: Mapping[str, str], defaults: SubjectDefaults, names: Iterable[str] | None = None
) -> list[ConfigRow]:
    """A row per config; `names` asks for some only, and unknown ones are left out, as in Kafka."""
    wanted = DEFINITIONS if names is None else [name for name in names if name in DEFINITIONS]
    return [_row(DEFINITIONS[name], configs, defaults) for name in wanted]


def _row(
    definition: Definition, configs: Mapping[str, str], defaults: SubjectDefaults
) -> ConfigRow:
    usual = defaults.rows.get(definition.name)
    if usual is None:
        usual = defaults.rows[definition.name] = _usual_row(definition, defaults)
    value = configs.get(definition.name)
    if value is None:
        return usual
    own = Synonym(definition.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return replace(usual, value=value, source=own.source, synonyms=(own, *usual.synonyms))


def _usual_row(definition: Definition, defaults: SubjectDefaults) -> ConfigRow:
    synonyms = []
    name = definition.synonym or definition.name
    if definition.synonym and name in defaults.options:
        value = defaults.options[name]
        synonyms.append(Synonym(name, value, ConfigSource.STATIC_BROKER_CONFIG))
    synonyms.append(Synonym(name, definition.default, ConfigSource.DEFAULT_CONFIG))
    winner = synonyms[0]
    return ConfigRow(
        name=definition.name,
        value=winner.value,
        source=winner.source,
        type=definition.kind.type,
        doc=definition.doc,
        synonyms=tuple(synonyms),
    )


def _parse(name: str, text: str) -> Value:
    definition = DEFINITIONS.get(name)
    if definition is None:
        raise InvalidConfig(_unknown(name))
    try:
        value = definition.kind.parse(text)
    except ValueError as error:
        raise InvalidConfig(f"{name}={text!r} is not allowed: {error}") from None
    reason = definition.refusal(value) if definition.refusal else None
    if reason:
        raise InvalidConfig(f"{name}={text!r} is refused: {reason}")
    return value


def _unknown(name: str) -> str:
    if name in RETIRED:
        return f"{name} is refused: {RETIRED[name]}"
    near = get_close_matches(name, DEFINITIONS, n=1)
    return f"unknown config {name!r}" + (f"; did you mean {near[0]}?" if near else "")
