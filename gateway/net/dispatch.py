"""Which handler serves which API and version, and how its failures become answers.

`@handles(request=…, response=…, versions=…)` registers a handler. ApiVersions advertises what is
registered, and nothing else; to register an API twice fails at import. A handler takes the `Session` of its
connection and the decoded request, and never looks at the protocol version.

Kinds of handlers:
- a plain function returns the response;
- a plain function with `appends=True` stages batches in the log and returns `Staged`: the connection
  writes the log once for all requests that it read together, and answers then. If the handler finds that
  it has to wait, it returns an `Opening` instead: the connection writes what is staged, then awaits that;
- an async function is awaited; later requests of its connection wait for it, as in Kafka.

Failures, all turned into answers here (`Route.refuse`):
- an error that has an `error_code` (`KumquatError`, `MetaError`, `Refused`) is answered with that code;
- any other exception is logged with its traceback and answered UNKNOWN_SERVER_ERROR;
- `Disconnect` closes the connection (a failed Produce with acks=0 has no other answer).
Kafka's responses have errors in different places. A response with a top-level `error_code` needs nothing.
For any other the handler's module gives `refuse=`, which builds the response that says the error for
everything that was asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from kumquat.core.clock import wall_clock_ms
from kumquat.core.errors import KumquatError
from kumquat.core.memory import Memory
from kumquat.gateway.net.limits import UNLIMITED, Account
from kumquat.gateway.wire.codes import ErrorCode
from kumquat.gateway.wire.frame import response_header
from kumquat.meta.errors import MetaError

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.net.answers import Buffer
    from kumquat.gateway.net.repeats import Template

    Handler = Callable[["Session", Any], Any]
    Refusal = Callable[[Any, int, str], Any]
    MakeTemplate = Callable[["Session", "Route", memoryview, int, Any], Template | None]

Function = TypeVar("Function", bound="Callable[..., Any]")

MOST_READS = 1000
"""Subjects of which a connection keeps when it last read them."""


class Refused(Exception):
    """A request, or a part of one, is answered with this error."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


Answerable = KumquatError | MetaError | Refused
ANSWERABLE = (KumquatError, MetaError, Refused)


class Disconnect(Exception):
    """The connection is to be closed; the text says why."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which clients find the broker, as it tells them."""

    host: str
    port: int


@dataclass(slots=True, eq=False)
class Session:
    """What a handler may know of the connection that it serves."""

    broker: Broker
    endpoint: Endpoint
    """Of the listener through which the client came."""
    peer: str
    client_id: str | None = None
    api_key: int = -1
    """Of the last request; for reports on what the connection does."""
    version: int = 0
    """The request's API version: for caches of encoded bytes, never for behaviour (except where a handler's
    head says so)."""
    software: str = ""
    """What the client calls itself in ApiVersions, from version 3 of that request on."""
    software_version: str = ""
    asked: int = -1
    """The version of its ApiVersions request; -1: none has come."""
    members: dict[str, str] = field(default_factory=dict)
    """Group → the member that this connection last spoke for: see gateway/groups/offsets.py."""
    asked_earliest: int = -1
    """The subject whose earliest offset it asked for last: see gateway/handlers/common/askers.py."""
    fd: int = -1
    """Its socket, for the kernel to say whether the client has gone; never read from."""
    on_end: set[Callable[[Session], None]] = field(default_factory=set)
    """Called once, when no more requests of this connection are handled."""
    closed: bool = False
    account: Account = field(default_factory=lambda: Account(Memory(UNLIMITED)))
    """What answers are charged to."""
    hurried: bool = False
    """The wait of this request is to end: its client has closed, or others need the room that it holds."""
    poll: trio.CancelScope | None = None
    since: int = field(default_factory=wall_clock_ms)
    """When it came, ms since the epoch."""
    fetched_at: float = -inf
    """When its last Fetch or ShareFetch came, by the event loop's clock."""
    reads: dict[int, tuple[float, int, int]] = field(default_factory=dict)
    """Subject id → when it was last fetched with a plain offset, at which one, and at which one first: for
    operators who ask why a group stands still."""

    def note_read(self, subject_id: int, offset: int) -> None:
        """A Fetch of this connection reads a subject there."""
        known = self.reads.get(subject_id)
        if known is not None or len(self.reads) < MOST_READS:
            self.reads[subject_id] = self.fetched_at, offset, offset if known is None else known[2]

    @property
    def ending(self) -> bool:
        """Whether a wait for data, or for other members, would end at once."""
        return self.hurried or self.broker.stopping

    @contextmanager
    def long_poll(self) -> Iterator[None]:
        """A wait in here ends early when the broker stops, or by `end_poll`."""
        with self.broker.long_poll() as scope:
            self.poll = scope
            if self.hurried:
                scope.cancel()
            try:
                yield
            finally:
                self.poll = None

    def end_poll(self) -> None:
        self.hurried = True
        if self.poll is not None:
            self.poll.cancel()

    def end(self) -> None:
        """No more requests of this connection are handled."""
        while self.on_end:
            self.on_end.pop()(self)

    @property
    def host(self) -> str:
        return self.peer.rpartition(":")[0].strip("[]")

    def describe(self, what: str) -> str:
        """A log line about this client."""
        return f"{self.peer} (client id {self.client_id!r}): {what}"


