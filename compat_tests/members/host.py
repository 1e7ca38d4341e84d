"""The child process in which members live that are Python clients. The lines it speaks: __init__.py.

    python -m compat_tests.members.host

A member's thread does one command at a time and, while it runs, polls in between. When the input ends,
so does the process, at once: the stories close what has to be closed.
"""

from __future__ import annotations

import importlib
import os
import queue
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.members.client import Client, Record

CLASSES = {
    "confluent": ("compat_tests.members.confluent", "Confluent"),
    "confluent_share": ("compat_tests.members.confluent_share", "ConfluentShare"),
    "kafka_python": ("compat_tests.members.kafka_python", "KafkaPython"),
    "aiokafka": ("compat_tests.members.aio_kafka", "Aiokafka"),
}
POLL_SECONDS = 0.1

_writing = threading.Lock()


def write(lines: list[list[str]]) -> None:
    text = "".join("\t".join(" ".join(each.split()) for each in line) + "\n" for line in lines)
    with _writing:
        sys.stdout.write(text)
        sys.stdout.flush()


class Member:
    def __init__(self, name: str) -> None:
        self.name = name
        self.commands: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self.client: Client | None = None
        self.most = 500
        self.running = False
        self.commits_each = False
        self.pause_seconds = 0.0
        self.dies_at: str | None = None

    def work(self) -> None:
        while True:
            if self.running and self.commands.empty():
                self.step()
                continue
            number, command, *arguments = self.commands.get()
            try:
                result = self.do(command, arguments)
            except Exception as error:
                write([[self.name, "failed", number, name_of(error), str(error)]])
            else:
                write([[self.name, "done", number, *result]])
            if command == "close":
                return

    def step(self) -> None:
        assert self.client is not None
        try:
            records = self.client.poll(POLL_SECONDS, self.most, self.report)
        except Exception as error:
            self.running = False
            write([[self.name, "broken", name_of(error), str(error)]])
            return
        if self.pause_seconds:
            for _ in records:
                time.sleep(self.pause_seconds)
        if records and self.commits_each:
            try:
                self.client.commit()
            except Exception as error:
                write([[self.name, "uncommitted", name_of(error), str(error)]])
            else:
                write([[self.name, "committed"]])

    def report(self, records: list[Record]) -> None:
        dies = next((n for n, each in enumerate(records) if each.value == self.dies_at), None)
        if dies is not None:
            records = records[: dies + 1]
        if records:
            lines = [[self.name, "record", *map(str, record)] for record in records]
            write([[self.name, "polled"], *lines])
        if dies is not None:
            os.kill(os.getpid(), signal.SIGKILL)

    def make(self, variant: str, *pairs: str) -> None:
        settings = dict(pair.split("=", 1) for pair in pairs)
        topics = settings.pop("topics", "").split(",")
        pattern = settings.pop("pattern", None)
        self.dies_at = settings.pop("dies.at", None)
        self.most = int(settings.get("max.poll.records", self.most))
        client, _, strategy = variant.partition("-")
        module, made = CLASSES[client]
        make: Callable[..., Client] = getattr(importlib.import_module(module), made)
        self.client = make(strategy, settings, self.told)
        self.client.subscribe(topics, pattern)

    def told(self, kind: str, topics: list[str]) -> None:
        write([[self.name, kind, *topics]])

    def do(self, command: str, arguments: list[str]) -> list[str]:
        if command == "make":
            self.make(*arguments)
            return []
        client = self.client
        assert client is not None
        match command, arguments:
            case "take", [count, seconds]:
                self.take(client, int(count), float(seconds))
            case "run", [commit, milliseconds]:
                self.running, self.commits_each = True, commit == "each"
                self.pause_seconds = float(milliseconds) / 1000
            case "stop", []:
                self.running = False
            case "commit", []:
                client.commit()
            case "commit", [topic, offset, text]:
                client.commit_at(topic, int(offset), text)
            case "committed", [topic]:
                return shown(client.committed(topic))
            case "position", [topic]:
                return shown(client.position(topic))
            case "seek", [topic, where]:
                client.seek(topic, where)
            case "ends", [topic]:
                return [str(end) for end in client.ends(topic)]
            case "at", [topic, timestamp]:
                return shown(client.at(topic, int(timestamp)))
            case "pause", [topic]:
                client.pause(topic)
            case "resume", [topic]:
                client.resume(topic)
            case "assignment", []:
                return sorted(client.assignment())
            case "subscribe", topics:
                client.subscribe(topics, None)
            case "close", []:
                self.running = False
                client.close()
            case _:
                raise ValueError(f"no command {command} with {len(arguments)} arguments")
        return []

    def take(self, client: Client, count: int, seconds: float) -> None:
        got, end = 0, time.monotonic() + seconds
        while got < count:
            records = client.poll(POLL_SECONDS, min(self.most, count - got), self.report)
            got += len(records)
            if got < count and time.monotonic() > end:
                raise TimeoutError(f"only {got} of {count} came")


def shown(offset: int | None) -> list[str]:
    return [] if offset is None else [str(offset)]


def name_of(error: Exception) -> str:
    """librdkafka has one exception for all errors; the code says which it is."""
    code = getattr(error.args[0], "name", None) if error.args else None
    return str(code()) if callable(code) else type(error).__name__


def main() -> None:
    members: dict[str, Member] = {}
    for line in sys.stdin:
        name, *command = line.rstrip("\n").split("\t")
        if name not in members:
            members[name] = Member(name)
            threading.Thread(target=members[name].work, daemon=True).start()
        members[name].commands.put(command)
    os._exit(0)


if __name__ == "__main__":
    main()
