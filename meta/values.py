"""How a config's text becomes a value: types, bounds, and what to say when it is wrong.

A `Kind` is a type with its bounds. `parse` takes the text as a client, a properties file or an
environment variable wrote it (surrounding blanks do not count) and gives a Python value, or
raises ValueError whose message says what is allowed: the caller knows the config's name and where
the text came from, and puts them in front. Numbers are plain ASCII decimals, as Java reads them:
no underscores, no exponents in whole numbers.

The kinds are used for subject configs here and for the broker's options in the gateway. What a
value *means*, and whether it may be used at all, is not decided here.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

Value = bool | int | float | str | list[str]
T = TypeVar("T", covariant=True)

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


class ConfigType(IntEnum):
    """The type numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A type with its bounds: `allowed` says them in words.

    `read` gives the value, or None when it is not allowed, or raises ValueError where there is
    more to say than that.
    """

    type: ConfigType
    allowed: str
    read: Callable[[str], T | None]

    def parse(self, text: str) -> T:
        value = self.read(text.strip())
        if value is None:
            raise ValueError(f"expected {self.allowed}")
        return value


def _read_boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


BOOLEAN = Kind(ConfigType.BOOLEAN, "true or false", _read_boolean)


def whole(low: int, high: int = LONG_MAX, *, unlimited: bool = False) -> Kind[int]:
    """A whole number from low to high; with `unlimited`, -1 too, for "no limit"."""

    def read(text: str) -> int | None:
        if not _WHOLE.fullmatch(text):
            return None
        value = int(text) if len(text) <= 20 else LONG_MAX + 1
        return value if low <= value <= high or (unlimited and value == -1) else None

    kind = ConfigType.INT if high <= INT_MAX else ConfigType.LONG
    allowed = f"a whole number from {low} to {high}{', or -1 for no limit' if unlimited else ''}"
    return Kind(kind, allowed, read)


def integer(low: int, high: int = INT_MAX, *, unlimited: bool = False) -> Kind[int]:
    """A whole number that fits 32 bits, as Kafka's type INT."""
    return whole(low, high, unlimited=unlimited)


def decimal(low: float, high: float) -> Kind[float]:
    def read(text: str) -> float | None:
        if not _DECIMAL.fullmatch(text):
            return None
        value = float(text)
        return value if low <= value <= high else None

    return Kind(ConfigType.DOUBLE, f"a number from {low:g} to {high:g}", read)


def one_of(*choices: str) -> Kind[str]:
    def read(text: str) -> str | None:
        return text if text in choices else None

    return Kind(ConfigType.STRING, f"one of {', '.join(choices)}", read)


def list_of(allowed: str, item: Callable[[str], bool]) -> Kind[list[str]]:
    """Items between commas; each must pass `item`. The empty text is the empty list."""

    def read(text: str) -> list[str] | None:
        items = [part.strip() for part in text.split(",")] if text else []
        return items if all(map(item, items)) else None

    return Kind(ConfigType.LIST, allowed, read)
