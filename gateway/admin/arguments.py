"""The arguments of a request, checked: each by name, of the right type, none unknown.

In a query all of them are text; in a body they may also be numbers, true and false.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kumquat.core.clock import wall_clock_ms
from kumquat.gateway.admin.http import HttpError
from kumquat.gateway.admin.times import read_past, read_time
from kumquat.meta.values import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)


class Arguments:
    def __init__(self, values: Mapping[str, object], allowed: tuple[str, ...]) -> None:
        self._values = values
        for name in values:
            if name not in allowed:
                known = ", ".join(allowed) or "none"
                raise _bad(f"unknown argument {name!r}; allowed: {known}")

    def given(self, name: str) -> object:
        """As it was given; None: it was not."""
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise _bad(f"{name} must be a text that is not empty, not {value!r}")
        return value

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise _bad(f"{name} is missing")
        return value

    def number(self, name: str, low: int = 0, high: int = LONG_MAX) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _bad(f"{name} must be a whole number from {low} to {high}, not {value!r}")
        return value

    def time(self, name: str) -> int | None:
        """A duration is from now on."""
        return self._time(name, read_time, "a duration from now")

    def past(self, name: str) -> int | None:
        """A duration is so long ago."""
        return self._time(name, read_past, "how long ago")

    def _time(self, name: str, read: Callable[[str, int], int], durations: str) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return read(str(value), wall_clock_ms())
        except (ValueError, OverflowError):
            raise _bad(
                f"{name} must be a time (ISO 8601, milliseconds since 1970, or {durations} "
                f"like 15m or 1h30m), not {value!r}"
            ) from None

    def flag(self, name: str) -> bool:
        value = self._values.get(name, False)
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value)
        if not isinstance(value, bool):
            raise _bad(f"{name} must be true or false")
        return value


def _bad(message: str) -> HttpError:
    return HttpError(400, "INVALID_ARGUMENT", message)
