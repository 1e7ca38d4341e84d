"""The socket of the admin endpoint. There is no HTTP in here, so that a broker of which nobody has asked
anything over HTTP need not load a server for it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from kumquat.gateway.config.kinds import is_loopback
from kumquat.gateway.net.acceptor import BindError

if TYPE_CHECKING:
    from kumquat.gateway.config.kinds import AdminListener

BACKLOG = 64


def bind_admin(listener: AdminListener, *, allow_remote: bool = False) -> socket.socket:
    """A bound socket, not listening yet. Raises BindError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
    if not allow_remote and not is_loopback(host):
        sock.close()
        raise BindError(f"cannot listen on {listener}: {host} is not loopback; use 127.0.0.1")
    return sock


def listen(sock: socket.socket) -> None:
    """From here on clients can connect. Raises BindError."""
    try:
        sock.listen(BACKLOG)
    except OSError as error:
        host, port = sock.getsockname()[:2]
        raise BindError(f"cannot listen on {host}:{port}: {error.strerror}") from error
