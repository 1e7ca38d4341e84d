"""One batch: which of its messages match.

Before records are taken apart, which costs microseconds each, the bytes of the batch are searched for
what every match must hold: a key or a header as it stands in a record, with its length in front, or the
text. That runs at the speed of memory, also over what a compressed batch inflates to, piece by piece.
So a batch without a match is never parsed.

A batch that cannot be opened, or whose records break off, gives the matches before that place, and the
error.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from stringzilla import find

from kumquat.core.errors import CorruptMessage, InvalidRecord, UnsupportedCompression
from kumquat.core.records import read_head, records_of
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE
from kumquat.core.records.compression import pieces
from kumquat.gateway.search.query import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kumquat.core.records import Record
    from kumquat.gateway.search.query import Message, Query

_CODEC_BYTE = 22
"""Of a batch: the low byte of its attributes."""
_AT_A_TIME = 256
"""Records, after which it looks whether anybody still waits for the answer."""


class Matches:
    """What was found so far, in the direction of the search, within bounds of number and bytes."""

    def __init__(self, query: Query, room: int, most_bytes: int) -> None:
        self._query = query
        self._room = room
        self._most_bytes = most_bytes
        self._needles = query.needles()
        self._rarest = max(self._needles, key=len, default=b"")
        """The longest: found in the fewest batches."""
        self.messages: list[Message] = []
        self.held = 0
        self._left_out = False
        """Whether there was no room for the first ones of a batch."""

    @property
    def is_full(self) -> bool:
        enough = len(self.messages) >= self._room or self.held >= self._most_bytes
        return enough or self._left_out

    def rules_out(self, batch: bytes | memoryview) -> bool:
        """Whether one look at its bytes says that nothing in a batch can match. Most batches end here."""
        if not self._rarest or batch[_CODEC_BYTE] & CODEC_MASK:
            return False
        return int(find(batch, self._rarest)) < 0

    def look_through(
        self, batch: memoryview, first: int, end: int, limit: int, check: Callable[[], None]
    ) -> str | None:
        """Add the messages of a batch that match, with offsets from `first` to below `end`; gives why not
        all could be looked at, if so. `limit`: `max.decompressed.bytes`. `check` raises when nobody waits
        any more."""
        found: deque[Message] = deque()
        error = None
        try:
            if _may_match(batch, self._needles, limit):
                self._collect(found, records_of(batch, limit), first, end, check)
        except (CorruptMessage, InvalidRecord, UnsupportedCompression) as failure:
            error = str(failure)
        self.messages += reversed(found) if self._query.newest else found
        return error

    def _collect(
        self,
        found: deque[Message],
        records: Iterator[Record],
        first: int,
        end: int,
        check: Callable[[], None],
    ) -> None:
        """The first ones that there is room for, or the last ones: a batch may hold millions."""
        query, room = self._query, self._room - len(self.messages)
        for number, record in enumerate(records):
            if number % _AT_A_TIME == 0:
                check()
            if not first <= record.offset < end or not query.matches(record):
                continue
            found.append(shortened(record, query.max_value))
            self.held += found[-1].held
            if query.newest:
                while len(found) > room or (self.held > self._most_bytes and len(found) > 1):
                    self.held -= found.popleft().held
                    self._left_out = True
            elif len(found) >= room or self.held >= self._most_bytes:
                return


def _may_match(batch: memoryview, needles: Sequence[bytes], limit: int) -> bool:
    """Whether all that a match must hold is somewhere in the batch."""
    codec, data = read_head(batch).attributes & CODEC_MASK, batch[HEAD_SIZE:]
    if not codec:
        return all(find(data, needle) >= 0 for needle in needles)
    missing, carried = list(needles), b""
    longest = max(map(len, needles), default=0)
    for piece in pieces(codec, data, limit) if needles else ():
        window = carried + bytes(piece)
        missing = [needle for needle in missing if find(window, needle) < 0]
        if not missing:
            return True
        carried = window[max(0, len(window) - longest + 1) :]
    return not missing
