"""What is looked for in a subject, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.records.records import packed_varint

if TYPE_CHECKING:
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.records import Record

MAX_LIMIT = 1000
MAX_VALUE = 4096
MAX_FIELD = 1024
"""Keys and values of headers are cut to this."""
MAX_HEADERS = 100
"""Of a message. Empty ones are two bytes each: a message of 1 MB may have half a million."""
_HEADER_BYTES = 100
"""What a header takes in an answer, beside its name and value."""


@dataclass(frozen=True, slots=True)
class Query:
    """All that is given must hold. Without key, header and text, every message in the range matches."""

    subject: Subject
    key: bytes | None = None
    header: tuple[str, bytes] | None = None
    text: bytes | None = None
    """Stands in the value, byte by byte: upper and lower case differ."""
    since: int | None = None
    """Timestamps from here on …"""
    until: int | None = None
    """… to below here."""
    first: int | None = None
    """Offsets from here on …"""
    end: int | None = None
    """… to below here."""
    after: int | None = None
    """Go on behind this offset, in the direction of the search: what an earlier answer gave as `next`."""
    newest: bool = True
    """The newest first; else the oldest first."""
    limit: int = 20
    max_value: int = MAX_VALUE
    """Longer values are cut to this."""

    def needles(self) -> list[bytes]:
        """Bytes that are in every record that matches, as it stands in its batch."""
        found = []
        if self.key is not None:
            found.append(packed_varint(len(self.key)) + self.key)
        if self.header is not None:
            name, value = self.header[0].encode(), self.header[1]
            parts = packed_varint(len(name)), name, packed_varint(len(value)), value
            found.append(b"".join(parts))
        if self.text is not None:
            found.append(self.text)
        return found

    def matches(self, record: Record) -> bool:
        _, timestamp, key, value, headers = record
        return (
            (self.key is None or key == self.key)
            and (self.since is None or timestamp >= self.since)
            and (self.until is None or timestamp < self.until)
            and (self.header is None or self.header in headers)
            and (self.text is None or (value is not None and self.text in value))
        )


class Bytes(NamedTuple):
    """The beginning of some bytes, and how many there are."""

    data: bytes
    size: int


class Message(NamedTuple):
    offset: int
    timestamp: int
    key: Bytes | None
    value: Bytes | None
    headers: tuple[tuple[str, Bytes | None], ...]
    size: int
    """Of key, value and headers together."""
    headers_left_out: int = 0

    @property
    def held(self) -> int:
        """How many bytes of it are in memory."""
        values = sum(len(value.data) for _, value in self.headers if value is not None)
        own = sum(len(each.data) for each in (self.key, self.value) if each is not None)
        names = sum(len(name) + _HEADER_BYTES for name, _ in self.headers)
        return own + values + names


def shortened(record: Record, most: int) -> Message:
    """A message of an answer: a value of up to `most` bytes."""
    offset, timestamp, key, value, headers = record
    pairs = tuple((name, _start(data, MAX_FIELD)) for name, data in headers[:MAX_HEADERS])
    size = len(key or b"") + len(value or b"")
    size += sum(len(name.encode()) + len(data or b"") for name, data in headers)
    left_out = len(headers) - len(pairs)
    short = _start(key, MAX_FIELD), _start(value, most)
    return Message(offset, timestamp, *short, pairs, size, left_out)


def _start(data: bytes | None, most: int) -> Bytes | None:
    return None if data is None else Bytes(data[:most], len(data))


class Unreadable(NamedTuple):
    """Offsets that could not be looked at: from `first` to below `end`."""

    first: int
    end: int
    why: str


@dataclass(slots=True)
class Found:
    messages: list[Message] = field(default_factory=list)
    """In the direction of the search."""
    unreadable: list[Unreadable] = field(default_factory=list)
    batches: int = 0
    bytes: int = 0
    """Read: of batches, and of files of keys."""
    first: int = 0
    end: int = 0
    """The offsets that were looked at: from `first` to below `end`."""
    by_index: bool = False
    """Whether an index of keys was used, at least for a part."""
    next: int | None = None
    """Where to go on (`after`); None: all was looked at."""
