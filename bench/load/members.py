"""Members of a group for a benchmark: librdkafka at its default settings, several to a process.

Each message carries its number in its first eight bytes. Members mark the numbers that they have handled in
memory that all processes share (`Marks`). So it is known when all are handled, by any member, and which
were handled twice. A handler is a pause after each message. Times are those of the system's monotonic
clock, which all processes read alike.

    marks = Marks(20_000)
    process = MemberProcess(Work(bootstrap, "group", "topic", marks.path, members=8, handler_ms=5))
    process.wait_assigned()
    …write…
    marks.wait()
    results = process.stop()

With `gated`, members that hold the subject do not fetch until `go()`.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition

AT_ONCE = 2000
"""How many messages one call takes where the handler does nothing."""
RETRY_SUBJECT = "__kumquat_retry"
_SECONDS = 600


@dataclass(frozen=True)
class Work:
    bootstrap: str
    group: str
    topic: str
    marks: str
    members: int = 1
    handler_ms: float = 0
    share: bool = False
    """A Kafka share group, instead of a consumer group."""
    gated: bool = False
    commits: bool = True
    fails: int | None = None
    """The number of a message whose handler fails each time: it is given back for retry."""
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Result:
    """What one member did."""

    handled: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    """When it last handled a message that no member had handled before."""
    longest_gap: float = 0.0
    gap_began: float = 0.0
    taken: int = 0
    """How often the subject was taken away."""


class Marks:
    """How often each message was handled: a byte each, in memory that processes share."""

    def __init__(self, count: int, path: Path | None = None) -> None:
        self.count = count
        if path is None:
            shared = Path("/dev/shm")
            folder = shared if shared.is_dir() else None
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.truncate(max(1, count))
            path = Path(file.name)
        self.path = str(path)
        with path.open("r+b") as opened:
            self.bytes = mmap.mmap(opened.fileno(), 0)

    def left(self) -> int:
        return bytes(self.bytes[: self.count]).count(0)

    def twice(self) -> int:
        """How many were handled more than once."""
        handled = bytes(self.bytes[: self.count])
        return self.count - handled.count(0) - handled.count(1)

    def wait(self, count: int | None = None, seconds: float = _SECONDS) -> None:
        """Waits until so many are handled, or all."""
        wanted = self.count if count is None else count
        end = time.monotonic() + seconds
        while (left := self.left()) > self.count - wanted:
            if time.monotonic() > end:
                raise RuntimeError(f"{left} of {self.count} messages were not handled in time")
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes.close()
        Path(self.path).unlink(missing_ok=True)


class MemberProcess:
    """A process with members in it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._assigned = threading.Semaphore(0)
        self._results: queue.SimpleQueue[list[Result]] = queue.SimpleQueue()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "bench.load.members", json.dumps(asdict(work))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout as output:
            self._hear(output)

    def _hear(self, output: IO[str]) -> None:
        for line in output:
            if line.startswith("assigned"):
                self._assigned.release()
            else:
                self._results.put([Result(**each) for each in json.loads(line)])

    def wait_assigned(self, seconds: float = 60) -> None:
        """Waits until each of its members has held the subject once."""
        for _ in range(self.work.members):
            if not self._assigned.acquire(timeout=seconds):
                raise RuntimeError("a member was not given the subject in time")

    def go(self) -> None:
        self._say("go")

    def so_far(self) -> list[Result]:
        """What its members have done since the last time."""
        self._say("so far")
        return self._results.get(timeout=60)

    def stop(self) -> list[Result]:
        """All members leave the group."""
        self._say("stop")
        if self._end():
            raise RuntimeError(f"members ended with {self.child.returncode}")
        return self._results.get(timeout=60)

    def kill(self) -> None:
        self.child.kill()
        self._end()

    def _end(self) -> int:
        assert self.child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        code = self.child.wait(120)
        self._reader.join()
        return code

    def _say(self, word: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()


# --- in the child --------------------------------------------------------------------------------

_writing = threading.Lock()


class _Member:
    def __init__(
        self, work: Work, marks: Marks, go: threading.Event, stop: threading.Event
    ) -> None:
        self.work, self.marks, self.go, self.stop = work, marks, go, stop
        self.result = Result()
        self._told = False
        self._paused: list[TopicPartition] = []

    def run(self) -> None:
        if self.work.share:
            self._run_share()
        else:
            self._run_group()

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.work.bootstrap,
            "group.id": self.work.group,
            "log_level": 3,
            **self.work.settings,
        }

    def _run_share(self) -> None:
        consumer = ShareConsumer(self._settings())
        consumer.subscribe([self.work.topic])
        while not self.stop.is_set():
            for message in consumer.poll(0.1):
                if message.error() is None:
                    self._handle([message])
        consumer.close()

    def _run_group(self) -> None:
        defaults = {"auto.offset.reset": "earliest", "enable.auto.commit": self.work.commits}
        consumer = Consumer(defaults | self._settings())
        consumer.subscribe([self.work.topic], on_assign=self._given, on_revoke=self._taken)
        while not self.stop.is_set():
            if self._paused and self.go.is_set():
                consumer.resume(self._paused)
                self._paused = []
            if self.work.handler_ms:
                message = consumer.poll(0.1)
                messages = [] if message is None else [message]
            else:
                messages = consumer.consume(AT_ONCE, 0.05)
            self._handle([each for each in messages if each.error() is None])
        consumer.close()

    def _given(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        if self.work.gated and not self.go.is_set():
            consumer.pause(partitions)
            self._paused = partitions
        if partitions and not self._told:
            self._told = True
            with _writing:
                print("assigned", flush=True)

    def _taken(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions and not self.stop.is_set():
            self.result.taken += 1

    def _handle(self, messages: list[Any]) -> None:
        if not messages:
            return
        handled, new = self.marks.bytes, False
        for message in messages:
            if self.work.handler_ms:
                time.sleep(self.work.handler_ms / 1000)
            number = int.from_bytes(message.value()[:8], "big")
            if number == self.work.fails:
                self._fail(message)
            if number < self.marks.count:
                new |= not handled[number]
                handled[number] = min(255, handled[number] + 1)
        now, result = time.monotonic(), self.result
        result.handled += len(messages)
        if result.first_at:
            gap = now - result.gap_began
            result.longest_gap = max(result.longest_gap, gap)
        result.first_at = result.first_at or now
        result.gap_began = now
        if new:
            result.last_at = now

    def _fail(self, message: Any) -> None:
        """As any client says it: a record to the reserved subject, answered before the commit."""
        producer = Producer({"bootstrap.servers": self.work.bootstrap, "log_level": 3})
        answers: list[str | None] = []
        producer.produce(
            RETRY_SUBJECT,
            headers={
                "qmq-retry-group": self.work.group,
                "qmq-retry-subject": message.topic(),
                "qmq-retry-offset": str(message.offset()),
            },
            on_delivery=lambda error, _: answers.append(error.str() if error else None),
        )
        producer.flush(60)
        if answers != [None]:
            raise RuntimeError(
                f"the retry of offset {message.offset()} was answered with {answers}"
            )


def _main() -> None:
    work = Work(**json.loads(sys.argv[1]))
    marks_path = Path(work.marks)
    marks = Marks(marks_path.stat().st_size, marks_path)
    go, stop = threading.Event(), threading.Event()
    members = [_Member(work, marks, go, stop) for _ in range(work.members)]
    threads = [threading.Thread(target=member.run) for member in members]
    for thread in threads:
        thread.start()

    def report() -> None:
        with _writing:
            print(json.dumps([asdict(member.result) for member in members]), flush=True)
        for member in members:
            member.result = Result()

    words: dict[str, Callable[[], None]] = {"go": go.set, "so far": report, "stop": stop.set}
    for line in sys.stdin:
        words[line.strip()]()
        if stop.is_set():
            break
    stop.set()
    for thread in threads:
        thread.join()
    report()


if __name__ == "__main__":
    _main()
