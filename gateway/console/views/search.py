"""Search: names of subjects and groups that contain a text; and messages, as GET /search finds them."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any, NamedTuple

from kumquat.core.records.records import Record
from kumquat.gateway.console.asking import ask, has_route
from kumquat.gateway.console.views import groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kumquat.gateway.broker import Broker
    from kumquat.gateway.console.views.subjects import Names

NAMES = 20
FIELDS = ("subject", "key", "header", "text", "since", "until", "after")
LIMIT = 20


class FoundNames(NamedTuple):
    subjects: list[str]
    groups: list[str]


class FoundMessages(NamedTuple):
    available: bool
    records: list[Record]
    scanned: Mapping[str, Any]
    by: str
    following: int | None


async def by_name(broker: Broker, names: Names, query: str) -> FoundNames:
    subjects, _ = await names.page(query, None)
    found = await groups.search(broker, query, None)
    return FoundNames(subjects[:NAMES], [row.name for row in found.rows[:NAMES]])


async def messages(broker: Broker, asked: Mapping[str, str]) -> FoundMessages:
    """Raises Unanswered."""
    if not has_route("GET", "/search"):
        return FoundMessages(False, [], {}, "", None)
    given = {name: asked[name] for name in FIELDS if name in asked}
    found = await ask(broker, "GET", "/search", **given, limit=LIMIT)
    return FoundMessages(
        True,
        [_record(each) for each in found["messages"]],
        found.get("scanned") or {},
        str(found.get("by", "")),
        found.get("next"),
    )


def _record(found: Mapping[str, Any]) -> Record:
    headers = tuple(_header(each) for each in found.get("headers") or ())
    return Record(
        int(found["offset"]),
        int(found.get("timestamp") or 0),
        _bytes(found.get("key")),
        _bytes(found.get("value")),
        headers,
    )


def _header(found: Any) -> tuple[str, bytes | None]:
    """A pair, or an object with name and value."""
    if isinstance(found, dict):
        return str(found.get("name")), _bytes(found.get("value"))
    return str(found[0]), _bytes(found[1])


def _bytes(found: Any) -> bytes | None:
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    if "base64" in found:
        return b64decode(found["base64"])
    return str(found.get("text", "")).encode()
