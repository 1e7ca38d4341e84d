"""What a member of a group can do, with any client.

Settings carry Kafka's names; a client is not given what it does not know. Offsets, errors and the time
that things take are the client's own: nothing is retried or hidden.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

SECONDS = 30.0
Told = Callable[[str, list[str]], None]
"""Called with `assigned`, `revoked` or `lost`, and the topics."""


class Record(NamedTuple):
    topic: str
    offset: int
    timestamp: int
    value: str
    attempt: int = 1
    """As the header qmq-attempt says."""
    at: int = 0
    """When the client gave it, ms."""


Report = Callable[[list[Record]], None]


class Client(Protocol):
    def subscribe(self, topics: list[str], pattern: str | None) -> None: ...
    def poll(self, seconds: float, most: int, report: Report) -> list[Record]:
        """Reports what it gives before any callback that comes later: what was given before its topic was
        taken away comes again for a reason."""

    def commit(self) -> None: ...
    def commit_at(self, topic: str, offset: int, text: str) -> None: ...
    def committed(self, topic: str) -> int | None: ...
    def position(self, topic: str) -> int: ...
    def seek(self, topic: str, where: str) -> None: ...
    def ends(self, topic: str) -> tuple[int, int]: ...
    def at(self, topic: str, timestamp: int) -> int | None: ...
    def pause(self, topic: str) -> None: ...
    def resume(self, topic: str) -> None: ...
    def assignment(self) -> list[str]: ...
    def close(self) -> None: ...


def record(topic: str, offset: int, timestamp: int, value: bytes | None, headers: Any) -> Record:
    """As a client has just given it."""
    attempt = dict(headers or ()).get("qmq-attempt", b"1")
    now = int(time.time() * 1000)
    return Record(topic, offset, timestamp, (value or b"").decode(), int(attempt), now)


def pythonic(settings: dict[str, str]) -> dict[str, Any]:
    """For kafka-python and aiokafka: session.timeout.ms=6000 is session_timeout_ms=6000 there."""
    return {name.replace(".", "_"): _plain(value) for name, value in settings.items()}


def _plain(value: str) -> str | int | bool:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if re.fullmatch(r"-?\d+", value) else value
