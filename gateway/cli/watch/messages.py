"""Messages as the endpoint gives them to `trace` and `search`, made readable.

A key, a value or a header is {"text": …}, {"base64": …} where it is no UTF-8, or null; a long one was cut
there (`cut`, with its whole `size`). Bytes that are no text are shown in hexadecimal.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.command import Unreachable
from kumquat.gateway.cli.endpoint import ask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def shown(part: Mapping[str, Any] | None) -> str:
    """A key, a value, or the value of a header."""
    if part is None:
        return "-"
    text = part["text"] if "text" in part else b64decode(part["base64"]).hex(" ")
    return f"{text}… ({part['size']:,} bytes)" if part.get("cut") else str(text)


def headers(given: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{each['name']}={shown(each['value'])}" for each in given)


def ask_route(admin: str, path: str, values: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask a route that an older broker does not have."""
    status, answer = ask(admin, "GET", path, values)
    if status == 404 and str(answer.get("message", "")).startswith(f"there is no {path}"):
        raise Unreachable(
            f"the broker at {admin} has no {path}: it is of an older version; kumquat doctor says which"
        )
    return status, answer
