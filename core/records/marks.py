"""Whether a batch may ask something of the broker: the one search that every batch pays for.

Every header that asks something of the broker begins with `qmq-`. People also write `QMQ-Delay-Ms` or
`qmq-delay`, and such a message must not be delivered at once without an error. So any name that begins so,
in any case, has the batch opened (core/wheel/intake/split.py), where the header is obeyed or refused. The
names in OURS are the broker's own: they stand on records that it delivered and that somebody copied. They
ask for nothing, and a batch that has only those is not opened.

The search is on the path of every batch. A batch that ends with a zero ends with a record without headers:
only the small letters are searched for, at the speed of memory. If the last record has headers, letters of
both cases are, which takes twice as long.

A compressed batch is searched piece by piece (`survey`), so it takes the memory of one piece. A name that
spans two pieces is found. The inflated bytes are counted on the way: a batch cannot hold more records than
fit into them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from stringzilla import count, find, utf8_uncased_search

from kumquat.core.errors import InvalidRecord, WouldBlock
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, LEAST_RECORD, BatchHead
from kumquat.core.records.compression import PIECE, Data, pieces

PREFIX: Final = b"qmq-"
OURS: Final = (
    b"qmq-due-ms",
    b"qmq-created-ms",
    b"qmq-attempt",
    b"qmq-retry-",
    b"qmq-dead-",
    b"qmq-redriven-ms",
)
"""None begins with another: each `qmq-` is counted once."""
_CARRIED = max(map(len, OURS)) - 1
"""How much of a piece may begin a name that ends in the next."""
_SHORT = 1 << 10
"""Shorter pieces are copied behind what was carried."""
_SMALL = 1 << 10
"""Up to here a copy in small letters is cheaper than a search for both cases."""


class Survey(NamedTuple):
    size: int
    """Of the records, inflated."""
    asks: bool
    """Whether a record may ask for something: the batch has to be opened."""


def may_ask(data: Data) -> bool:
    """Whether the bytes of records may hold a header that asks for something."""
    size = len(data)
    if not size:
        return False
    if not data[-1]:
        seen = find(data, PREFIX)
    elif size < _SMALL:
        seen = bytes(data).lower().find(PREFIX)
    else:
        seen = utf8_uncased_search(data, PREFIX)
    return seen >= 0 and _foreign(data, size)


def survey(batch: memoryview, head: BatchHead, limit: int, most: int | None = None) -> Survey:
    """Look through a compressed batch. WouldBlock: it inflates to more than `most`. InvalidRecord: to more
    than `limit`, or it claims more records than there can be in it."""
    size = PIECE if most is None else min(PIECE, most + 1)
    found = look_through(pieces(head.attributes & CODEC_MASK, batch[HEAD_SIZE:], limit, size), most)
    check_count(head, found.size)
    return found


def check_count(head: BatchHead, size: int) -> None:
    """That so many records can be in so many inflated bytes."""
    if head.record_count * LEAST_RECORD > size:
        raise InvalidRecord(
            f"the batch claims {head.record_count} records, and inflates to {size} bytes"
        )


def look_through(found: Iterable[Data], most: int | None = None) -> Survey:
    """The same for the pieces of a batch, of any sizes. Long pieces are searched in place; what spans two
    pieces is found in a copy of the few bytes on both sides of the border."""
    size, asking, carried = 0, False, b""
    for piece in found:
        size += len(piece)
        if most is not None and size > most:
            raise WouldBlock
        if asking:
            continue
        if len(piece) < _SHORT:
            window = carried + piece
            border = max(0, len(window) - _CARRIED)
            asking = _asks(window, border)
            carried = window[border:]
        else:
            asking = _asks(carried + piece[:_CARRIED], len(carried)) or _asks(
                piece, len(piece) - _CARRIED
            )
            carried = bytes(piece[-_CARRIED:])
    return Survey(size, asking or _asks(carried, len(carried)))


def asks(data: Data) -> bool:
    """Whether the inflated records of a batch may ask for something."""
    return _asks(data, len(data))


def _asks(data: Data, end: int) -> bool:
    """Whether a name that begins before `end` may ask for something."""
    return len(data) > 0 and utf8_uncased_search(data, PREFIX) >= 0 and _foreign(data, end)


def _foreign(data: Data, end: int) -> bool:
    """Whether some `qmq-` that begins before `end` is not the beginning of a name in OURS."""
    lowered = bytes(data).lower()
    return _begun(lowered, PREFIX, end) != sum(_begun(lowered, name, end) for name in OURS)


def _begun(lowered: bytes, name: bytes, end: int) -> int:
    """How often a name begins before `end`."""
    return int(count(memoryview(lowered)[: end + len(name) - 1], name))
