"""A broker as a child process: started, waited for, measured, stopped.

A subclass says how it is started; everything else is the same for Kumquat and Apache Kafka. `start`
returns when the broker answers Metadata, and may be called again on the same folder after `stop`
(SIGTERM) or `kill` (SIGKILL). What the broker prints goes to a file beside its data; the end of
it is in the error when the broker dies.

The data is under the repository and not in /tmp, which on many machines is memory, where a sync
costs nothing.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from bench.brokers import proc
from bench.brokers.jars import CACHE, SetupError
from bench.load import frames


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class BrokerProcess(ABC):
    name: str

    def __init__(self, folder: Path | None = None) -> None:
        runs = CACHE / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="broker-", dir=runs))
        self.output = self.folder / "broker.out"
        self.port = free_ports(1)[0]
        self.file_limit: int | None = None
        """How many files it may have open (ulimit -n), where a scenario limits that."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker has not been started"
        return self.process.pid

    @abstractmethod
    def command(self) -> list[str]: ...

    def start(self, timeout: float = 60) -> float:
        """Starts and waits; returns the seconds until the first Metadata answer."""
        command = self.command()
        if self.file_limit is not None:
            limited = f'ulimit -n {self.file_limit}; exec "$@"'
            command = ["sh", "-c", limited, "sh", *command]
        began = time.perf_counter()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        while not frames.answers_metadata(self.port):
            if self.process.poll() is not None:
                raise SetupError(
                    f"{self.name} ended with {self.process.returncode}: {self._tail()}"
                )
            if time.perf_counter() - began > timeout:
                self.kill()
                raise SetupError(
                    f"{self.name} did not answer within {timeout:.0f} s: {self._tail()}"
                )
            time.sleep(0.002)
        return time.perf_counter() - began

    def _tail(self) -> str:
        lines = self.output.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:]) or f"nothing was printed to {self.output}"

    def stop(self, timeout: float = 60) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def cpu_seconds(self) -> float:
        return proc.cpu_seconds(self.pid)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
