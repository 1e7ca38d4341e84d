"""Open consoles, as their script behaves: each asks for the live part of its page every two seconds.

They run as threads of the benchmark's own process: what they do is little, and is not the broker's.
"""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = ("/", "/console/groups", "/console/subjects")
EVERY_SECONDS = 2.0


def get(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@contextmanager
def opened(port: int, pages: tuple[str, ...] = PAGES) -> Iterator[None]:
    """A console on each of the pages, while the block runs."""
    ended = threading.Event()
    consoles = [threading.Thread(target=_watch, args=(port, page, ended)) for page in pages]
    for console in consoles:
        console.start()
    try:
        yield
    finally:
        ended.set()
        for console in consoles:
            console.join()


def _watch(port: int, page: str, ended: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    etag = ""
    try:
        while True:
            headers = {"X-Fragment": "1", **({"If-None-Match": etag} if etag else {})}
            connection.request("GET", page, headers=headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status not in (200, 204, 304):
                raise RuntimeError(f"{page} was answered {answer.status}")
            etag = answer.getheader("ETag") or ""
            if ended.wait(EVERY_SECONDS):
                return
    finally:
        connection.close()
