"""Reading a subject for a trace: slice by slice, within a budget, and without holding up others.

A slice is some batches. It is read as any Fetch reads, and its records are looked at in the one thread that
all searches share: a thread of its own for each, or one that clients need, would hold those up. What
retention takes meanwhile, and what is damaged, is passed over: a trace tells what there is. When the budget
of time or bytes is used up, reading stops, and `Budget.spent` says so.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import trio

from kumquat.core.errors import (
    CorruptMessage,
    InvalidRecord,
    OffsetOutOfRange,
    UnsupportedCompression,
)
from kumquat.core.pools import SCAN, in_thread
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, read_head
from kumquat.core.records.compression import inflate
from kumquat.core.records.records import records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.logs.messages.tail import Batch
    from kumquat.core.records.records import Record

SLICE_BYTES = 64 << 10
SECONDS = 5.0
MOST_BYTES = 64 << 20
MOST_HEADERS = 100
_GARBLED = (CorruptMessage, InvalidRecord, UnsupportedCompression)


class Budget:
    """How much a trace may read."""

    def __init__(self, seconds: float = SECONDS, most_bytes: int = MOST_BYTES) -> None:
        self._until = trio.current_time() + seconds
        self._left = most_bytes

    @property
    def spent(self) -> bool:
        return self._left <= 0 or trio.current_time() >= self._until

    def take(self, size: int) -> None:
        self._left -= size


class Slices:
    """The records of a subject that fit, from a sequence on, in slices."""

    def __init__(
        self,
        log: MessageService,
        subject: Subject,
        begin: int,
        end: int,
        budget: Budget,
        *,
        marks: tuple[bytes, ...] = (),
    ) -> None:
        """Up to `end`. `marks`: every record that could fit has one of these; a batch that has none of them
        is not looked at further."""
        self._log = log
        self._subject = subject
        self._end = min(end, subject.readable_end)
        self._budget = budget
        self._marks = marks
        self.at = max(begin, subject.earliest)

    async def next(self, fits: Callable[[Record], bool]) -> list[Record] | None:
        """Those of the next slice; None: that was all, or the budget is spent. `fits` is called in a
        thread."""
        if self.at >= self._end or self._budget.spent:
            return None
        try:
            batches = await self._log.read(self._subject, self.at, SLICE_BYTES, True)
        except OffsetOutOfRange:
            self.at = max(self.at + 1, self._subject.earliest)
            return []
        except CorruptMessage:
            self.at = max(self.at + 1, (await self._log.bounds(self._subject, self.at))[1])
            return []
        if not batches:
            return None
        begin, head = self.at, read_head(batches[-1])
        self.at = head.base_offset + head.last_offset_delta + 1
        self._budget.take(sum(map(len, batches)))
        limit, end = self._log.inflation.limit, self._end
        found = await in_thread(SCAN, _matching, batches, self._marks, fits, limit)
        return [record for record in found if begin <= record.offset < end]


def _matching(
    batches: Sequence[Batch], marks: tuple[bytes, ...], fits: Callable[[Record], bool], limit: int
) -> list[Record]:
    found: list[Record] = []
    for batch in batches:
        view = memoryview(batch)
        try:
            if not marks or _has(view, marks, limit):
                found += [record for record in records_of(view, limit) if fits(record)]
        except _GARBLED:
            continue
    return found


def _has(batch: memoryview, marks: tuple[bytes, ...], limit: int) -> bool:
    codec, data = read_head(batch).attributes & CODEC_MASK, batch[HEAD_SIZE:]
    inflated = bytes(inflate(codec, data, limit))
    return any(mark in inflated for mark in marks)


def shown(data: bytes | None) -> dict[str, str] | None:
    """Bytes in JSON: text where they are UTF-8, else base64."""
    if data is None:
        return None
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def head_of(record: Record, stored: int | None) -> dict[str, Any]:
    """A message without its value, with the first of its headers."""
    some = record.headers[:MOST_HEADERS]
    headers = [{"name": name, "value": shown(value)} for name, value in some]
    pairs = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return {
        "timestamp": record.timestamp,
        "stored": stored,
        "key": shown(record.key),
        "headers": headers,
        "size": len(record.key or b"") + len(record.value or b"") + pairs,
    }
