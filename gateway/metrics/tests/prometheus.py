"""A real Prometheus server that scrapes a broker, for tests. It is a process of its own, on a free port.

    with scraping(folder, f"{broker.admin}/metrics") as prometheus:
        prometheus.wait_for_scrapes(2)
        prometheus.query("up")

It scrapes through a small forwarder here, which sees each scrape begin: when one begins, what the one
before it has brought is stored. So nobody has to sleep and look again.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE = 60.0
_LISTENING = re.compile(r'msg="Listening on" address=(\S+)')
_READY = "Server is ready to receive web requests"
_CONFIG = """
global: {{scrape_interval: 2s, scrape_timeout: 2s}}
scrape_configs:
  - job_name: kumquat
    static_configs: [{{targets: ["{target}"]}}]
"""

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus and promtool are missing: install the system package prometheus",
)


def promtool(*arguments: str) -> str:
    """What it says; fails if it finds something wrong."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


def promtool_complaints(scrape: bytes) -> set[str]:
    """The names that `promtool check metrics` finds fault with; fails if it cannot read them at all."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape, capture_output=True, check=False
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode in (0, 3), said
    return {line.split()[0] for line in said.splitlines()}


class _Forwarder(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.url = url
        self.begun = 0
        self.news = threading.Condition()


class _Forward(BaseHTTPRequestHandler):
    server: _Forwarder

    def do_GET(self) -> None:
        with self.server.news:
            self.server.begun += 1
            self.server.news.notify_all()
        with urlopen(self.server.url, timeout=DEADLINE) as answer:
            body, kind = answer.read(), answer.headers["Content-Type"]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class Prometheus:
    def __init__(self, address: str, forwarder: _Forwarder) -> None:
        self._address = address
        self._forwarder = forwarder

    def wait_for_scrapes(self, count: int) -> None:
        """Until so many more are stored, of which none has begun yet."""
        forwarder = self._forwarder
        with forwarder.news:
            wanted = forwarder.begun + count + 1
            assert forwarder.news.wait_for(lambda: forwarder.begun >= wanted, DEADLINE)

    def query(self, expression: str) -> list[Any]:
        """The samples; fails if it is no valid expression."""
        url = f"http://{self._address}/api/v1/query?{urlencode({'query': expression})}"
        with urlopen(url, timeout=DEADLINE) as answer:
            found = json.load(answer)
        assert found["status"] == "success", f"{expression}: {found}"
        result: list[Any] = found["data"]["result"]
        return result


@contextmanager
def scraping(folder: Path, url: str) -> Iterator[Prometheus]:
    """A server that scrapes this URL; gone when the block ends."""
    forwarder = _Forwarder(url)
    serving = threading.Thread(target=forwarder.serve_forever)
    serving.start()
    try:
        config = folder / "prometheus.yml"
        config.write_text(_CONFIG.format(target=f"127.0.0.1:{forwarder.server_address[1]}"))
        with subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stderr is not None
                address = _wait_ready(process.stderr)
                reader = threading.Thread(target=process.stderr.read)
                reader.start()
                yield Prometheus(address, forwarder)
            finally:
                process.kill()
            reader.join()
    finally:
        forwarder.shutdown()
        serving.join()
        forwarder.server_close()


def _wait_ready(log: IO[str]) -> str:
    """Where it listens, once it answers."""
    address, lines = "", list[str]()
    for line in log:
        lines.append(line)
        if match := _LISTENING.search(line):
            address = match[1]
        if _READY in line:
            break
    assert address, f"Prometheus did not start:\n{''.join(lines)}"
    return address
