"""ISO 8601 durations as Kafka's clients and tools write them: `P1DT2H3M4.5S`.

What Java's Duration.parse takes: days, hours, minutes and seconds in this order, any case, at least one of
them; the parts and the whole may have a sign. Months, years and weeks are none of it.
"""

import re

_FORM = re.compile(
    r"([-+]?)P(?=.)(?:([-+]?[0-9]{1,15})D)?"
    r"(?:T(?=.)(?:([-+]?[0-9]{1,15})H)?(?:([-+]?[0-9]{1,15})M)?"
    r"(?:(?=([-+]?))([-+]?[0-9]{1,15})(?:[.,]([0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def read_iso_duration(text: str) -> int:
    """Whole milliseconds. ValueError: it is none, or negative."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no duration like P1DT2H3M4.5S")
    sign, days, hours, minutes, seconds_sign, seconds, fraction = found.groups()
    nanoseconds = int((fraction or "").ljust(9, "0"))
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(
        seconds or 0
    )
    total = whole * 10**9 + (-nanoseconds if seconds_sign == "-" else nanoseconds)
    if sign == "-":
        total = -total
    if total < 0:
        raise ValueError(f"{text} is negative")
    return total // 10**6
