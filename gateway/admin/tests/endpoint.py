"""The admin endpoint, on a real socket, of a broker that has a delay service only, and that is a fake.

    async def check(endpoint: Endpoint) -> None:
        status, answer = await endpoint.get("/delay/count?subject=orders")
    serve_admin(check)

Time is Trio's mock clock: it stands still unless the test moves it.
"""

from __future__ import annotations

import json
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import h11
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kumquat.core.logs.messages.subject import Subject, SubjectConfig
from kumquat.core.wheel.service import Cursor, Page, Pending, Shown
from kumquat.gateway.admin.app import make_app
from kumquat.gateway.admin.listener import bind_admin
from kumquat.gateway.admin.server import AdminServer
from kumquat.gateway.config.kinds import AdminListener
from kumquat.gateway.config.options import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp

DEADLINE = 60.0
EPOCH = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@dataclass
class FakeDelay:
    """Messages of `orders`, due 1, 2, … seconds after EPOCH; the even ones have ids."""

    items: list[Pending] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    error: Exception | None = None
    go: trio.Event = field(default_factory=trio.Event)

    async def _called(self, *call: Any) -> None:
        self.calls.append(call)
        await self.go.wait()
        if self.error is not None:
            raise self.error

    def _within(self, subject: Subject | None, due_from: int, due_to: int) -> list[Pending]:
        return [
            item
            for item in self.items
            if due_from <= item.due < due_to and subject in (None, SUBJECTS.get(item.subject))
        ]

    async def count(self, subject: Subject | None, due_from: int, due_to: int) -> int:
        await self._called("count", subject, due_from, due_to)
        return len(self._within(subject, due_from, due_to))

    async def list(
        self, subject: Subject | None, due_from: int, due_to: int, after: Cursor | None, limit: int
    ) -> Page:
        await self._called("list", subject, due_from, due_to, after, limit)
        items = self._within(subject, due_from, due_to)
        if after is not None:
            items = [item for item in items if (item.due, item.schedule_id) > tuple(after)]
        more = len(items) > limit
        last = items[:limit][-1] if items else None
        return Page(items[:limit], Cursor(last.due, last.schedule_id) if more and last else None)

    async def show(self, subject: Subject, delay_id: str, *, content: bool = False) -> Shown:
        await self._called("show", subject, delay_id)
        shown = self._find(delay_id, None, "pending")
        return replace(shown, created=EPOCH, key=None, value=b"\xff") if content else shown

    async def cancel(
        self, subject: Subject, *, delay_id: str | None, schedule_id: int | None
    ) -> Shown:
        await self._called("cancel", subject, delay_id, schedule_id)
        return self._find(delay_id, schedule_id, "cancelled")

    async def move(
        self, subject: Subject, *, delay_id: str | None, schedule_id: int | None, due: int
    ) -> Shown:
        await self._called("move", subject, delay_id, schedule_id, due)
        return self._find(delay_id, schedule_id, "moved")

    def _find(self, delay_id: str | None, schedule_id: int | None, status: str) -> Shown:
        for item in self.items:
            if schedule_id == item.schedule_id or (
                delay_id is not None and delay_id == item.delay_id
            ):
                return Shown(status, item.due, item.schedule_id)
        late = delay_id == "late"
        return Shown("delivered" if late else "unknown", EPOCH if late else -1, 7 if late else -1)


_CONFIG = SubjectConfig(max_message_bytes=1, retention_ms=1, retention_bytes=1)
SUBJECTS = {
    name: Subject(number, bytes(16), name, _CONFIG)
    for number, name in enumerate(("orders", "other"))
}


def pending(number: int, key: bytes | None = b"key") -> Pending:
    delay_id = f"id-{number}" if number % 2 == 0 else None
    return Pending("orders", number * 100, delay_id, EPOCH + number * 1000, EPOCH, key, 42)


@dataclass
class Client:
    """Asks an endpoint, each time on a connection of its own."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def settled(self) -> None:
        await wait_all_tasks_blocked(0.01)

    async def get(self, target: str) -> tuple[int, dict[str, Any]]:
        return await self.request(b"GET", target)

    async def post(self, target: str, **values: object) -> tuple[int, dict[str, Any]]:
        return await self.request(b"POST", target, json.dumps(values).encode())

    async def request(
        self, method: bytes, target: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        given = {"host": f"127.0.0.1:{self.port}", **headers}
        if body:
            given = {"content-type": "application/json", "content-length": str(len(body)), **given}
        http = h11.Connection(h11.CLIENT)
        head = h11.Request(method=method, target=target, headers=list(given.items()))
        async with await self.connect() as stream:
            data = http.send(head) or b""
            data += (http.send(h11.Data(data=body)) or b"") if body else b""
            await stream.send_all(data + (http.send(h11.EndOfMessage()) or b""))
            return await receive(stream, http)

    async def raw(self, *pieces: bytes) -> bytes:
        """All that is answered to these bytes until the endpoint closes the connection."""
        async with await self.connect() as stream:
            try:
                for piece in pieces:
                    await stream.send_all(piece)
                await stream.send_eof()
            except trio.BrokenResourceError:
                pass
            answer = bytearray()
            try:
                while data := await stream.receive_some():
                    answer += data
            except trio.BrokenResourceError:
                pass
            return bytes(answer)


@dataclass
class Endpoint(Client):
    delay: FakeDelay
    server: AdminServer
    clock: MockClock
    running: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    """Set when the server has stopped."""


async def receive(stream: trio.SocketStream, http: h11.Connection) -> tuple[int, dict[str, Any]]:
    """Status and answer of the request that was sent."""
    status, body = 0, b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return status, json.loads(body)
        else:
            raise AssertionError(f"unexpected: {event}")


@asynccontextmanager
async def listening(application: ASGIApp) -> AsyncIterator[Client]:
    """An endpoint with this application, on a free port."""
    server = AdminServer(application)
    sock = bind_admin(AdminListener("127.0.0.1", 0))
    port = sock.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, sock)
        yield Client(port)
        server.stop()


def serve_admin(
    check: Callable[[Endpoint], Awaitable[None]],
    extra_routes: Sequence[BaseRoute] = (),
    **options: Any,
) -> None:
    """Run a check against an endpoint; fail if it hangs. `options` are those of the broker."""
    clock = MockClock()
    config = BrokerConfig(**options)

    async def main() -> None:
        delay = FakeDelay([pending(number) for number in range(1, 6)])
        delay.go.set()
        subjects = SimpleNamespace(by_name=SUBJECTS)
        broker: Any = SimpleNamespace(
            log=SimpleNamespace(subjects=subjects), delay=delay, config=config
        )
        server = AdminServer(make_app(broker, extra_routes))
        sock = bind_admin(AdminListener("127.0.0.1", 0))
        port = sock.getsockname()[1]
        async with trio.open_nursery() as nursery:
            endpoint = Endpoint(port, delay, server, clock)

            async def run(*, task_status: trio.TaskStatus[None]) -> None:
                with endpoint.running:
                    await server.run(sock, task_status=task_status)
                endpoint.ended.set()

            await nursery.start(run)
            await check(endpoint)
            server.stop()

    async def watched() -> None:
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            watchdog = threading.Timer(DEADLINE, token.run_sync_soon, (scope.cancel,))
            watchdog.start()
            try:
                await main()
            finally:
                watchdog.cancel()
        assert not scope.cancelled_caught, "the check hangs"

    trio.run(watched, clock=clock)
