"""One connection of the admin endpoint: HTTP/1.1 by h11, one request after the other, within limits.

Limits: MAX_HEAD bytes of request line and headers, MAX_BODY of body, RECEIVE_SECONDS from the first byte
of a request to its last, IDLE_SECONDS from one answer to the next request, SEND_SECONDS for a client to
take an answer, ANSWER_SECONDS for the broker to make one. `waiting` says whether the server may close a
connection when it needs its place.

An invalid request is answered with a status and a JSON object that says what is wrong and why. If its end
cannot be found, so that the next request cannot be either, the connection is closed.

An answer that is being made when the broker stops is finished and sent: a client always learns what
became of its change.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import h11
import trio

from kumquat.gateway.config.kinds import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trio.abc import Stream

    Application = Callable[["Request"], Awaitable["Answer"]]

MAX_HEAD = 16 << 10
MAX_BODY = 64 << 10
MAX_PARAMETERS = 32
RECEIVE_SECONDS = 5.0
IDLE_SECONDS = 60.0
ANSWER_SECONDS = 30.0
SEND_SECONDS = 10.0
CHUNK = 16 << 10

logger = logging.getLogger(__name__)


class HttpError(Exception):
    """A request is answered with this status, a word for programs and a sentence for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    values: Mapping[str, object]
    """The query's parameters, or what the object in the body has; never both."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    payload: Mapping[str, Any]
    headers: tuple[tuple[str, str], ...] = field(default=())
    text: bytes | None = None
    """Of an answer that is no JSON: all of it."""
    content_type: str = "application/json; charset=utf-8"


def refusal(error: HttpError) -> Answer:
    return Answer(error.status, {"error": error.code, "message": str(error)})


class HttpConnection:
    def __init__(self, stream: Stream, application: Application) -> None:
        self._stream = stream
        self._application = application
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        self.waiting = True
        """For a request, or for the rest of one: nothing is lost when it is closed."""

    async def run(self) -> None:
        """Serve until either side ends it."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while await self._serve_one():
                self._http.start_next_cycle()

    async def _serve_one(self) -> bool:
        """One request; False: no other can follow on this connection."""
        self.waiting = True
        try:
            await self._wait_for_request()
            with trio.fail_after(RECEIVE_SECONDS):
                head = await self._next_event()
                if not isinstance(head, h11.Request):
                    return False
                body = await self._receive_body()
        except trio.TooSlowError:
            return False
        except h11.RemoteProtocolError as error:
            await self._send_last(HttpError(error.error_status_hint, "BAD_REQUEST", str(error)))
            return False
        except HttpError as error:
            await self._send_last(error)
            return False
        self.waiting = False
        with trio.CancelScope(shield=True):
            await self._send(await self._answer(head, body), method=head.method)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _wait_for_request(self) -> None:
        """Until a first byte has come, or the end."""
        data, at_end = self._http.trailing_data
        if not data and not at_end:
            with trio.fail_after(IDLE_SECONDS):
                self._http.receive_data(bytes(await self._stream.receive_some(CHUNK)))

    async def _receive_body(self) -> bytes:
        body = bytearray()
        while isinstance(event := await self._next_event(), h11.Data):
            body += event.data
            if len(body) > MAX_BODY:
                raise HttpError(413, "TOO_LARGE", f"a body has at most {MAX_BODY} bytes")
        return bytes(body)

    async def _next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                await self._stream.send_all(self._http.send(go_on) or b"")
            self._http.receive_data(bytes(await self._stream.receive_some(CHUNK)))

    async def _answer(self, head: h11.Request, body: bytes) -> Answer:
        try:
            request = read_request(head, body)
            with trio.fail_after(ANSWER_SECONDS):
                return await self._application(request)
        except HttpError as error:
            return refusal(error)
        except trio.TooSlowError:
            return refusal(
                HttpError(
                    503,
                    "TIMED_OUT",
                    f"no answer after {ANSWER_SECONDS:.0f} s; what was to be changed may have been",
                )
            )
        except Exception as error:
            logger.exception("%s %s failed", head.method.decode(), head.target.decode())
            name = type(error).__name__
            return refusal(HttpError(500, "BROKER_FAILED", f"the broker failed: {name}"))

    async def _send_last(self, error: HttpError) -> None:
        """Answer what is wrong with a request whose end cannot be found."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(refusal(error), close=True)

    async def _send(self, answer: Answer, *, method: bytes = b"", close: bool = False) -> None:
        body = answer.text
        if body is None:
            text = json.dumps(answer.payload, ensure_ascii=False)
            body = text.encode(errors="backslashreplace") + b"\n"
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *answer.headers,
        ]
        if close:
            headers.append(("Connection", "close"))
        send = self._http.send
        data = send(h11.Response(status_code=answer.status, headers=headers)) or b""
        if method != b"HEAD":
            data += send(h11.Data(data=body)) or b""
        data += send(h11.EndOfMessage()) or b""
        with trio.move_on_after(SEND_SECONDS) as sending:
            await self._stream.send_all(data)
        if sending.cancelled_caught:
            raise trio.BrokenResourceError("the client does not take its answer")


def read_request(head: h11.Request, body: bytes) -> Request:
    """What a request asks; raises HttpError for what no route could answer."""
    headers = {name: value.decode("latin-1") for name, value in head.headers}
    _check_host(headers.get(b"host", ""))
    method, target = head.method.decode("ascii"), head.target.decode("ascii")
    if not target.startswith("/"):
        raise HttpError(400, "BAD_REQUEST", f"the target {target!r} does not begin with /")
    parts = urlsplit(target)
    values = _read_query(parts.query)
    if method == "POST":
        if values:
            raise HttpError(400, "BAD_REQUEST", "a POST has its arguments in the body, as JSON")
        values = _read_body(headers.get(b"content-type", ""), body)
    elif body:
        raise HttpError(400, "BAD_REQUEST", f"a {method} has no body")
    return Request(method, parts.path, values)


def _check_host(host: str) -> None:
    """A web page whose host name resolves to loopback sends that name in Host."""
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        name = host
    if not is_loopback(name.strip("[]").lower()):
        raise HttpError(
            403, "FORBIDDEN", f"the Host {host!r} is not loopback; use 127.0.0.1 or localhost"
        )


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
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HttpError(
            415, "UNSUPPORTED_MEDIA_TYPE", "a POST needs Content-Type: application/json"
        )
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
