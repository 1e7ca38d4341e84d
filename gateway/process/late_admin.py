"""The admin endpoint of a running broker, with the console: loaded when its first client comes.

A web server, templates and the console cost a third of a second of a start and ten megabytes. Many
brokers are never asked for a page, so nothing of it is imported before. The socket listens from the start:
the first client waits in the kernel's queue while a thread loads the modules. The event loop goes on
meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from kumquat.gateway.admin.listener import listen
from kumquat.gateway.process import garbage

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from kumquat.gateway.admin.server import AdminServer
    from kumquat.gateway.broker import Broker

UNREAD = 64 << 10


class LateAdmin:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stopping = trio.CancelScope()
        """Ends the wait for the first client."""
        self._server: AdminServer | None = None

    async def run(
        self,
        sock: socket.socket,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop`; started when clients can connect."""
        listen(sock)
        task_status.started()
        with self._stopping:
            await trio.lowlevel.wait_readable(sock)
            make = await trio.to_thread.run_sync(_load)
        if self._stopping.cancel_called:
            _close_waiting(sock)
            return
        self._server = make(self._broker)
        await self._server.run(sock)

    def stop(self) -> None:
        self._stopping.cancel()
        if self._server is not None:
            self._server.stop()


def _close_waiting(sock: socket.socket) -> None:
    """The broker stops before it has served them: they see an end, and not a reset."""
    with suppress(OSError):
        while True:
            client, _ = sock.accept()
            with client, suppress(OSError):
                client.setblocking(False)
                client.recv(UNREAD)  # a socket with unread bytes would be reset


def _load() -> Callable[[Broker], AdminServer]:
    # Not before somebody asks, as the head of this file says.
    from kumquat.gateway.admin.app import make_app
    from kumquat.gateway.admin.server import AdminServer
    from kumquat.gateway.console.app import routes
    from kumquat.gateway.metrics import families  # noqa: F401  (/metrics needs it, on the loop)

    garbage.freeze()
    return lambda broker: AdminServer(make_app(broker, extra_routes=routes(broker)))
