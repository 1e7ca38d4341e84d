"""A client's batch, opened and split: what is plain, what is for later, what cancels.

Four headers of a record ask for something. All begin alike, so one search tells nearly every plain batch
(core/records/marks.py); only a batch that may ask for something comes here.

    qmq-delay-ms      from now: decimal milliseconds, or a duration (`90s`, `1h30m`; durations.py)
    qmq-deliver-at    decimal milliseconds since the epoch, or ISO 8601 with a zone; what is past is due now
    qmq-delay-id      names the message in its subject, together with one of the times
    qmq-delay-cancel  cancels the message of that name; with one of the times, moves it to then

Rules:
- A value that is not what it should be refuses the whole batch. The reason names the record by its index
  in the batch, the header, what was found and what is allowed. Nothing is clamped.
- So does a header whose name begins like these, case aside, and is none of them: it is misspelled, and
  its message would arrive at once. Names of the broker's own (`OURS` in marks.py) pass.
- A parked record (core/logs/messages/parked.py) has key, value and the headers that stay. The four
  above are gone, and so are `qmq-due-ms` and `qmq-created-ms`, which delivery sets; a plain record
  keeps whatever it has.
- The plain records stay a batch with the deltas, timestamps, producer and codec that they had. The
  offsets of the others are holes in it.
- What is stored is bounded by `max.message.bytes` (`most` here): once for the plain batch, compressed as
  it is stored, and once for the parked records, which are stored as they are. MESSAGE_TOO_LARGE makes
  clients that can split the batch do so.
- A record in which no name can begin is plain and is passed over by its length; its inside stays the
  client's affair, as in a batch that nobody opens.

Left out: what a cancel meets, and whether it was alone in its batch, is the service's business. Pure; the
loop over the records runs in a few microseconds for each, so large batches belong in a thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import accumulate, product
from typing import Final, NamedTuple

import stringzilla
from crc32c import crc32c

from kumquat.core.errors import InvalidRecord, MessageTooLarge
from kumquat.core.logs.messages.parked import CRC_BEGINS, RECORD_HEAD_SIZE
from kumquat.core.records.batch import (
    CODEC_MASK,
    CRC_FROM,
    HEAD_SIZE,
    LOG_APPEND_TIME,
    OVERHEAD,
    BatchHead,
)
from kumquat.core.records.compression import compressed
from kumquat.core.records.marks import OURS, PREFIX
from kumquat.core.records.records import varint
from kumquat.core.wheel.format import LONGEST_ID
from kumquat.core.wheel.intake.durations import FORMS, read_duration, read_instant

DELAY: Final = b"qmq-delay-ms"
DELIVER_AT: Final = b"qmq-deliver-at"
DELAY_ID: Final = b"qmq-delay-id"
CANCEL: Final = b"qmq-delay-cancel"

_ASKING = frozenset((DELAY, DELIVER_AT, DELAY_ID, CANCEL))
_DROPPED = frozenset((b"qmq-due-ms", b"qmq-created-ms"))
assert all(name.startswith(PREFIX) for name in _ASKING | _DROPPED)

_ALLOWED_ID = f"1 to {LONGEST_ID} bytes of UTF-8"
_MOST_DIGITS = 19
_INSTANTS = "in milliseconds since 1970 or as ISO 8601 with a zone (2027-03-01T08:00Z)"
_SHOWN = 40
"""How much of a bad value an error shows."""
_DELAY_ALONE = b"\x02\x18" + DELAY
_DELIVER_AT_ALONE = b"\x02\x1c" + DELIVER_AT
"""The headers of a record that has just this one, up to its value's length."""
_TWO_HEADERS = b"\x04"

_ODD_PREFIXES = sorted({bytes(each) for each in product(b"qQ", b"mM", b"qQ", b"-")} - {PREFIX})
"""The prefix in every case but its own."""

_SUMS = struct.Struct(">II")
_SUMMED = struct.Struct(">qqH")
assert (_SUMS.size, _SUMS.size + _SUMMED.size) == (CRC_BEGINS, RECORD_HEAD_SIZE)
_LENGTH, _CRC, _COUNT = 8, 17, 57
"""Where these fields lie in the head of a batch."""

_Asked = dict[bytes, bytes | None]
"""The headers that ask for something, with their values."""


