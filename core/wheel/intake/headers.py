"""The headers with which a record asks for something: their names, what they may say, and what is wrong.

    qmq-delay-ms      from now: decimal milliseconds, or a duration (`90s`, `1h30m`; durations.py)
    qmq-deliver-at    decimal milliseconds since the epoch, or ISO 8601 with a zone; a past time is due now
    qmq-delay-id      names the message in its subject, together with one of the times
    qmq-delay-cancel  cancels the message of that name; with one of the times, moves it to that time

Rules:
- A value that is not allowed raises InvalidRecord, and with it the whole batch is refused. The reason names
  the header, what was found and what is allowed. Nothing is clamped.
- So does a header whose name begins like these, in any case, and is none of them: it is misspelled, and
  its message would arrive at once. The broker's own names (`OURS` in marks.py) are let through.
- A record that is parked loses these headers. It also loses `qmq-due-ms` and `qmq-created-ms`, which the
  broker sets when it delivers the record.

Pure.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from kumquat.core.errors import InvalidRecord
from kumquat.core.records.marks import OURS, PREFIX
from kumquat.core.records.records import doubled_varint, signed
from kumquat.core.wheel.format import LONGEST_ID
from kumquat.core.wheel.intake.durations import FORMS, read_duration, read_instant

DELAY: Final = b"qmq-delay-ms"
DELIVER_AT: Final = b"qmq-deliver-at"
DELAY_ID: Final = b"qmq-delay-id"
CANCEL: Final = b"qmq-delay-cancel"
MOST_DIGITS: Final = 19

_ASKING = frozenset((DELAY, DELIVER_AT, DELAY_ID, CANCEL))
_DROPPED = frozenset((b"qmq-due-ms", b"qmq-created-ms"))
assert all(name.startswith(PREFIX) for name in _ASKING | _DROPPED)

_ALLOWED_ID = f"1 to {LONGEST_ID} bytes of UTF-8"
_INSTANTS = "in milliseconds since 1970 or as ISO 8601 with a zone (2027-03-01T08:00Z)"
_SHOWN = 40
"""How much of a bad value an error shows."""

Asked = dict[bytes, bytes | None]
"""The headers of a record that ask for something, with their values."""


def read_headers(data: bytes, at: int, end: int) -> tuple[Asked, bytes, int]:
    """What a record, whose headers begin at `at`, asks for; the other headers that it keeps if it is
    parked, and their count."""
    asked: Asked = {}
    kept = []
    doubled, at = doubled_varint(data, at)
    if doubled & 1:
        raise InvalidRecord(f"it claims {signed(doubled)} headers")
    for _ in range(doubled >> 1):
        start = at
        doubled, at = doubled_varint(data, at)
        name = data[at : at + (doubled >> 1)]
        if doubled & 1 or (at := at + len(name)) > end:
            raise InvalidRecord("it has a header without a name, or with one beyond its end")
        doubled, value_at = doubled_varint(data, at)
        at = value_at if doubled & 1 else value_at + (doubled >> 1)
        if name in _ASKING:
            if name in asked:
                raise refusal(name, asked[name], "once, it is there twice")
            asked[name] = None if doubled & 1 else data[value_at:at]
        elif name not in _DROPPED:
            if name[:4].lower() == PREFIX:
                _check_known(name)
            kept.append(data[start:at])
    if at != end:
        raise InvalidRecord(f"it claims to end at byte {end}, its fields end at {at}")
    return asked, b"".join(kept), len(kept)


def due_of(asked: Asked, now: int, max_delay_ms: int) -> int | None:
    """When the message is to be delivered; None: no time is given."""
    if DELAY in asked:
        if DELIVER_AT in asked:
            raise refusal(DELIVER_AT, asked[DELIVER_AT], f"not beside {DELAY.decode()}")
        name, read, begin, form = DELAY, read_duration, now, FORMS
    elif DELIVER_AT in asked:
        name, read, begin, form = DELIVER_AT, read_instant, 0, _INSTANTS
    else:
        return None
    text, latest = asked[name] or b"", now + max_delay_ms
    due: int | None = None
    try:
        digits = text.isdigit() and len(text) <= MOST_DIGITS
        due = begin + (int(text) if digits else read(text.decode("ascii")))
    except ValueError:
        pass
    if due is None or due > latest:
        allowed = f"0 to {latest - begin} (delay.max.ms is {max_delay_ms}), {form}"
        raise refusal(name, asked[name], allowed)
    return max(due, now)


def id_in(header: bytes, asked: Asked) -> bytes:
    """The delay id in a header."""
    delay_id = asked[header]
    if delay_id is None or not _is_id(delay_id):
        raise refusal(header, delay_id, _ALLOWED_ID)
    return delay_id


def encode_id(text: str) -> bytes:
    """A delay id that came by another way than a header. InvalidRecord: it cannot be one."""
    delay_id = text.encode(errors="surrogatepass")
    if not _is_id(delay_id):
        raise InvalidRecord(f"the delay id is {_shown(delay_id)}; allowed is {_ALLOWED_ID}")
    return delay_id


def _is_id(delay_id: bytes) -> bool:
    try:
        delay_id.decode()
    except UnicodeDecodeError:
        return False
    return 0 < len(delay_id) <= LONGEST_ID


def _check_known(name: bytes) -> None:
    """A header that begins like those that ask for something must be one of the broker's own."""
    lowered = name.lower()
    if not lowered.startswith(OURS):
        close = get_close_matches(lowered.decode("latin-1"), map(bytes.decode, _ASKING), 1, 0.5)
        meant = f"did you mean {close[0]}? " if close else ""
        shown = repr(name[:_SHOWN])[1:]
        raise InvalidRecord(
            f"header {shown} is not known, and would be ignored: {meant}"
            f"There are {', '.join(each.decode() for each in sorted(_ASKING))}, in small letters"
        )


def refusal(header: bytes, found: bytes | None, allowed: str) -> InvalidRecord:
    return InvalidRecord(f"header {header.decode()} is {_shown(found)}; allowed is {allowed}")


def _shown(found: bytes | None) -> str:
    if found is None:
        return "null"
    shown = repr(found[:_SHOWN])[1:]
    return shown if len(found) <= _SHOWN else f"{shown}… ({len(found)} bytes)"
