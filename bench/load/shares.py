"""Share consumers as a Java program, java/ShareLoad.java, whose head tells its commands and its answers.

    with ShareProcess(bootstrap) as process:
        process.join("group", "topic", members=4, count=1000)
        …write…
        last_at = process.wait()
        shares = process.leave()

It is compiled once: the classes are in `.cache/java` under the hash of the source, complete or absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Self

from bench.brokers.jars import CACHE, SetupError, client_jars, java, locked

_SOURCE = Path(__file__).parent / "java" / "ShareLoad.java"
_SECONDS = 600.0


def class_path() -> str:
    """Compiles the program where that was not done yet."""
    jars = ":".join(map(str, client_jars()))
    folder = CACHE / "java" / hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    with locked(CACHE / "java.lock"):
        if not folder.exists():
            compiler = shutil.which("javac")
            if compiler is None:
                raise SetupError("a JDK of Java 17 or newer is needed: no `javac` on the PATH")
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            command = [compiler, "-d", str(partial), "-cp", jars, str(_SOURCE)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SetupError(f"{_SOURCE.name} does not compile: {done.stderr[-2000:]}")
            partial.replace(folder)
    return f"{folder}:{jars}"


class ShareProcess:
    """A JVM with members of a share group in it; killed with the block."""

    def __init__(self, bootstrap: str) -> None:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        self.child = subprocess.Popen(
            [java(), "-Xmx512m", quiet, "-cp", class_path(), "ShareLoad", bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout as output:
            for line in output:
                self._lines.put(line.rstrip("\n").split("\t"))
        self._lines.put([])

    def join(
        self,
        group: str,
        topic: str,
        *,
        members: int = 1,
        count: int,
        handler_ms: float = 0,
        deed: str = "accept",
        settings: dict[str, str] | None = None,
    ) -> None:
        pairs = [f"{name}={value}" for name, value in (settings or {}).items()]
        fields = [group, topic, str(members), str(count), str(handler_ms), deed, *pairs]
        self.ask("join", *fields)

    def wait(self, seconds: float = _SECONDS) -> float:
        """Waits until all numbers are handled; gives the monotonic time of the last new one."""
        last, _ = self.ask("wait", str(seconds))
        return int(last) / 1e9

    def leave(self) -> tuple[list[int], int]:
        """All members close; gives how many each has handled, and how many came twice."""
        handled, twice = self.ask("leave")
        return [int(each) for each in handled.split(",")], int(twice)

    def start(self, group: str, topic: str) -> float:
        """A new consumer in a JVM that is warm: ms until its first record."""
        return float(self.ask("start", group, topic)[0])

    def ask(self, *fields: str) -> list[str]:
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.write("\t".join(fields) + "\n")
            self.child.stdin.flush()
        return self.expect(fields[0])

    def expect(self, word: str) -> list[str]:
        """The fields of the next line, which begins with this word."""
        try:
            line = self._lines.get(timeout=_SECONDS)
        except queue.Empty:
            raise RuntimeError(f"the share consumers did not say {word!r} in time") from None
        if not line:
            code = self.child.wait(60)
            raise RuntimeError(f"the share consumers ended with {code} and not with {word!r}")
        if line[0] != word:
            raise RuntimeError(f"the share consumers said {line}, not {word!r}")
        return line[1:]

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()
        self._reader.join()
        if self.child.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.child.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
