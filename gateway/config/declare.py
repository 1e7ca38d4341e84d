"""How one broker option is declared, and the values that are more than a number.

    message_max_bytes: int = option("message.max.bytes", 1048588, integer(0), "The largest …")

declares a field of BrokerConfig with all that is known about it: Kafka's name, type, bounds,
default, doc. Flag, environment variable and the text of errors follow from that. Kinds of numbers
and booleans are kumquat.meta.values'; here are listeners and folders, and the kinds that refuse with a
reason.
"""

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kumquat.meta.values import ConfigType, Kind

T = TypeVar("T")
ENVIRONMENT_PREFIX = "KUMQUAT_"


class ConfigError(Exception):
    """The broker's options cannot be used: a line with option, value, source, what is allowed.

    `names`: the options that do not fit together, where it is about more than one. `complaints`: the
    lines, where there are several.
    """

    def __init__(self, *complaints: str, names: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints
        self.names = names


@dataclass(frozen=True, slots=True)
class Option:
    """What is known about one option. `aliases` are other names that Kafka has for it."""

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
    """A value as a properties file would have it; None for an option that is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on or to be found at; no host: every interface; port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"PLAINTEXT://{host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")


_LISTENER = re.compile(r"([^:/]+)://(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/]*):([0-9]{1,5})", re.ASCII)


def _read_listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if not match or int(match[3]) > 65535:
        raise ValueError(f"{text!r} is not of the form PLAINTEXT://host:port")
    protocol = match[1].upper()
    if protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ValueError(f"{protocol} is not served yet; only PLAINTEXT is")
    if protocol == "CONTROLLER":
        raise ValueError(
            "a Kumquat broker has no controller to listen for; only PLAINTEXT is served"
        )
    if protocol != "PLAINTEXT":
        raise ValueError(
            f"{match[1]!r} is not known; name every listener by its protocol, PLAINTEXT"
        )
    return Listener(match[2].strip("[]"), int(match[3]))


def _read_listeners(text: str) -> tuple[Listener, ...]:
    listeners = tuple(_read_listener(part.strip()) for part in text.split(","))
    taken = [listener for listener in listeners if listener.port]
    if len(set(taken)) < len(taken):
        raise ValueError("the same address is there twice")
    return listeners


LISTENERS: Kind[tuple[Listener, ...]] = Kind(
    ConfigType.LIST, "PLAINTEXT://host:port, several between commas", _read_listeners
)


@dataclass(frozen=True, slots=True)
class AdminListener:
    """Where the admin endpoint listens; port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"HTTP://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and no other."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_admin_listener(text: str) -> AdminListener | None:
    match = _LISTENER.fullmatch(text)
    if not match or match[1].upper() != "HTTP" or int(match[3]) > 65535:
        return None
    host = match[2].strip("[]").lower()
    if not is_loopback(host):
        raise ValueError(
            f"{host or 'every interface'!r} is not this machine alone, and whoever reaches the admin "
            "endpoint may change everything; use 127.0.0.1"
        )
    return AdminListener(host, int(match[3]))


ADMIN_LISTENER: Kind[AdminListener] = Kind(
    ConfigType.STRING, "HTTP://127.0.0.1:port", _read_admin_listener
)


def _read_directory(text: str) -> Path | None:
    if "," in text:
        raise ValueError(
            "one folder only: there is one message log, and it is not spread over disks"
        )
    return Path(text) if text else None


DIRECTORY: Kind[Path] = Kind(ConfigType.STRING, "the path of a folder", _read_directory)


def _read_one_partition(text: str) -> int:
    if text != "1":
        raise ValueError("every subject has exactly one partition, for any number of consumers: 1")
    return 1


ONE_PARTITION: Kind[int] = Kind(ConfigType.INT, "1", _read_one_partition)
