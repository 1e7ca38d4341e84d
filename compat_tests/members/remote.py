"""The stories' side of hosts and members: see __init__.py for who speaks what.

    member = members("java-cooperative", group, topic)      # the fixture: closed when the test ends
    member.take(10)                                         # the records, in the order they came
    member.run()                                            # polls and commits until `stop`
    member.wait(lambda: len(member.records) >= 100, "a hundred records")
    member.close()

A member shares its process with others unless it is made with `alone=True`; only then may it be killed or
frozen. Waiting is for what a member reports, with a deadline; nothing sleeps.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from compat_tests.members.client import Record
from compat_tests.support import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = [sys.executable, "-m", "compat_tests.members.host"]
QUICK = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "session.timeout.ms": "60000",
    "heartbeat.interval.ms": "300",
}
"""Default settings of members: fast rebalances, and sessions that outlast any short stall of the
machine."""

NEWS = threading.Condition()
"""Notified of every line of every host."""


class Failed(Exception):
    """A member's command failed. `kind` is the client's own name for the error."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Host:
    def __init__(self, command: list[str]) -> None:
        self.members: dict[str, Member] = {}
        self.ended = False
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                name, kind, *fields = line.rstrip("\n").split("\t")
                with NEWS:
                    self.members[name].hear(kind, fields)
                    NEWS.notify_all()
        with NEWS:
            self.ended = True
            NEWS.notify_all()

    def say(self, *fields: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(fields) + "\n")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Ends it as a crash would; returns when everything that it had written is read."""
        self.process.kill()
        self.end()

    def end(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)


class Member:
    _numbers = itertools.count(1)

    def __init__(self, host: Host, name: str, variant: str, *, alone: bool = False) -> None:
        self.name, self.variant, self.host, self.alone = name, variant, host, alone
        self.records: list[Record] = []
        self.callbacks: list[tuple[str, list[str]]] = []
        """(`assigned`, `revoked` or `lost`, topics), in order."""
        self.assigned: set[str] = set()
        """By the callbacks so far."""
        self.uncommitted: list[str] = []
        """The errors of commits that failed."""
        self.refused: set[str] = set()
        """The values of the polls whose commit failed."""
        self.interrupted: set[str] = set()
        """The values of the polls that were not committed yet when their topic was taken away."""
        self.handled: list[str] = []
        """The values of the polls whose commit of `run each` is done."""
        self._last_poll = 0
        self.broken: str | None = None
        self.closed = False
        self._answers: dict[str, list[str]] = {}
        host.members[name] = self

    def __repr__(self) -> str:
        broken = f", broken: {self.broken}" if self.broken else ""
        return f"<{self.name}: {self.variant}, {len(self.records)} records{broken}>"

    def hear(self, kind: str, fields: list[str]) -> None:
        match kind:
            case "record":
                topic, offset, timestamp, value, attempt, at = fields
                place = int(offset), int(timestamp)
                self.records.append(Record(topic, *place, value, int(attempt), int(at)))
            case "assigned":
                self.callbacks.append((kind, fields))
                self.assigned |= set(fields)
            case "revoked" | "lost":
                self.callbacks.append((kind, fields))
                self.assigned -= set(fields)
                if fields:
                    self.interrupted |= self._last_values()
            case "uncommitted":
                self.uncommitted.append(": ".join(fields))
                self.refused |= self._last_values()
            case "polled" | "committed":
                if kind == "committed":
                    self.handled += [each.value for each in self.records[self._last_poll :]]
                self._last_poll = len(self.records)
            case "broken":
                self.broken = ": ".join(fields)
            case _:
                self._answers[fields[0]] = [kind, *fields[1:]]

    def _last_values(self) -> set[str]:
        return {record.value for record in self.records[self._last_poll :]}

    def explains(self, value: str) -> bool:
        """Whether what it read comes again for a reason, here as in Kafka: it was not committed."""
        return value in self.refused or value in self.interrupted

    # --- commands --------------------------------------------------------------------------------

    def tell(self, command: str, *arguments: object) -> str:
        """Sends a command and does not wait; `answer` takes the number that it returns."""
        number = str(next(self._numbers))
        self.host.say(self.name, number, command, *map(str, arguments))
        return number

    def answer(self, number: str, seconds: float = DEADLINE) -> list[str]:
        self.wait(lambda: number in self._answers, "its answer", seconds)
        outcome, *fields = self._answers.pop(number)
        if outcome == "failed":
            raise Failed(*fields)
        return fields

    def answered(self, number: str) -> bool:
        return number in self._answers

    def do(self, command: str, *arguments: object, seconds: float = DEADLINE) -> list[str]:
        return self.answer(self.tell(command, *arguments), seconds)

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
        def holds() -> bool:
            assert not self.host.ended or condition(), f"{self!r}: its process has ended"
            return condition()

        wait(holds, lambda: f"{self!r}: {what}", seconds)

    def take(self, count: int, seconds: float = DEADLINE) -> list[Record]:
        """The next records. Java gives whole polls: mind its max.poll.records."""
        before = len(self.records)
        self.do("take", count, seconds, seconds=seconds + DEADLINE)
        return self.records[before:]

    def run(self, *, commit: str = "each", handler_ms: float = 0) -> None:
        self.do("run", commit, handler_ms)

    def stop(self) -> None:
        self.do("stop")

    def wait_assigned(self, *topics: str) -> None:
        self.wait(lambda: set(topics) <= self.assigned, f"to be assigned {topics}")

    def offset(self, command: str, *arguments: object) -> int | None:
        """Of `committed`, `position` or `at`."""
        found = self.do(command, *arguments)
        return int(found[0]) if found else None

    def ends(self, topic: str) -> tuple[int, int]:
        first, last = self.do("ends", topic)
        return int(first), int(last)

    def values(self) -> list[str]:
        return [record.value for record in self.records]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.do("close", seconds=2 * DEADLINE)

    # --- of a member alone in its process ----------------------------------------------------------

    def kill(self) -> None:
        self.closed = True
        self.host.kill()

    def freeze(self) -> None:
        self.host.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.host.signal(signal.SIGCONT)


def wait(
    condition: Callable[[], bool], what: str | Callable[[], str], seconds: float = DEADLINE
) -> None:
    """Waits until the condition holds; it is checked whenever any member reports something."""
    end = time.monotonic() + seconds
    with NEWS:
        while not condition():
            left = end - time.monotonic()
            said = what if isinstance(what, str) else what()
            assert left > 0, f"not within {seconds:.0f} s: {said}"
            NEWS.wait(left)


def named(given: dict[str, object]) -> dict[str, str]:
    """max_poll_records=1, enable_auto_commit=True as Kafka spells them."""
    return {
        name.replace("_", "."): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }
