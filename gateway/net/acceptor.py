"""Listeners, and the connections that come in through them: limits, the watch over them, the stop.

- A connection beyond `max.connections` or `max.connections.per.ip` is closed at once. The log says so, but
  not for each of thousands.
- A connection that would leave too few file descriptors for the logs is closed too (descriptors.py). If the
  descriptors run out all the same, the listener reports it and tries again after a pause.
- One task looks at all connections every so often: for idle clients, for clients that send or take too
  slowly (timeouts.py), and for clients that closed while they waited. A timer for each connection would
  cost something on every request; a look costs a microsecond.
- A stop closes the listeners, lets every connection answer what it has read, and after the grace period
  closes those that are left.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
from collections import Counter
from typing import TYPE_CHECKING

import trio

from kumquat.core.complaints import Complaints
from kumquat.core.errors import StartError
from kumquat.gateway.net.connection import Connection
from kumquat.gateway.net.descriptors import highest_socket
from kumquat.gateway.net.dispatch import Endpoint, Session
from kumquat.gateway.net.limits import Account

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.gateway.broker import Broker
    from kumquat.gateway.config.kinds import Listener

BACKLOG = 1024
PAUSE_SECONDS = 0.5
WOKEN_AT_A_TIME = 10
CLOSED = select.POLLRDHUP if hasattr(select, "POLLRDHUP") else select.POLLHUP
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

STALL_SECONDS = 1.0

logger = logging.getLogger(__name__)


class BindError(StartError):
    """The broker cannot listen on an address; the text is one line for the operator."""


def bind(listeners: Sequence[Listener]) -> list[socket.socket]:
    """A bound socket for each listener, not listening yet. Raises BindError."""
    sockets: list[socket.socket] = []
    try:
        for listener in listeners:
            sockets.append(_bind(listener))
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise BindError(f"cannot listen on {listener}: {error.strerror or error}") from error
    return sockets


def _bind(listener: Listener) -> socket.socket:
    host = listener.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not listener.host:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def listen(sockets: Sequence[socket.socket]) -> None:
    """From here on clients can connect. Raises BindError."""
    for sock in sockets:
        try:
            sock.listen(BACKLOG)
        except OSError as error:
            host, port = sock.getsockname()[:2]
            raise BindError(f"cannot listen on {host}:{port}: {error.strerror}") from error


class Acceptor:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._config = broker.config
        self.connections: set[Connection] = set()
        self._per_ip: Counter[str] = Counter()
        self._accepting = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._last_gone = trio.Event()
        self._highest_socket = highest_socket()
        self._complaints = Complaints(logger, trio.current_time)

    async def run(
        self,
        sockets: Sequence[socket.socket],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop`; started when clients can connect."""
        listen(sockets)
        self._broker.advertised = [
            self._config.advertised(index, sock.getsockname()[1])
            for index, sock in enumerate(sockets)
        ]
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._watch)
            task_status.started()
            try:
                with self._accepting:
                    async with trio.open_nursery() as accepting:
                        for index, sock in enumerate(sockets):
                            accepting.start_soon(self._accept, sock, index)
            finally:
                for sock in sockets:
                    sock.close()
            await self._finish()
            nursery.cancel_scope.cancel()

    def stop(self) -> None:
        """Accept no more; answer what was read, and end."""
        self._accepting.cancel()

    async def _finish(self) -> None:
        for connection in self.connections:
            connection.stop()
        with trio.move_on_after(self._config.shutdown_grace_ms / 1000):
            while self.connections:
                self._last_gone = trio.Event()
                await self._last_gone.wait()
        if self.connections:
            logger.warning("%d connections did not end in time; closed", len(self.connections))

    async def _accept(self, listener: socket.socket, index: int) -> None:
        advertised = self._broker.advertised[index]
        endpoint = Endpoint(advertised.host, advertised.port)
        while True:
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(listener)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._complaints.warning(
                        "accept", f"cannot accept connections: {error.strerror}"
                    )
                    await trio.sleep(PAUSE_SECONDS)
                else:  # the client was gone before it was accepted
                    await trio.lowlevel.checkpoint()
            else:
                self._admit(sock, address, endpoint)
                await trio.lowlevel.checkpoint()

    def _admit(self, sock: socket.socket, address: tuple[str, int], endpoint: Endpoint) -> None:
        ip, port = address[:2]
        if sock.fileno() >= self._highest_socket:
            limit = self._highest_socket
            self._complaints.warning(
                "files",
                f"{limit} files are open, and the rest is for the logs: connections are refused; "
                "raise the limit (ulimit -n)",
            )
            self._refuse(sock)
            return
        if len(self.connections) >= self._config.max_connections:
            self._complaints.warning(
                "total", f"max.connections={self._config.max_connections} reached"
            )
            self._refuse(sock)
            return
        if self._per_ip[ip] >= self._config.max_connections_per_ip:
            limit = self._config.max_connections_per_ip
            self._complaints.warning("ip", f"max.connections.per.ip={limit} reached by {ip}")
            self._refuse(sock)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        assert self._nursery is not None
        peer = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        connection = Connection(
            sock,
            Session(self._broker, endpoint, peer, account=Account(self._broker.room.answers)),
            self._nursery,
            self._config.socket_request_max_bytes,
            self._complaints,
        )
        self.connections.add(connection)
        self._broker.traffic.opened += 1
        self._broker.sessions.add(connection.session)
        self._per_ip[ip] += 1
        self._nursery.start_soon(self._run, connection, ip)

    def _refuse(self, sock: socket.socket) -> None:
        self._broker.traffic.refused += 1
        sock.close()

    async def _run(self, connection: Connection, ip: str) -> None:
        try:
            await connection.run()
        except Exception:
            logger.exception("%s: the connection failed; closed", connection.session.peer)
        finally:
            self.connections.discard(connection)
            self._broker.traffic.closed += 1
            self._broker.sessions.discard(connection.session)
            self._per_ip[ip] -= 1
            if not self._per_ip[ip]:
                del self._per_ip[ip]
            self._last_gone.set()

    async def _watch(self) -> None:
        config = self._config
        unlimited = config.connections_max_idle_ms < 0
        max_idle = float("inf") if unlimited else config.connections_max_idle_ms / 1000
        max_receive = config.socket_request_receive_timeout_ms / 1000
        pause = min(1.0, max_idle / 4, max_receive / 4)
        while True:
            slept_until = trio.current_time() + pause
            await trio.sleep(pause)
            now = trio.current_time()
            if now > slept_until + STALL_SECONDS:
                # The whole broker stood still. First see what clients have sent and taken meanwhile.
                await trio.lowlevel.checkpoint()
            pressed = self._broker.room.pressed(now)
            for connection in self.connections:
                connection.watch(now, max_idle, max_receive, pressed)
            await self._end_polls_of_closed_clients()

    async def _end_polls_of_closed_clients(self) -> None:
        """End the long polls of clients that have closed. Such a connection is not read while its client
        waits for an answer, so only the kernel knows.

        Thousands may have closed at once: a few at a time are woken."""
        asked = select.poll()
        waiting = {}
        for connection in self.connections:
            if (fd := connection.polling) is not None:
                waiting[fd] = connection
                asked.register(fd, CLOSED)
        gone = asked.poll(0) if waiting else []
        for index, (fd, _) in enumerate(gone):
            waiting[fd].end_poll()
            if index % WOKEN_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
