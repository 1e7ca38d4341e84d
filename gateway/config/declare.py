"""How one broker option is declared.

    message_max_bytes: int = option("message.max.bytes", 1048588, integer(0), "The largest …")

declares a field of BrokerConfig with all that is known about it: Kafka's name, default, kind (type and
bounds), doc. The flag, the environment variable and the texts of errors follow from that. The kinds of
numbers and booleans are in kumquat.meta.values, those of addresses and folders in kinds.py.
"""

from dataclasses import dataclass, field
from typing import TypeVar

from kumquat.meta.values import Kind

T = TypeVar("T")
ENVIRONMENT_PREFIX = "KUMQUAT_"


@dataclass(frozen=True, slots=True)
class Option:
    """What is known about one option. `aliases`: other names that Kafka has for it."""

    name: str
    field: str
    default: object
    kind: Kind[object]
    doc: str
    aliases: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace(".", "-")


def option(name: str, default: T, kind: Kind[T], doc: str, *, aliases: tuple[str, ...] = ()) -> T:
    """A field of BrokerConfig."""
    declared = Option(name, name.replace(".", "_"), default, kind, doc, aliases)
    return field(default=default, metadata={"option": declared})


def variable_of(name: str) -> str:
    """The environment variable of an option."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def show(value: object) -> str | None:
    """A value as it is written in a properties file; None for an option that is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
