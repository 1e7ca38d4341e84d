"""Times as people and tools write them, and as milliseconds since 1970.

Read are such milliseconds, or ISO 8601: `2026-03-01T08:00:00.5+01:00`, `2026-03-01T08:00Z`; a date alone is
its midnight. Where no zone is given it is UTC, never the zone of some machine. A number too small to be
milliseconds of this age is refused, except 0: it is a year, or seconds.
"""

import re
from datetime import UTC, datetime

from meta.values import LONG_MAX

LEAST = 10**11
"""In 1973; as seconds it is in the year 5138."""
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_CALENDAR = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(text: str) -> int:
    """Epoch milliseconds; raises ValueError."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        time = int(text)
        if 0 < time < LEAST or time > LONG_MAX:
            raise ValueError(f"{text} cannot be milliseconds since 1970")
        return time
    if not _CALENDAR.match(text):
        raise ValueError(f"{text!r} is no time")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment < _EPOCH:
        raise ValueError(f"{text} is before 1970")
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def show_time(time: int) -> str:
    """ISO 8601, UTC, to the millisecond; a time that no calendar has is shown as its number."""
    try:
        moment = datetime.fromtimestamp(time // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time % 1000:03}Z"
