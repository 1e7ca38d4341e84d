"""The listener of the admin endpoint.

A stop accepts no more and ends connections that wait for a request; answers under way are finished. At
most MAX_CONNECTIONS are served at a time, and a further one is closed at once: this is an endpoint for a
few tools on the same machine.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import trio

from gateway.acceptor import BindError
from gateway.admin.http import HttpConnection
from gateway.admin.routes import Routes
from gateway.options import is_loopback

if TYPE_CHECKING:
    from gateway.broker import Broker
    from gateway.options import AdminListener

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
        self._connections = 0

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
        if self._connections >= MAX_CONNECTIONS:
            logger.warning(
                "more than %d connections to the admin endpoint; closed", MAX_CONNECTIONS
            )
            await stream.aclose()
            return
        self._connections += 1
        try:
            async with stream:
                await HttpConnection(stream, self._routes.answer).run()
        except Exception:
            logger.exception("a connection of the admin endpoint failed; closed")
        finally:
            self._connections -= 1
