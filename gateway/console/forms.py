"""What a page sends: the fields of a form, and the parameters of an address, read within limits.

Forms are application/x-www-form-urlencoded, at most MAX_FORM bytes and MAX_FIELDS fields: what does not fit
is refused before it is read. A field that is there twice counts once, as its last value. An empty field
counts as not given: that is what a browser sends for what nobody has filled in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from kumquat.gateway.admin.exchange import MAX_BODY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

MAX_FORM = MAX_BODY
MAX_FIELDS = 64
TYPE = "application/x-www-form-urlencoded"
MAX_PARAMETER = 4096


class BadForm(Exception):
    """A request is answered with this status; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def read_form(request: Request) -> dict[str, str]:
    """Raises BadForm."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != TYPE:
        raise BadForm(415, f"a form of the console has the type {TYPE}, not {kind or 'none'}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            raise BadForm(413, f"the form has more than {MAX_FORM >> 10} KiB: send less at once")
    try:
        pairs = parse_qsl(
            body.decode("ascii"), max_num_fields=MAX_FIELDS, keep_blank_values=True, errors="strict"
        )
    except (ValueError, UnicodeDecodeError):
        raise BadForm(400, "the form cannot be read: it is no URL encoding of UTF-8") from None
    return {name: value for name, value in pairs if value}


def parameters(request: Request) -> Mapping[str, str]:
    """What the address says. Raises BadForm."""
    found = {name: value for name, value in request.query_params.items() if value}
    for name, value in found.items():
        if len(value) > MAX_PARAMETER:
            raise BadForm(400, f"{name[:40]!r} in the address is too long")
    return found


def number(values: Mapping[str, str], name: str, default: int = 0) -> int:
    """A whole number that is not negative. Raises BadForm."""
    text = values.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadForm(400, f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


def required(values: Mapping[str, str], name: str) -> str:
    """Raises BadForm."""
    value = values.get(name)
    if value is None:
        raise BadForm(400, f"{name} is missing")
    return value
