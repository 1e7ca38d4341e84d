"""What the history of a broker in this process says, for tests.

events = await told(served)                     # all, as JSON objects, in their order
events = await told(served, "t", "acked")       # of one subject, of one kind
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kumquat.core.records import records_of
from kumquat.gateway.topics.table import ACTIONS

if TYPE_CHECKING:
    from kumquat.gateway.tests.harness import Served


async def told(
    served: Served, subject: str | None = None, event: str | None = None
) -> list[dict[str, Any]]:
    await served.broker.history.flush()
    log, found = served.broker.log, list[dict[str, Any]]()
    history = log.subjects.by_name.get(ACTIONS)
    at = 0 if history is None else history.earliest
    while history is not None and at < history.readable_end:
        for batch in await log.read(history, at, 1 << 20, True):
            for record in records_of(memoryview(batch), 1 << 24):
                value = json.loads(record.value or b"")
                assert record.key == value["subject"].encode()
                assert record.timestamp == value["at"]
                found.append(value)
                at = record.offset + 1
    return [
        each
        for each in found
        if subject in (None, each["subject"]) and event in (None, each["event"])
    ]


def brief(events: list[dict[str, Any]], *fields: str) -> list[tuple[Any, ...]]:
    """What happened, and to which sequences."""
    return [
        (each["event"], each.get("ranges"), *(each.get(field) for field in fields))
        for each in events
    ]