class Cancel(NamedTuple):
    """A record that cancels, or moves."""

    record: int
    """Its index in the client's batch."""
    delay_id: bytes
    new_due: int | None
    behind: int
    """How many records of the batch were parked before it."""


class Split(NamedTuple):
    plain: bytearray | None
    """The plain records as a batch; None: there are none."""
    parked: bytes
    """Parked records, one behind the other."""
    starts: list[int]
    """Where in `parked` each of them begins."""
    dues: list[int]
    names: dict[int, bytes]
    """Delay ids, by the index in `starts`."""
    cancels: list[Cancel]
    records: int
    """How many records the client's batch had."""


def split(
    batch: memoryview,
    head: BatchHead,
    data: bytes | memoryview,
    now: int,
    max_delay_ms: int,
    most: int,
) -> Split | None:
    """What the records of a batch ask for; `data` is what they inflate to. None: nothing, the batch is
    plain after all. InvalidRecord: something that cannot be done. MessageTooLarge: more than `most` bytes
    would be stored."""
    records = bytes(data)
    sorting = _Sorting(records, head, now, max_delay_ms, most)
    taken = sorting.run()
    if not taken:
        return None
    return Split(
        _without(taken, batch, head, records, most) if len(taken) < head.record_count else None,
        b"".join(sorting.parked),
        [0, *accumulate(map(len, sorting.parked))][:-1],
        sorting.dues,
        sorting.names,
        sorting.cancels,
        head.record_count,
    )


class _Sorting:
    """One pass over the records of a batch."""

    def __init__(
        self, data: bytes, head: BatchHead, now: int, max_delay_ms: int, most: int
    ) -> None:
        self._data = data
        odd = any(stringzilla.find(data, each) >= 0 for each in _ODD_PREFIXES)
        self._searched = data.lower() if odd else data
        self._most = most
        self._count = head.record_count
        self._by_producer = not head.attributes & LOG_APPEND_TIME
        self._timestamp = head.base_timestamp if self._by_producer else head.max_timestamp
        self._now = now
        self._max_delay_ms = max_delay_ms
        self._index = 0
        self.parked: list[bytes] = []
        self.dues: list[int] = []
        self.names: dict[int, bytes] = {}
        self.cancels: list[Cancel] = []

    def run(self) -> list[tuple[int, int]]:
        """Sort all records. Returns where those lie that are not plain."""
        taken: list[tuple[int, int]] = []
        try:
            end = self._pass(taken)
        except InvalidRecord as error:
            raise InvalidRecord(f"record {self._index} of the batch: {error}") from error
        except IndexError as error:
            raise InvalidRecord(f"record {self._index} of the batch breaks off") from error
        if end != len(self._data):
            raise InvalidRecord(f"{len(self._data) - end} bytes follow the records of the batch")
        return taken

    def _pass(self, taken: list[tuple[int, int]]) -> int:
        """The one loop over records: short varints are read in place, all else is in its calls."""
        data, size, at, mark = self._data, len(self._data), 0, -1
        searched, stored = self._searched, 0
        timestamp, by_producer = self._timestamp, self._by_producer
        for index in range(self._count):
            self._index, start = index, at
            if (doubled := data[at]) < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                doubled, at = doubled & 0x7F | high << 7, at + 2
            else:
                doubled, at = _doubled(data, at)
            end = at + (doubled >> 1)
            if doubled & 1 or end > size:
                raise InvalidRecord(f"it claims {_signed(doubled)} bytes, {size - at} are left")
            if (since := data[at + 1]) < 0x80:
                at += 2
            else:
                since, at = _doubled(data, at + 1)
            if (delta := data[at]) < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                delta, at = delta & 0x7F | high << 7, at + 2
            else:
                delta, at = _doubled(data, at)
            if delta != 2 * index:
                raise InvalidRecord(f"its offset delta is {_signed(delta)}")
            if mark < at:
                mark = searched.find(PREFIX, at)
                mark = mark if mark >= 0 else size
            if mark < end:
                created = timestamp + ((since >> 1) ^ -(since & 1)) * by_producer
                if self._take(at, end, created):
                    taken.append((start, end))
                    stored += end - start
                    if stored > self._most:
                        raise self._too_large()
            at = end
        return at

    def _too_large(self) -> MessageTooLarge:
        """What was taken out is stored as it is: it has to be bounded."""
        return MessageTooLarge(
            f"from record {self._index} on the records for later in the batch have more bytes, "
            "inflated, than max.message.bytes allows: send fewer of them in a batch"
        )

    def _take(self, at: int, end: int, created: int) -> bool:
        """Sort the record whose key begins at `at`; False: it is plain."""
        headers_at = _headers_begin(self._data, at)
        fields = self._data[at:headers_at]
        due = self._alone(headers_at, end)
        if due is not None:
            self._park(due, created, b"", fields + _TWO_HEADERS)
            return True
        asked, stay, count = self._headers(headers_at, end)
        if not asked:
            return False
        due = self._due(asked)
        if CANCEL in asked:
            if DELAY_ID in asked:
                raise _refused(DELAY_ID, asked[DELAY_ID], f"not beside {CANCEL.decode()}")
            self.cancels.append(Cancel(self._index, _name(CANCEL, asked), due, len(self.dues)))
            return True
        if due is None:
            times = f"{DELAY.decode()} or {DELIVER_AT.decode()}"
            raise _refused(DELAY_ID, asked[DELAY_ID], f"only beside {times}")
        name = b""
        if DELAY_ID in asked:
            name = self.names[len(self.dues)] = _name(DELAY_ID, asked)
        self._park(due, created, name, fields + _varint(count + 2) + stay)
        return True

    def _park(self, due: int, created: int, name: bytes, body: bytes) -> None:
        try:
            summed = _SUMMED.pack(due, created, len(name)) + name + body
        except struct.error as error:
            raise InvalidRecord(f"its timestamp {created} has more than 64 bits") from error
        self.parked.append(_SUMS.pack(CRC_BEGINS + len(summed), crc32c(summed)) + summed)
        self.dues.append(due)

    def _alone(self, at: int, end: int) -> int | None:
        """The due of a record whose only header is a time, the common case; None: look closer."""
        data = self._data
        if data.startswith(_DELAY_ALONE, at):
            value_at, begin = at + 14, self._now
        elif data.startswith(_DELIVER_AT_ALONE, at):
            value_at, begin = at + 16, 0
        else:
            return None
        text = data[value_at + 1 : end]
        if text.isdigit() and data[value_at] == 2 * len(text) and len(text) <= _MOST_DIGITS:
            due = begin + int(text)
            if self._now <= due <= self._now + self._max_delay_ms:
                return due
        return None

    def _allowed(self, due: int) -> int | None:
        """A due time; None: it is too late."""
        if due <= self._now + self._max_delay_ms:
            return due if due > self._now else self._now
        return None

    def _due(self, asked: _Asked) -> int | None:
        """When it is to be delivered; None: no time is given."""
        if DELAY in asked:
            if DELIVER_AT in asked:
                raise _refused(DELIVER_AT, asked[DELIVER_AT], f"not beside {DELAY.decode()}")
            name, read, begin, form = DELAY, read_duration, self._now, FORMS
        elif DELIVER_AT in asked:
            name, read, begin, form = DELIVER_AT, read_instant, 0, _INSTANTS
        else:
            return None
        text = asked[name] or b""
        try:
            digits = text.isdigit() and len(text) <= _MOST_DIGITS
            due = self._allowed(begin + (int(text) if digits else read(text.decode("ascii"))))
        except ValueError:
            due = None
        if due is None:
            latest = self._now + self._max_delay_ms - begin
            allowed = f"0 to {latest} (delay.max.ms is {self._max_delay_ms}), {form}"
            raise _refused(name, asked[name], allowed)
        return due

    def _headers(self, at: int, end: int) -> tuple[_Asked, bytes, int]:
        """What the record asks for, the other headers that it keeps if it is parked, and their count."""
        data = self._data
        asked: _Asked = {}
        stay = []
        doubled, at = _doubled(data, at)
        if doubled & 1:
            raise InvalidRecord(f"it claims {_signed(doubled)} headers")
        for _ in range(doubled >> 1):
            start = at
            doubled, at = _doubled(data, at)
            name = data[at : at + (doubled >> 1)]
            if doubled & 1 or (at := at + len(name)) > end:
                raise InvalidRecord("it has a header without a name, or with one beyond its end")
            doubled, value_at = _doubled(data, at)
            at = value_at if doubled & 1 else value_at + (doubled >> 1)
            if name in _ASKING:
                if name in asked:
                    raise _refused(name, asked[name], "once, it is there twice")
                asked[name] = None if doubled & 1 else data[value_at:at]
            elif name not in _DROPPED:
                if name[:4].lower() == PREFIX:
                    _check_known(name)
                stay.append(data[start:at])
        if at != end:
            raise InvalidRecord(f"it claims to end at byte {end}, its fields end at {at}")
        return asked, b"".join(stay), len(stay)