SERVING: ContextVar[Session | None] = ContextVar("SERVING", default=None)
"""For whom the task works that runs now: set once by each connection, None in the broker's own tasks. For
reports alone (gateway/history says who wrote): what a request does must not depend on it."""

Staged = tuple[Any, int]
"""The answer to a request whose batches are staged in the log but not written yet: the response (None:
the client wants no answer), and the log position to be synced before it may leave (0: written will do)."""
Opening = Callable[[], Awaitable[Staged]]
"""The rest of such a request. When it returns, all batches of the request are written."""


@dataclass(frozen=True, slots=True)
class Api:
    """One registered API."""

    key: int
    name: str
    request: Any
    response: Any
    versions: range
    advertised: range
    handler: Handler
    appends: bool
    refusal: Refusal | None
    fallback: Callable[[], Any] | None
    """Answers, in version 0, a request in a version that is not served. Only ApiVersions has it."""
    template: MakeTemplate | None
    """Makes a template for requests that are like a given one: see repeats.py."""


_PREFIX = Struct(">ii").pack
_PREFIX_WITH_TAGS = Struct(">iib").pack


class Route:
    """An API in one version: its codec and its handler, bound together for the hot path."""

    __slots__ = (
        "_encode",
        "api",
        "appends",
        "decode",
        "handler",
        "has_tags",
        "is_async",
        "version",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.handler = api.handler
        self.appends = api.appends
        self.is_async = inspect.iscoroutinefunction(api.handler)
        self.decode: Callable[[memoryview, int], tuple[Any, int]] = api.request.decoder(version)
        self._encode: Callable[[Any], list[Buffer]] = api.response.encoder(version)
        self.has_tags = len(response_header(api.key, version, 0)) > 4

    def encode(self, correlation_id: int, response: Any) -> list[Buffer]:
        """The whole answer: size, header, body."""
        buffers = self._encode(response)
        size = len(buffers[0]) + 4 if len(buffers) == 1 else sum(map(len, buffers)) + 4
        if self.has_tags:
            buffers.insert(0, _PREFIX_WITH_TAGS(size + 1, correlation_id, 0))
        else:
            buffers.insert(0, _PREFIX(size, correlation_id))
        return buffers

    def refuse(self, request: Any, code: int, message: str) -> Any:
        """The response that says this error for all that `request` asked; None if there is none."""
        if self.api.refusal is not None:
            return self.api.refusal(request, code, message)
        response = self.api.response(error_code=code)
        if "error_message" in response.__slots__:
            response.error_message = message
        return response


class Dispatch:
    """All registered APIs, and the route of each version that is served."""

    def __init__(self) -> None:
        self.apis: dict[int, Api] = {}
        self.routes: dict[tuple[int, int], Route] = {}

    def register(self, api: Api) -> None:
        if api.key in self.apis:
            raise ValueError(f"{api.name} has two handlers: {self.apis[api.key].handler} and this")
        known = set(api.request.valid_versions) & set(api.response.valid_versions)
        if not known.issuperset(api.versions):
            raise ValueError(f"{api.name}: the schema lacks some of the versions {api.versions}")
        if api.refusal is None and "error_code" not in api.response.__slots__:
            raise ValueError(f"{api.name}: no error_code in its response, so refuse= is needed")
        self.apis[api.key] = api

    def find(self, key: int, version: int) -> Route | None:
        """The route of a request; None: this API or version is not served."""
        route = self.routes.get((key, version))
        if route is None:
            api = self.apis.get(key)
            if api is None or version not in api.versions:
                return None
            route = self.routes[key, version] = Route(api, version)
        return route

    def fallback(self, key: int) -> tuple[Route, Any] | None:
        """How to answer a request in an unknown version; None if it cannot be answered."""
        api = self.apis.get(key)
        route = self.find(key, 0)
        if api is None or api.fallback is None or route is None:
            return None
        return route, api.fallback()

    def describe(self, key: int, version: int) -> str:
        """An API and version in words, for log lines."""
        api = self.apis.get(key)
        return f"{api.name} v{version}" if api else f"API {key} v{version}"


dispatch = Dispatch()


def handles(
    *,
    request: Any,
    response: Any,
    versions: range,
    advertised: range | None = None,
    appends: bool = False,
    refuse: Refusal | None = None,
    fallback: Callable[[], Any] | None = None,
    template: MakeTemplate | None = None,
) -> Callable[[Function], Function]:
    """Register the decorated function as the handler of this request."""

    def register(handler: Function) -> Function:
        api = Api(
            key=request.api_key,
            name=request.__name__.removesuffix("Request"),
            request=request,
            response=response,
            versions=versions,
            advertised=advertised or versions,
            handler=handler,
            appends=appends,
            refusal=refuse,
            fallback=fallback,
            template=template,
        )
        dispatch.register(api)
        return handler

    return register
