"""A fake admin endpoint: answers that a test gives, on a real socket, and what was asked.

with answering({"/trace": (200, {...})}) as fake:
    run("trace", "orders", "17", "--admin", fake.url)
    assert fake.asked == [("/trace", {"subject": "orders", "offset": "17"})]
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Answers = Mapping[str, tuple[int, Any] | list[tuple[int, Any]]]


class Fake:
    def __init__(self, answers: Answers) -> None:
        self.answers = dict(answers)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.url = ""

    def answer(self, path: str, values: dict[str, str]) -> tuple[int, Any]:
        self.asked.append((path, values))
        found = self.answers.get(path)
        if found is None:
            return 404, {"error": "NOT_FOUND", "message": f"there is no {path}; there are …"}
        return found.pop(0) if isinstance(found, list) else found


@contextmanager
def answering(answers: Answers) -> Iterator[Fake]:
    fake = Fake(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            status, payload = fake.answer(parts.path, dict(parse_qsl(parts.query)))
            body = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fake.url = f"http://127.0.0.1:{server.server_address[1]}"
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield fake
        finally:
            server.shutdown()
            serving.join()
