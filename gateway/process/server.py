"""Running a broker as a process: its listeners, signals, exit codes.

`run_broker` returns the exit code: 0 after a graceful stop (SIGTERM or SIGINT; a second signal ends it at
once), 1 when the broker fails while it runs. When it cannot start (an address is taken, data cannot be
opened) it raises StartError; the command line turns that into one line and exit code 2.

Clients can connect once all parts of the broker run (`serve_clients`), and the parts end when the last
client has its answer. Until then the admin endpoint says that the broker is starting (starting.py).
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

import trio

import kumquat.gateway.handlers  # noqa: F401  (registers every API)
from kumquat.core.errors import StartError
from kumquat.gateway.admin.listener import bind_admin
from kumquat.gateway.broker import Broker
from kumquat.gateway.net.acceptor import Acceptor, bind
from kumquat.gateway.net.descriptors import raise_limit
from kumquat.gateway.process import garbage
from kumquat.gateway.process.late_admin import LateAdmin
from kumquat.gateway.process.starting import answering
from kumquat.gateway.process.step_tracer import StepTracer
from kumquat.version import version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kumquat.gateway.config.options import BrokerConfig

    OnReady = Callable[[str, str | None], None]

FAILED = 1
SWITCH_SECONDS = 0.001
"""After so long a thread that decodes or opens batches gives the interpreter back to the event loop."""

logger = logging.getLogger(__name__)


def run_broker(config: BrokerConfig, on_ready: OnReady | None = None) -> int:
    """Serve until a signal comes; the exit code of the process. Raises StartError.

    `on_ready` is called once clients can connect, with the address of the first listener and the URL of the
    admin endpoint, if there is one.
    """
    began = time.monotonic()
    raise_limit(config.max_connections)
    sockets = bind(config.listeners)
    admin: socket.socket | None = None
    try:
        if config.admin_listener is not None:
            admin = bind_admin(config.admin_listener, allow_remote=config.admin_allow_remote)
        with answering(admin):
            broker = Broker.open(config)
        trio.run(_serve, broker, sockets, admin, began, on_ready)
    except BaseExceptionGroup as group:
        start, rest = group.split(StartError)
        if start is not None and rest is None:
            raise _first(start) from None
        logger.critical("the broker failed", exc_info=True)
        return FAILED
    finally:
        for sock in (*sockets, *([admin] if admin else ())):
            sock.close()
    logger.info("stopped")
    return 0


def _first(group: BaseExceptionGroup[StartError]) -> StartError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _serve(
    broker: Broker,
    sockets: Sequence[socket.socket],
    admin: socket.socket | None,
    began: float,
    on_ready: OnReady | None,
) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(_obey_signals, broker, nursery.cancel_scope)
        async with trio.open_nursery() as serving:
            await serving.start(serve_clients, broker, sockets, admin)
            garbage.settle()
            sys.setswitchinterval(SWITCH_SECONDS)
            nursery.start_soon(garbage.Collector().run)
            nursery.start_soon(broker.lag.run)
            if broker.config.loop_trace_ms >= 0:
                trio.lowlevel.add_instrument(StepTracer(broker.config.loop_trace_ms))
            addresses = ", ".join(map(_show, sockets))
            opened = _opened(broker, time.monotonic() - began)
            url = f"http://{_show(admin)}" if admin is not None else None
            if url is not None:
                opened += f"; admin endpoint on {url}"
            logger.info("kumquat %s ready on %s; %s", version(), addresses, opened)
            if broker.config.admin_allow_remote and url is not None:
                logger.warning("other machines may reach %s, which has no authentication", url)
            if on_ready is not None:
                on_ready(_show(sockets[0]), url)
        nursery.cancel_scope.cancel()


async def serve_clients(
    broker: Broker,
    sockets: Sequence[socket.socket],
    admin_socket: socket.socket | None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the broker, and serve clients on these bound sockets until `Broker.stop`."""
    acceptor, admin = Acceptor(broker), LateAdmin(broker)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        await broker.subjects.make_retry()
        async with trio.open_nursery() as serving:
            await serving.start(acceptor.run, sockets)
            if admin_socket is not None:
                await serving.start(admin.run, admin_socket)
            task_status.started()
            await broker.wait_stopping()
            acceptor.stop()
            admin.stop()
            broker.end_polls()
        nursery.cancel_scope.cancel()  # the logs sync what is left and close
    broker.close()


async def _obey_signals(
    broker: Broker,
    everything: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    stopping = False
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            name = signal.Signals(number).name
            if stopping:
                logger.warning("%s again: stopping at once", name)
                everything.cancel()
                return
            stopping = True
            logger.info("%s: stopping", name)
            broker.stop()


def _opened(broker: Broker, seconds: float) -> str:
    """Which folder, what was found in it, and how long that took."""
    found = broker.statistics()
    parts = [
        _count(found.log.subjects, "subject"),
        f"{found.log.bytes_stored:,} bytes in {_count(found.log.segments, 'segment')}",
        _count(found.groups.groups, "group"),
        f"{_count(found.delay.pending, 'message')} for later",
    ]
    return f"{broker.config.log_dirs.absolute()} opened in {seconds:.2f} s: {', '.join(parts)}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _show(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