def encode_id(text: str) -> bytes:
    """A delay id that came by another way than a header. InvalidRecord: it cannot be one."""
    delay_id = text.encode(errors="surrogatepass")
    if not _is_id(delay_id):
        raise InvalidRecord(f"the delay id is {_shown(delay_id)}; allowed is {_ALLOWED_ID}")
    return delay_id


def _check_known(name: bytes) -> None:
    """That a header which begins like those that ask for something is one of the broker's own."""
    lowered = name.lower()
    if not lowered.startswith(OURS):
        close = get_close_matches(lowered.decode("latin-1"), map(bytes.decode, _ASKING), 1, 0.5)
        meant = f"did you mean {close[0]}? " if close else ""
        shown = repr(name[:_SHOWN])[1:]
        raise InvalidRecord(
            f"header {shown} is not known, and would be ignored: {meant}"
            f"There are {', '.join(each.decode() for each in sorted(_ASKING))}, in small letters"
        )


def _name(header: bytes, asked: _Asked) -> bytes:
    """The delay id in a header."""
    name = asked[header]
    if name is None or not _is_id(name):
        raise _refused(header, name, _ALLOWED_ID)
    return name


def _is_id(delay_id: bytes) -> bool:
    try:
        delay_id.decode()
    except UnicodeDecodeError:
        return False
    return 0 < len(delay_id) <= LONGEST_ID


def _without(
    taken: list[tuple[int, int]], batch: memoryview, head: BatchHead, records: bytes, most: int
) -> bytearray:
    """The batch without the records that were taken out."""
    plain = bytearray(batch[:HEAD_SIZE])
    for part in compressed(head.attributes & CODEC_MASK, _kept(taken, memoryview(records))):
        plain += part
        if len(plain) > most:
            raise MessageTooLarge(
                "without its records for later the batch would be larger than max.message.bytes "
                f"({most})"
            )
    struct.pack_into(">i", plain, _LENGTH, len(plain) - OVERHEAD)
    struct.pack_into(">i", plain, _COUNT, head.record_count - len(taken))
    struct.pack_into(">I", plain, _CRC, crc32c(memoryview(plain)[CRC_FROM:]))
    return plain


def _kept(taken: list[tuple[int, int]], records: memoryview) -> Iterator[memoryview]:
    """What lies between the records that were taken out."""
    kept = 0
    for start, end in taken:
        yield records[kept:start]
        kept = end
    yield records[kept:]


def _doubled(data: bytes, at: int) -> tuple[int, int]:
    """A varint before its zigzag is undone (twice a number that is not negative; odd: negative), and
    the place after it."""
    low = data[at]
    if low < 0x80:
        return low, at + 1
    high = data[at + 1]
    if high < 0x80:
        return low & 0x7F | high << 7, at + 2
    number, at = varint(data, at)
    return (2 * number if number >= 0 else -2 * number - 1), at


def _signed(doubled: int) -> int:
    return (doubled >> 1) ^ -(doubled & 1)


def _headers_begin(data: bytes, at: int) -> int:
    """The place behind the key, which begins at `at`, and the value. Either may be null."""
    if (doubled := data[at]) < 0x80:
        at += 1
    else:
        doubled, at = _doubled(data, at)
    if not doubled & 1:
        at += doubled >> 1
    if (doubled := data[at]) < 0x80:
        at += 1
    elif (high := data[at + 1]) < 0x80:
        doubled, at = doubled & 0x7F | high << 7, at + 2
    else:
        doubled, at = _doubled(data, at)
    return at if doubled & 1 else at + (doubled >> 1)


def _varint(number: int) -> bytes:
    left, out = 2 * number, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _refused(header: bytes, found: bytes | None, allowed: str) -> InvalidRecord:
    return InvalidRecord(f"header {header.decode()} is {_shown(found)}; allowed is {allowed}")


def _shown(found: bytes | None) -> str:
    if found is None:
        return "null"
    shown = repr(found[:_SHOWN])[1:]
    return shown if len(found) <= _SHOWN else f"{shown}… ({len(found)} bytes)"
