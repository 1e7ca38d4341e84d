"""What `kumquat produce` reads: lines with keys, whole files, lines of JSON.

A Sent is a record on its way: key, value, headers. `Cutter` cuts a stream of bytes at a delimiter, whatever
the pieces in which it arrives; the last piece counts without one, unless it is empty. An empty line is a
record with an empty value (with `-Z` null): nothing that was given is dropped.

A line of JSON is an object:

    {"key": "k", "value": {"amount": 5}, "headers": {"tenant": "a"}, "delay": "10m", "delay_id": "order-17"}

Key, value and the values of headers are strings, null, {"text": …} or {"base64": …}; a value that is any
other JSON is written as such. Headers are an object, or a list of [name, value], where a name may be twice.
`delay`, `at` and `delay_id` are the headers that ask for a later delivery. Names that `consume -J` writes
and that cannot be asked for (topic, partition, offset, timestamp) are passed over; any other name is
refused: a misspelled delay would send its message at once.

Pure.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any

from kumquat.core.wheel.intake.headers import DELAY, DELAY_ID, DELIVER_AT

Headers = list[tuple[str, bytes | None]]
ASKING = {"delay": DELAY, "at": DELIVER_AT, "delay_id": DELAY_ID}
PASSED_OVER = {"topic", "partition", "offset", "timestamp"}
KNOWN = {"key", "value", "headers", *ASKING}


@dataclass(frozen=True, slots=True)
class Sent:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.value or b"") + len(self.key or b"") + 100 * (1 + len(self.headers))


class Cutter:
    """Cuts what is fed to it at a delimiter."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces that are complete."""
        *pieces, self._rest = (self._rest + data).split(self._delimiter)
        return pieces

    def end(self) -> list[bytes]:
        """The last one, if it has anything in it."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


@dataclass(frozen=True, slots=True)
class Lines:
    """How a line becomes a record."""

    key_delimiter: bytes | None = None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    empty_is_null: bool = False

    def record(self, line: bytes) -> Sent:
        key, value = self.key, line
        if self.key_delimiter is not None and self.key_delimiter in line:
            key, _, value = line.partition(self.key_delimiter)
        return Sent(self._null(value), self._null(key), self.headers)

    def _null(self, data: bytes | None) -> bytes | None:
        return None if self.empty_is_null and not data else data

    def json_record(self, line: bytes) -> Sent:
        """Raises ValueError."""
        try:
            given = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON: {error}") from None
        if not isinstance(given, dict):
            raise ValueError("it is not a JSON object")
        if unknown := given.keys() - KNOWN - PASSED_OVER:
            raise ValueError(
                f"{sorted(unknown)[0]!r} is not known; there are {', '.join(sorted(KNOWN))}"
            )
        if "value" not in given:
            raise ValueError('it has no "value" (null is one)')
        key = _bytes("key", given["key"]) if "key" in given else self.key
        headers = [*self.headers, *_headers(given.get("headers") or [])]
        for name, header in ASKING.items():
            if given.get(name) is not None:
                headers.append((header.decode(), str(given[name]).encode()))
        return Sent(self._null(_value(given["value"])), self._null(key), headers)


def _headers(given: Any) -> Headers:
    pairs = given.items() if isinstance(given, dict) else given
    try:
        return [(str(name), _bytes(f"header {name}", value)) for name, value in pairs]
    except TypeError:
        raise ValueError("headers must be an object or a list of [name, value]") from None


def _bytes(what: str, given: Any) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode(errors="surrogatepass")
    if isinstance(given, dict) and len(given) == 1:
        ((form, text),) = given.items()
        if form == "text" and isinstance(text, str):
            return text.encode()
        if form == "base64" and isinstance(text, str):
            return b64decode(text, validate=True)
    raise ValueError(f'{what} must be a string, null, {{"text": …}} or {{"base64": …}}')


def _value(given: Any) -> bytes | None:
    try:
        return _bytes("value", given)
    except ValueError:
        if isinstance(given, dict) and given.keys() == {"base64"}:
            raise
        return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()
