"""Events, and the records that they become.

An event is a small tuple, made on the event loop: when (ms), what, the name of the subject, the ranges of
sequences that it is about (None: it is about a message that has no sequence yet), and its further fields.
`batches` makes record batches of many of them, in a thread where they are many:

    key          the subject's name
    timestamp    when it happened
    value        {"at": …, "event": …, "subject": …, "ranges": [[first, count], …], further fields}

The README lists events and fields. They are read by other programs (trace, Spark, people's own), so a
field may be added and none may change its meaning.

Batches are compressed with gzip: it is the one codec that every Kafka client reads without a further
package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kumquat.core.records.frames import GZIP
from kumquat.core.records.records import packed_varint
from kumquat.core.records.rewrite import Body, build, compress

PRODUCED, SCHEDULED, DELIVERED = "produced", "scheduled", "delivered"
CANCELLED, MOVED = "cancelled", "moved"
BURIED, REDRIVEN, MISSED = "buried", "redriven", "missed"

Event = tuple[int, str, str, list[list[int]] | None, Mapping[str, Any]]

MOST_RANGES = 500
"""Of one event; one that has more becomes several."""
_BATCH_EVENTS = 2_000
_BATCH_BYTES = 512 << 10
"""Of records, before they are compressed."""
_LEVEL = 1
_encode = json.JSONEncoder(separators=(",", ":")).encode


def value_of(event: Event) -> bytes:
    at, what, subject, ranges, fields = event
    told: dict[str, Any] = {"at": at, "event": what, "subject": subject}
    if ranges is not None:
        told["ranges"] = ranges
    told.update(fields)
    return _encode(told).encode()


def batches(events: Sequence[Event]) -> Iterator[bytearray]:
    """Events as record batches, in their order."""
    records: list[tuple[Body, Sequence[bytes]]] = []
    size = 0
    keys: dict[str, bytes] = {}
    for event in events:
        subject, value = event[2], value_of(event)
        key = keys.get(subject)
        if key is None:
            key = keys[subject] = _field(subject.encode())
        records.append((Body(event[0], key + _field(value), 0, b""), ()))
        size += len(value)
        if len(records) >= _BATCH_EVENTS or size >= _BATCH_BYTES:
            yield compress(build(records), GZIP, _LEVEL)
            records, size = [], 0
    if records:
        yield compress(build(records), GZIP, _LEVEL)


def _field(data: bytes) -> bytes:
    return packed_varint(len(data)) + data
