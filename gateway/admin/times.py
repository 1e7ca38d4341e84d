"""Times as people and tools write them, and as milliseconds since 1970.

It reads milliseconds; ISO 8601 (`2026-03-01T08:00:00.5+01:00`, `2026-03-01T08:00Z`; a date alone is its
midnight); and durations: `15m`, `+2h`, `1h30m` (core/wheel/intake/durations.py). They are from now on, or
back from now where only the past makes sense: `read_past`. A time without
a zone is UTC, never the zone of some machine. A number that is too small to be milliseconds of our time
is refused, except 0: it is probably a year, or seconds, or a duration without its unit.
"""

from datetime import UTC, datetime

from kumquat.core.wheel.intake.durations import read_instant, read_units
from kumquat.meta.values import LONG_MAX

LEAST = 10**11
"""In 1973. The same number as seconds would be in the year 5138."""


def read_time(text: str, now: int) -> int:
    """Epoch milliseconds, where `now` is now; raises ValueError."""
    text = text.strip()
    if text.isdigit() and text.isascii():
        time = read_instant(text)
        if 0 < time < LEAST or time > LONG_MAX:
            raise ValueError(f"{text} cannot be milliseconds since 1970")
        return time
    if "-" in text:
        return read_instant(text, utc=True)
    time = now + read_units(text)
    if time > LONG_MAX:
        raise ValueError(f"{text} from now is later than any time")
    return time


def read_past(text: str, now: int) -> int:
    """The same, but a duration is so long ago."""
    text = text.strip()
    if "-" in text or (text.isdigit() and text.isascii()):
        return read_time(text, now)
    return max(0, now - read_units(text))


def show_time(time: int) -> str:
    """ISO 8601, UTC, to the millisecond; a time that no calendar has is shown as its number."""
    try:
        moment = datetime.fromtimestamp(time // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time % 1000:03}Z"
