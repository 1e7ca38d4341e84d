"""The listener of the admin endpoint.

A stop accepts no more and ends connections that wait for a request; answers under way are finished. At
most MAX_CONNECTIONS are served at a time: this is an endpoint for a few tools on the same machine. For a
further one the oldest that waits for a request, or for the rest of one, is closed, so nobody can lock the
others out by sending half a request. If all are being answered, the further one is closed.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import trio

from kumquat.core.complaints import Complaints
from kumquat.gateway.admin.http import HttpConnection
from kumquat.gateway.admin.routes import Routes
from kumquat.gateway.config.kinds import is_loopback
from kumquat.gateway.net.acceptor import BindError

if TYPE_CHECKING:
    from kumquat.gateway.broker import Broker
    from kumquat.gateway.config.kinds import AdminListener

MAX_CONNECTIONS = 64
BACKLOG = 64

logger = logging.getLogger(__name__)


def bind_admin(listener: AdminListener) -> socket.socket:
    """A bound socket, not listening yet. Raises BindError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise BindError(f"cannot listen on {listener}: {error.strerror or error}") from error
    host = sock.getsockname()[0]
    if not is_loopback(host):
        sock.close()
        raise BindError(f"cannot listen on {listener}: {host} is not loopback; use 127.0.0.1")
    return sock


class AdminServer:
    def __init__(self, broker: Broker) -> None:
        self._routes = Routes(broker)
        self._scope = trio.CancelScope()
        self._connections: dict[HttpConnection, trio.CancelScope] = {}
        """Oldest first."""
        self._complaints = Complaints(logger, trio.current_time)

    async def run(
        self,
        sock: socket.socket,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop`; started when clients can connect."""
        try:
            sock.listen(BACKLOG)
        except OSError as error:
            host, port = sock.getsockname()[:2]
            raise BindError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        with self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(trio.serve_listeners, self._serve, [listener])
                task_status.started()

    def stop(self) -> None:
        self._scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        if len(self._connections) >= MAX_CONNECTIONS and not self._make_room():
            await stream.aclose()
            return
        connection = HttpConnection(stream, self._routes.answer)
        with trio.CancelScope() as scope:
            self._connections[connection] = scope
            try:
                async with stream:
                    await connection.run()
            except Exception:
                logger.exception("a connection of the admin endpoint failed; closed")
            finally:
                self._connections.pop(connection, None)

    def _make_room(self) -> bool:
        """Close the oldest connection that is not being answered; False if there is none."""
        self._complaints.warning(
            "connections",
            f"more than {MAX_CONNECTIONS} connections to the admin endpoint; the oldest is closed",
        )
        for connection, scope in self._connections.items():
            if connection.waiting:
                del self._connections[connection]
                scope.cancel()
                return True
        return False
