"""Times for messages for later, as people write them. One parser for headers and for the command line.

A *duration* is a sequence of whole numbers with units, each unit once, from large to small: `90s`, `15m`,
`1h30m`, `2d`, `+1w2d`, `1s500ms`. A `+` before it changes nothing. Units are w, d, h, m (minutes), s and
ms, in lower case: elsewhere `M` means months. Digits alone are milliseconds, where they are allowed.

An *instant* is milliseconds since 1970, or ISO 8601: `2027-03-01T08:00:00.5+01:00`, `2027-03-01T08:00Z`.
What a text without a time zone means depends on who reads it, so a zone is required, unless `utc` says that
it is UTC.

Everything else raises ValueError. Nothing is guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

FORMS: Final = "in milliseconds or as a duration (90s, 15m, 1h30m, 2d)"

_UNITS: Final = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_DURATION = re.compile(
    r"\+?(?=[0-9])" + "".join(f"(?:([0-9]{{1,19}}){unit})?" for unit in _UNITS), re.ASCII
)
_CALENDAR = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_duration(text: str) -> int:
    """Milliseconds."""
    if _DIGITS.fullmatch(text):
        return int(text)
    return read_units(text)


def read_units(text: str) -> int:
    """A duration in milliseconds; digits alone are an error here."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration like 90s, 15m, 1h30m or 2d")
    counts = zip(found.groups(), _UNITS.values(), strict=True)
    return sum(int(count) * unit for count, unit in counts if count is not None)


def read_instant(text: str, *, utc: bool = False) -> int:
    """Milliseconds since 1970. `utc`: a text without a zone is UTC, a date alone its midnight."""
    if _DIGITS.fullmatch(text):
        return int(text)
    found = _CALENDAR.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    if found[4] is None and not utc:
        raise ValueError(f"{text!r} does not say in which zone: put a Z behind it for UTC")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    if since.days < 0:
        raise ValueError(f"{text} is before 1970")
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
