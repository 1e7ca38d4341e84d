"""Options that are addresses or folders: how their text is read, and why a text is refused."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from kumquat.meta.values import ConfigType, Kind


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on, or at which clients find the broker. No host: every interface; port 0: any
    free port."""

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
    """Where the admin endpoint listens. No host: every interface; port 0: any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"HTTP://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine only."""
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
    return AdminListener(match[2].strip("[]").lower(), int(match[3]))


ADMIN_LISTENER: Kind[AdminListener] = Kind(
    ConfigType.STRING, "HTTP://127.0.0.1:port", _read_admin_listener
)


_NAME = re.compile(r"[0-9a-z_.-]+", re.ASCII)


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return bool(_NAME.fullmatch(text))
    return True


def _read_hosts(text: str) -> tuple[str, ...] | None:
    hosts = tuple(part.strip().strip("[]").lower() for part in text.split(",")) if text else ()
    return hosts if all(map(_is_host, hosts)) else None


HOSTS: Kind[tuple[str, ...]] = Kind(
    ConfigType.LIST, "host names or addresses without ports, several between commas", _read_hosts
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
