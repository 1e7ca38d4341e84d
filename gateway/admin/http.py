"""What a request of the admin endpoint says and what it is answered, apart from any server.

`read_values` reads the arguments of a request for JSON: those of the query, or those of the object in the
body, never both. It raises HttpError for what no route could answer: a parameter that is there twice, a
body that is not an object, text that is no text. `check_host` says under which names we may be asked.

HttpError is a refusal with a status, a word for programs and a sentence for people. Every function that
answers a request may raise it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from kumquat.gateway.config.kinds import is_loopback

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

MAX_PARAMETERS = 32
JSON = "application/json"


class HttpError(Exception):
    """A request is answered with this status, a word for programs and a sentence for people."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    payload: Mapping[str, Any]
    headers: tuple[tuple[str, str], ...] = field(default=())


def refusal(error: HttpError) -> Answer:
    headers = tuple((error.headers or {}).items())
    return Answer(error.status, {"error": error.code, "message": str(error)}, headers)


def as_json(payload: Mapping[str, Any]) -> bytes:
    text = json.dumps(payload, ensure_ascii=False)
    return text.encode(errors="backslashreplace") + b"\n"


def check_host(host: str, allowed: Collection[str]) -> None:
    """Loopback and the names of `admin.hosts` only: a web page whose host name was made to resolve to this
    machine sends its own name in Host."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        name = host
    name = name.strip("[]").lower()
    if not is_loopback(name) and name not in allowed:
        names = ", ".join(("127.0.0.1", "localhost", *allowed))
        raise HttpError(
            403,
            "FORBIDDEN",
            f"the Host {host!r} is not loopback and not in admin.hosts; use one of {names}",
        )


def read_values(method: str, query: str, content_type: str, body: bytes) -> dict[str, object]:
    """The arguments of a request; raises HttpError for what no route could answer."""
    values = _read_query(query)
    if method == "POST":
        if values:
            raise HttpError(400, "BAD_REQUEST", "a POST has its arguments in the body, as JSON")
        return _read_body(content_type, body)
    if body:
        raise HttpError(400, "BAD_REQUEST", f"a {method} has no body")
    return values


def _read_query(query: str) -> dict[str, object]:
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError as error:
        raise HttpError(400, "BAD_REQUEST", f"the query cannot be read: {error}") from None
    values: dict[str, object] = dict(pairs)
    if len(values) < len(pairs):
        raise HttpError(400, "BAD_REQUEST", "a parameter is there twice")
    return values


def _read_body(content_type: str, body: bytes) -> dict[str, object]:
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise HttpError(415, "UNSUPPORTED_MEDIA_TYPE", f"a POST needs Content-Type: {JSON}")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "BAD_REQUEST", f"the body is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise HttpError(400, "BAD_REQUEST", "the body is not a JSON object")
    for name, value in values.items():
        if not _is_text(name) or (isinstance(value, str) and not _is_text(value)):
            shown = name.encode(errors="backslashreplace").decode()
            raise HttpError(
                400, "BAD_REQUEST", f"{shown}: half a surrogate pair, which is no character"
            )
    return values


def _is_text(text: str) -> bool:
    """JSON can hold what Unicode cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
