r"""How `kumquat consume` writes a record: kcat's format strings, and JSON.

    %s  value          %k  key            %t  topic        %o  offset
    %S  its length     %K  its length     %p  partition    %T  timestamp, ms since 1970
    %h  headers, as name=value,name=value                  %%  a percent sign
    \n \r \t \\ \xHH   characters that a shell does not give easily

The length of null is -1, as in kcat, and null itself is nothing, or NULL with `-Z`. A format is compiled
once, into functions of a record. Bytes stay as they are, so that what was written comes out again. Values
and keys may be shown in hexadecimal or base64 instead; `visible` keeps a terminal safe from them.

JSON is one object a line: topic, partition, offset, timestamp, key, value, headers. Keys and values are
strings where they are UTF-8, else {"base64": …}, and null stays null. `kumquat produce --json` reads this.

Pure.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.tables import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Encoding = Callable[[bytes], bytes]
    Field = Callable[["Any"], bytes]

ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
KEPT = {"\n", "\t"}


def as_text(data: bytes) -> bytes:
    return data


def as_hex(data: bytes) -> bytes:
    return data.hex().encode()


def visible(data: bytes) -> bytes:
    """For a terminal: nothing in it moves the cursor."""
    text = data.decode(errors="replace")
    return "".join(
        c if c.isprintable() or c in KEPT else "\N{REPLACEMENT CHARACTER}" for c in text
    ).encode()


ENCODINGS: dict[str, Encoding] = {"text": as_text, "hex": as_hex, "base64": b64encode}


def unescape(text: str) -> bytes:
    r"""A delimiter or a piece of a format, with \n, \t, \xHH. Raises ValueError."""
    result, at = b"", 0
    while at < len(text):
        slash = text.find("\\", at)
        if slash < 0:
            return result + text[at:].encode()
        result += text[at:slash].encode()
        code = text[slash + 1 : slash + 2]
        at = slash + 2
        if code == "x":
            digits = text[at : at + 2]
            if len(digits) != 2:
                raise ValueError(r"\x needs two hexadecimal digits")
            try:
                result += bytes.fromhex(digits)
            except ValueError:
                raise ValueError(rf"\x{digits} is not hexadecimal") from None
            at += 2
        elif code in ESCAPES:
            result += ESCAPES[code]
        else:
            raise ValueError(rf"\{code} is not known; there are \n \r \t \0 \\ \xHH")
    return result


class Format:
    """A compiled format string. Raises ValueError for what it does not know."""

    def __init__(self, text: str, encode: Encoding = as_text, null: bytes = b"") -> None:
        self._encode = encode
        self._null = null
        self._parts = self._compile(text)

    def line(self, record: Any) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in self._parts)

    def _compile(self, text: str) -> list[bytes | Field]:
        tokens: dict[str, Field] = {
            "s": lambda record: self._shown(record.value),
            "k": lambda record: self._shown(record.key),
            "S": lambda record: _length(record.value),
            "K": lambda record: _length(record.key),
            "t": lambda record: record.topic.encode(),
            "p": lambda record: b"%d" % record.partition,
            "o": lambda record: b"%d" % record.offset,
            "T": lambda record: b"%d" % record.timestamp,
            "h": lambda record: b",".join(map(self._header, record.headers)),
        }
        parts: list[bytes | Field] = []
        literal = ""
        at = 0
        while at < len(text):
            if text[at] != "%":
                literal += text[at]
                at += 1
                continue
            token = text[at + 1 : at + 2]
            at += 2
            if token == "%":
                literal += "%"
                continue
            if token not in tokens:
                raise ValueError(f"%{token} is not known; there are %{' %'.join(tokens)} %%")
            parts += [unescape(literal), tokens[token]]
            literal = ""
        return [*parts, unescape(literal)]

    def _shown(self, data: bytes | None) -> bytes:
        return self._null if data is None else self._encode(data)

    def _header(self, header: tuple[str, bytes | None]) -> bytes:
        name, value = header
        shown = visible(name.encode()) if self._encode is visible else name.encode()
        return shown + b"=" + self._shown(value)


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def as_json(record: Any) -> bytes:
    """One line of JSON."""
    shown = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json(record.key),
        "value": _json(record.value),
        "headers": _headers(record.headers),
    }
    return json_line(shown).encode() + b"\n"


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> list[list[Any]]:
    return [[name, _json(value)] for name, value in headers]


def _json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
