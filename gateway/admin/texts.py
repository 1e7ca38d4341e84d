"""Bytes of messages in JSON: as text; where they are not UTF-8, in base64, and NAME_encoding says so."""

from __future__ import annotations

from base64 import b64encode


def as_text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: b64encode(data).decode(), f"{name}_encoding": "base64"}
