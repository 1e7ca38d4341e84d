"""A search that reads everything: what every other must find."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kumquat.core.logs.tests.keyed import Stored
    from kumquat.gateway.search.query import Query


def naive(messages: Iterable[Stored], query: Query, earliest: int, end: int) -> list[int]:
    """The offsets that a search must find, of all messages that were ever stored: no index, no bounds."""
    found = []
    for offset, timestamp, key, value, headers in messages:
        wanted = [
            earliest <= offset < end,
            query.key is None or key == query.key,
            query.header is None or query.header in headers,
            query.text is None or (value is not None and query.text in value),
            query.since is None or timestamp >= query.since,
            query.until is None or timestamp < query.until,
            query.first is None or offset >= query.first,
            query.end is None or offset < query.end,
        ]
        if all(wanted):
            found.append(offset)
    return sorted(found, reverse=query.newest)
