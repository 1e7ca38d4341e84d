"""The listener of the admin endpoint: how many connections, start and stop.

The endpoint runs in the broker's own event loop; connection.py says how much of it is hypercorn and why. No
signal handler is installed, no request is logged, and what hypercorn logs goes to the log of this package.
There is no ASGI lifespan: what must run beside requests runs in the broker.

A stop accepts no more, ends connections that wait for a request and ends streams; other answers under way
are finished, for up to STOP_SECONDS. At most MAX_CONNECTIONS are served at a time: this endpoint is for a
few tools and browsers. For a further one the oldest that waits for a request, or for the rest of one, is
closed, or else the oldest stream, so nobody can lock the others out. If all are being answered, the further
one is closed.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import TYPE_CHECKING

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from kumquat.core.complaints import Complaints
from kumquat.gateway.admin.connection import MAX_EVENTS, MAX_HEAD, Connection
from kumquat.gateway.admin.exchange import ANSWER_SECONDS, SEND_SECONDS
from kumquat.gateway.admin.listener import listen

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

MAX_CONNECTIONS = 64
STOP_SECONDS = ANSWER_SECONDS + SEND_SECONDS

logger = logging.getLogger(__name__)


def _config() -> Config:
    config = Config()
    config.errorlog = logger
    config.include_server_header = False
    config.h11_max_incomplete_size = MAX_HEAD
    config.keep_alive_max_requests = sys.maxsize
    config.max_app_queue_size = MAX_EVENTS
    return config


class AdminServer:
    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._config = _config()
        self._context = WorkerContext(None)
        self._stopping = trio.Event()
        self._connections: dict[Connection, None] = {}
        """Oldest first."""
        self._complaints = Complaints(logger, trio.current_time)

    async def run(
        self,
        sock: socket.socket,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop`; started when clients can connect."""
        listen(sock)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        async with trio.open_nursery() as serving:
            async with trio.open_nursery() as accepting:
                accept = partial(trio.serve_listeners, handler_nursery=serving)
                await accepting.start(accept, self._serve, [listener])
                task_status.started()
                await self._stopping.wait()
                accepting.cancel_scope.cancel()
            await self._context.terminated.set()  # hypercorn: close after the next answer
            serving.cancel_scope.deadline = trio.current_time() + STOP_SECONDS
            for connection in list(self._connections):
                if connection.waiting:
                    connection.close()

    def stop(self) -> None:
        self._stopping.set()

    async def _serve(self, stream: trio.SocketStream) -> None:
        if self._stopping.is_set() or (
            len(self._connections) >= MAX_CONNECTIONS and not self._make_room()
        ):
            await stream.aclose()
            return
        connection = Connection(
            stream, self._application, self._config, self._context, self._stopping
        )
        self._connections[connection] = None
        try:
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
        waiting = (each for each in self._connections if each.waiting)
        streaming = (each for each in self._connections if each.streaming)
        oldest = next(waiting, None) or next(streaming, None)
        if oldest is None:
            return False
        del self._connections[oldest]
        oldest.close()
        return True
