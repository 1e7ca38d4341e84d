"""The messages of a subject: a page from an offset on, from a time on, or the newest; and one of them.

Reading is bounded: PAGE messages, and at most SCANNED bytes of batches. A batch may be compressed; it is
opened in a thread, record by record, and no further than needed. Damaged batches are said to be so. Of the
records of a list only the beginnings are kept: fifty that were compressed may be of any size.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.errors import KumquatError
from kumquat.core.pools import SEARCH, in_thread
from kumquat.core.records.batch import read_head
from kumquat.core.records.records import records_of
from kumquat.gateway.console.asking import Unanswered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.records.records import Record
    from kumquat.gateway.broker import Broker

PAGE = 50
SCANNED = 4 << 20
READ_AT_ONCE = 1 << 20
LISTED = 4 << 10
"""Bytes of a key, a value or a header in a list."""


class MessagePage(NamedTuple):
    records: list[Record]
    """Offsets rise."""
    first: int
    """Where the page begins."""
    following: int | None
    """Where the next one begins; None: this is the end."""
    damage: str | None = None


async def browse(broker: Broker, subject: Subject, first: int, limit: int = PAGE) -> MessagePage:
    first = max(first, subject.earliest)
    end, inflation = subject.readable_end, broker.log.inflation.limit
    found: list[Record] = []
    at, scanned, damage = first, 0, None
    while at < end and len(found) < limit and scanned < SCANNED:
        try:
            batches = await broker.log.read(subject, at, READ_AT_ONCE, True)
            some, at = await in_thread(
                SEARCH,
                partial(_records, batches, at, limit - len(found), inflation, limit == 1),
            )
        except KumquatError as error:
            damage = f"from offset {at} on it cannot be read: {error}"
            break
        scanned += sum(map(len, batches))
        found += some
        if not batches:
            break
    following = at if at < end and damage is None else None
    return MessagePage(found, first, following, damage)


def _records(
    batches: Sequence[bytes | memoryview], first: int, most: int, limit: int, whole: bool
) -> tuple[list[Record], int]:
    """Records from `first` on, and where to go on."""
    found: list[Record] = []
    at = first
    for batch in batches:
        head = read_head(batch)
        for record in records_of(memoryview(batch), limit):
            if record.offset < first:
                continue
            if len(found) >= most:
                return found, record.offset
            found.append(record if whole else _beginning(record))
            at = record.offset + 1
        at = max(at, head.base_offset + head.last_offset_delta + 1)
    return found, at


def _beginning(record: Record) -> Record:
    def cut(data: bytes | None) -> bytes | None:
        return None if data is None else data[:LISTED]

    headers = tuple((name[:LISTED], cut(value)) for name, value in record.headers)
    return record._replace(key=cut(record.key), value=cut(record.value), headers=headers)


def newest(subject: Subject, limit: int = PAGE) -> int:
    """Where the last page begins."""
    return max(subject.earliest, subject.readable_end - limit)


async def at_time(broker: Broker, subject: Subject, time: int) -> int:
    """The offset of the first message that is not older; the end where there is none."""
    found = await broker.log.offset_for_timestamp(subject, time)
    return subject.readable_end if found is None else found[1]


async def message(broker: Broker, subject: Subject, offset: int) -> Record:
    """Raises Unanswered."""
    if not subject.earliest <= offset < subject.readable_end:
        raise Unanswered(
            404,
            f"{subject.name} has the offsets {subject.earliest} to {subject.readable_end - 1}, not "
            f"{offset}: the message is deleted, or not there yet",
        )
    page = await browse(broker, subject, offset, 1)
    if page.records and page.records[0].offset == offset:
        return page.records[0]
    raise Unanswered(
        404, page.damage or f"there is no message at offset {offset} of {subject.name}"
    )
