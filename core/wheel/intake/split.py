"""A client's batch, opened and split: what is plain, what is for later, what cancels.

Only a batch that may ask for something comes here (core/records/look.py). What a record may ask, and by
which headers, is in headers.py. One pass over the records sorts them:

- A record with a time is parked: it is stored apart (core/logs/messages/parked.py), with key, value and the
  headers that it keeps.
- A record that cancels or moves a parked one is taken out and stored nowhere: see Cancel.
- All others are plain and stay a batch, with the deltas, timestamps, producer and codec that they had. The
  offsets of the records taken out are holes in it.

Rules:
- A record that is not what it should be refuses the whole batch; the reason names it by its index.
- What is stored is bounded by `max.message.bytes` (`most` here): once for the plain batch, compressed as
  it is stored, and once for the parked records, which are stored uncompressed. MESSAGE_TOO_LARGE makes
  clients that can split the batch do so.
- A record in which no name of such a header can begin is plain and is passed over by its length. Its inside
  is not checked, as in a batch that is not opened.

Not decided here: what a cancel finds, and what it does if the batch holds more than it (the service).
Pure. Each record takes a few microseconds, so large batches belong in a thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import accumulate, product
from typing import NamedTuple

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
from kumquat.core.records.marks import PREFIX
from kumquat.core.records.records import doubled_varint, packed_varint, signed
from kumquat.core.wheel.intake.headers import (
    CANCEL,
    DELAY,
    DELAY_ID,
    DELIVER_AT,
    MOST_DIGITS,
    due_of,
    id_in,
    read_headers,
    refusal,
)

_DELAY_ALONE = b"\x02\x18" + DELAY
_DELIVER_AT_ALONE = b"\x02\x1c" + DELIVER_AT
"""The headers of a record that has only this one, up to its value's length."""
_TWO_HEADERS = b"\x04"

_ODD_PREFIXES = sorted({bytes(each) for each in product(b"qQ", b"mM", b"qQ", b"-")} - {PREFIX})
"""The prefix in every case but its own."""

_SUMS = struct.Struct(">II")
_SUMMED = struct.Struct(">qqH")
assert (_SUMS.size, _SUMS.size + _SUMMED.size) == (CRC_BEGINS, RECORD_HEAD_SIZE)
_LENGTH, _CRC, _COUNT = 8, 17, 57
"""Where these fields lie in the head of a batch."""


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
                doubled, at = doubled_varint(data, at)
            end = at + (doubled >> 1)
            if doubled & 1 or end > size:
                raise InvalidRecord(f"it claims {signed(doubled)} bytes, {size - at} are left")
            if (since := data[at + 1]) < 0x80:
                at += 2
            else:
                since, at = doubled_varint(data, at + 1)
            if (delta := data[at]) < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                delta, at = delta & 0x7F | high << 7, at + 2
            else:
                delta, at = doubled_varint(data, at)
            if delta != 2 * index:
                raise InvalidRecord(f"its offset delta is {signed(delta)}")
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
        asked, kept, count = read_headers(self._data, headers_at, end)
        if not asked:
            return False
        due = due_of(asked, self._now, self._max_delay_ms)
        if CANCEL in asked:
            if DELAY_ID in asked:
                raise refusal(DELAY_ID, asked[DELAY_ID], f"not beside {CANCEL.decode()}")
            self.cancels.append(Cancel(self._index, id_in(CANCEL, asked), due, len(self.dues)))
            return True
        if due is None:
            times = f"{DELAY.decode()} or {DELIVER_AT.decode()}"
            raise refusal(DELAY_ID, asked[DELAY_ID], f"only beside {times}")
        name = b""
        if DELAY_ID in asked:
            name = self.names[len(self.dues)] = id_in(DELAY_ID, asked)
        self._park(due, created, name, fields + packed_varint(count + 2) + kept)
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
        if text.isdigit() and data[value_at] == 2 * len(text) and len(text) <= MOST_DIGITS:
            due = begin + int(text)
            if self._now <= due <= self._now + self._max_delay_ms:
                return due
        return None


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


def _headers_begin(data: bytes, at: int) -> int:
    """The place behind the key, which begins at `at`, and the value. Either may be null."""
    if (doubled := data[at]) < 0x80:
        at += 1
    else:
        doubled, at = doubled_varint(data, at)
    if not doubled & 1:
        at += doubled >> 1
    if (doubled := data[at]) < 0x80:
        at += 1
    elif (high := data[at + 1]) < 0x80:
        doubled, at = doubled & 0x7F | high << 7, at + 2
    else:
        doubled, at = doubled_varint(data, at)
    return at if doubled & 1 else at + (doubled >> 1)
