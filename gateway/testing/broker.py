"""How the broker for tests (`kumquat.testing`, which says how to use it) is started, watched and ended.

The broker is a process of its own (child.py). Nothing here polls or sleeps: a thread reads what the
process writes to stderr, keeps it in a file, and sees the line that says that clients can connect.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import kumquat
from kumquat.gateway.config.declare import ENVIRONMENT_PREFIX, show

START_SECONDS = 120.0
STOP_SECONDS = 120.0
LOG_SECONDS = 60.0
LINES_SHOWN = 30
_READY = re.compile(rb"ready on \S+:([0-9]+)\b(?:.* admin endpoint on (\S+))?")
_CHILD = Path(kumquat.__file__).parent / "gateway" / "testing" / "child.py"


class BrokerError(Exception):
    """The broker did not start or stop as it should; the message ends with its last log lines."""


class TestBroker:
    """One broker, which a test may stop and start again. Use `broker()`."""

    __test__ = False  # pytest: no tests in here

    def __init__(
        self, folder: Path, directory: Path, options: dict[str, object], port: int
    ) -> None:
        self.directory = directory
        self._options = options
        self._port = port
        self._admin = ""
        self._log_file = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._news = threading.Condition()
        self._ready = self._silent = False

    @property
    def port(self) -> int:
        return self._port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def admin(self) -> str:
        """The URL of the admin endpoint."""
        return self._admin

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start it, and return when clients can connect."""
        if self._process is not None:
            raise BrokerError("the broker is running already")
        self._ready = self._silent = False
        self._process = subprocess.Popen(
            self._command(), env=_environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert self._process.stderr is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stderr,), daemon=True
        )
        self._reader.start()
        with self._news:
            self._news.wait_for(lambda: self._ready or self._silent, START_SECONDS)
        if self._ready:
            return
        if not self._silent:
            self.kill()
            raise self._failure(f"the broker was not ready after {START_SECONDS:.0f} s")
        raise self._failure(f"the broker did not start: exit code {self._ended()}")

    def stop(self) -> int:
        """Ask it to stop (SIGTERM), wait until it has stopped, and return its exit code."""
        self._running().send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended, by itself or by a signal, and return its exit code."""
        try:
            self._running().wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"the broker did not stop in {STOP_SECONDS:.0f} s") from None
        return self._ended()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self._running().kill()
        self._ended()

    def log_text(self) -> str:
        """All that this broker has written to stderr since its first start."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def wait_for_log(self, text: str) -> None:
        """Return when the log has this text. A line may come a little later than what it reports."""
        with self._news:
            self._news.wait_for(lambda: self._silent or text in self.log_text(), LOG_SECONDS)
        if text not in self.log_text():
            raise self._failure(f"the broker never logged {text!r}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerError("the broker is not running")
        return self._process

    def _ended(self) -> int:
        process = self._running()
        code = process.wait()
        if self._reader is not None:
            self._reader.join()
        self._process = self._reader = None
        return code

    def _read(self, stderr: IO[bytes]) -> None:
        with stderr, self._log_file.open("ab", buffering=0) as log:
            for line in stderr:
                log.write(line)
                with self._news:
                    if not self._ready and (match := _READY.search(line)):
                        self._port = int(match[1])
                        self._admin = (match[2] or b"").decode()
                        self._ready = True
                    self._news.notify_all()
        with self._news:
            self._silent = True
            self._news.notify_all()

    def _command(self) -> list[str]:
        options: dict[str, object] = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "admin_listener": "HTTP://127.0.0.1:0",
            "log_dirs": self.directory,
            **self._options,
        }
        command = [sys.executable, "-P", str(_CHILD), "serve"]
        for name, value in options.items():
            command += ["--set", f"{name.replace('_', '.')}={show(value)}"]
        return command

    def _failure(self, what: str) -> BrokerError:
        last = "\n".join(self.log_text().splitlines()[-LINES_SHOWN:])
        return BrokerError(f"{what}\n{last}")


@contextlib.contextmanager
def broker(*, directory: Path | None = None, **options: object) -> Iterator[TestBroker]:
    """A running broker. It is stopped at the end, if the test has not done so; see kumquat.testing."""
    with (
        tempfile.TemporaryDirectory(prefix="kumquat-", ignore_cleanup_errors=True) as name,
        _reserved_port() as port,
    ):
        folder = Path(name)
        running = TestBroker(folder, directory or folder / "data", options, port)
        try:
            running.start()
            yield running
        except BaseException:
            if running._process is not None:
                running.kill()
            raise
        if running._process is not None and (code := running.stop()):
            raise running._failure(f"the broker ended with exit code {code}")


@contextlib.contextmanager
def _reserved_port() -> Iterator[int]:
    """A free port that stays reserved while the broker is down: a socket is bound to it and does not
    listen. Otherwise any new connection of the machine could get the port as its own. Even a client that
    keeps trying to reach the broker there could: it would then be connected to itself."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def _environment() -> dict[str, str]:
    """The environment of the child: without options of a broker, and without the working folder in
    PYTHONPATH, since a module there may have the name of one that the broker imports."""
    child = {k: v for k, v in os.environ.items() if not k.startswith(ENVIRONMENT_PREFIX)}
    here = Path.cwd()
    path = child.pop("PYTHONPATH", "").split(os.pathsep)
    if kept := [entry for entry in path if entry and Path(entry).absolute() != here]:
        child["PYTHONPATH"] = os.pathsep.join(kept)
    return child
