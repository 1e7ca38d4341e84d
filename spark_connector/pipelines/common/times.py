"""Times and lengths of time as a person writes them on a command line.

A time is ISO 8601, in UTC unless it names a zone (`2026-11-16`, `2026-11-16T05:30`,
`2026-11-16T05:30:00+01:00`), or a length of time before now (`90s`, `30m`, `12h`, `7d`). A length
is a number with its unit; a bare number is refused, since its unit is unknown.
"""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta

_LENGTH = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|min|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def parse_length(text: str) -> timedelta:
    match = _LENGTH.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no length of time: write 90s, 30m, 12h or 7d"
        )
    try:
        return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than time is counted") from None


def parse_time(text: str, now: datetime | None = None) -> datetime:
    if _LENGTH.fullmatch(text.strip()):
        try:
            return (now or datetime.now(UTC)) - parse_length(text)
        except OverflowError:
            raise argparse.ArgumentTypeError(f"{text!r} ago is before time is counted") from None
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2026-11-16T05:30 (UTC), or 2h for two hours ago"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def to_ms(time: datetime) -> int:
    """Milliseconds since 1970, exactly: with floats it would sometimes be one less."""
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def told_time(ms: int) -> str:
    """2026-11-16T05:30:00.000+00:00, as `parse_time` reads it."""
    return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)).isoformat(
        timespec="milliseconds"
    )
