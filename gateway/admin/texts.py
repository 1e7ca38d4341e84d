"""Bytes of messages in JSON: as text; where they are not UTF-8, in base64.

Beside other fields NAME_encoding says so (`as_text`); as a value of its own it is {"text": …} or
{"base64": …} (`shown`)."""

from __future__ import annotations

from base64 import b64encode


def as_text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: b64encode(data).decode(), f"{name}_encoding": "base64"}


def shown(data: bytes, size: int) -> dict[str, str | int | bool]:
    """The beginning of `size` bytes, and whether that is all. A character that was cut in two goes."""
    cut = {"cut": True, "size": size} if len(data) < size else {}
    for missing in range(4 if cut else 1):
        try:
            return {"text": data[: len(data) - missing].decode(), **cut}
        except UnicodeDecodeError:
            continue
    return {"base64": b64encode(data).decode(), **cut}
