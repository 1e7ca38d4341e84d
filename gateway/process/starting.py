"""What the admin endpoint answers while the broker opens its data, which may take minutes after a crash.

Until then there is no event loop, so a thread answers, one request after the other:

    GET /health/live     200: it is alive, and must not be killed for taking its time
    GET /health/ready    503, and for how long it has been starting
    anything else        503

It listens on the same socket that the endpoint then serves. A client that connects in between waits in the
kernel's queue, and is answered by the endpoint. A client has a second to send its request, however it sends
it: others wait for it, and so does the end of the start. Nothing that a client sends ends the thread.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kumquat.gateway.metrics.health import starting, starting_is_live

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKLOG = 64
CLIENT_SECONDS = 1.0
MOST_HEAD = 64 << 10
PAUSE_SECONDS = 0.05


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_SECONDS
    server_version = "kumquat"
    sys_version = ""
    began = 0.0

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = BytesIO(_head(self.connection))

    def do_GET(self) -> None:
        seconds = time.monotonic() - self.began
        if self.path == "/health/live":
            self._answer(200, starting_is_live().payload())
        elif self.path == "/health/ready":
            self._answer(503, starting(seconds).payload())
        else:
            message = f"the broker has been starting for {seconds:.0f} s: try again"
            self._answer(503, {"error": "STARTING", "message": message})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def _answer(self, status: int, payload: dict[str, Any]) -> None:
        body = json.dumps(payload).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: probes come every few seconds."""


@contextmanager
def answering(bound: socket.socket | None) -> Iterator[None]:
    """Answer on this socket while the block runs; None: there is no endpoint."""
    if bound is None or not _listens(bound):
        yield
        return
    wake = os.eventfd(0, os.EFD_CLOEXEC)
    thread = threading.Thread(
        target=_serve, args=(bound, wake, time.monotonic()), name="kumquat-starting", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        os.eventfd_write(wake, 1)
        thread.join()
        os.close(wake)


def _listens(bound: socket.socket) -> bool:
    """If it does not, the endpoint says so when its turn comes."""
    try:
        bound.listen(BACKLOG)
    except OSError:
        return False
    return True


def _serve(bound: socket.socket, wake: int, began: float) -> None:
    handler = type("Handler", (_Handler,), {"began": began})
    with selectors.DefaultSelector() as selector:
        selector.register(bound, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            if any(key.fd == wake for key, _ in selector.select()):
                return
            try:
                client, address = bound.accept()
            except OSError:  # gone before it was accepted, or no descriptor is left
                time.sleep(PAUSE_SECONDS)
                continue
            with client:
                try:
                    handler(client, address, None)
                except Exception:
                    continue  # gone before it was answered, or it speaks no HTTP


def _head(client: socket.socket) -> bytes:
    """The head of a request. Its body, if there is one, is not looked at."""
    until, found = time.monotonic() + CLIENT_SECONDS, b""
    while b"\r\n\r\n" not in found and b"\n\n" not in found and len(found) < MOST_HEAD:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        client.settimeout(left)
        piece = client.recv(4096)
        if not piece:
            break
        found += piece
    client.settimeout(CLIENT_SECONDS)
    return found
