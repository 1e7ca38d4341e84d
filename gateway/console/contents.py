"""The bytes of a key, a value or a header, as people read them: text, JSON, hex. Pure.

Whatever a message holds is shown and nothing is run: templates escape all of it. A long value is cut to
MOST bytes, and the page says so. JSON is laid out only where that makes it at most GROWTH times as long:
each line of what is nested deeply begins with all its depth in spaces. Control characters in text are shown
as their pictures (␀, ␛), so that a terminal or a browser does nothing with them; those that turn the
direction of writing are shown as their codes, since they make a text look like another one.
"""

from __future__ import annotations

import json
from typing import NamedTuple

MOST = 64 << 10
SHORT = 160
GROWTH = 8
_PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10, 13)} | {127: 0x2421}
_TURNS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_SHOWN: dict[int, str | int] = {**_PICTURES, **_TURNS}
_ROW = 16

TEXT, JSON, HEX = "text", "json", "hex"


class Content(NamedTuple):
    form: str
    """TEXT, JSON or HEX: how it is shown."""
    text: str
    size: int
    cut: bool


def readable(text: str) -> str:
    return text.translate(_SHOWN)


def brief(data: bytes | None) -> str | None:
    """One line, for lists; None stays None."""
    if data is None:
        return None
    some = data[: SHORT * 4]
    try:
        text = some.decode()
    except UnicodeDecodeError as error:
        if error.start < len(some) - 3 or len(some) == len(data):
            shown = some[: SHORT // 3].hex(" ")
            return f"0x {shown}" + (" …" if len(data) > SHORT // 3 else "")
        text = some[: error.start].decode()
    text = " ".join(readable(text).split())
    return text if len(text) <= SHORT and len(some) == len(data) else f"{text[:SHORT]}…"


def show(data: bytes, form: str | None = None) -> Content:
    """In the form that is asked for, or the one that fits: JSON, else text, else hex."""
    some, cut = data[:MOST], len(data) > MOST
    if form == HEX:
        return Content(HEX, dump(some), len(data), cut)
    try:
        text = some.decode("utf-8", "strict" if not cut else "ignore")
    except UnicodeDecodeError:
        if form == TEXT:
            return Content(TEXT, readable(some.decode("utf-8", "replace")), len(data), cut)
        return Content(HEX, dump(some), len(data), cut)
    if form != TEXT and not cut and (pretty := _pretty(text)) is not None:
        return Content(JSON, readable(pretty), len(data), cut)
    return Content(TEXT, readable(text), len(data), cut)


def _pretty(text: str) -> str | None:
    """Only objects and lists: a number or a word is better left as it is."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    parts, left = [], max(SHORT, GROWTH * len(text))
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text)):
            parts.append(part)
            left -= len(part)
            if left < 0:
                return None
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def dump(data: bytes) -> str:
    """Place, sixteen bytes, and what of them is printable."""
    rows = []
    for at in range(0, len(data), _ROW):
        part = data[at : at + _ROW]
        left, right = part[:8].hex(" "), part[8:].hex(" ")
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{at:08x}  {left:<23}  {right:<23}  {plain}")
    return "\n".join(rows)
