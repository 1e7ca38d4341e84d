"""The load for delayed messages: schedule them, receive them, and send other requests meanwhile.

Frames of a thousand records are built once, their delays drawn at random, and sent again and again over one
connection with a few requests in flight, acks=all: the client costs almost nothing, the broker is the
limit. Each answer is checked, so that an error ends the run. Lateness is taken twice: as the broker
stamped the message (time of delivery less due time), and as a librdkafka consumer at default settings got
it from its queue, which is what an application sees. A message that came early ends the run.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kafka.record import MemoryRecordsBuilder

from bench.brokers import proc
from bench.load import frames
from bench.load.child import Child, main
from bench.load.requests import connect

IN_A_BATCH = 1000
_IN_FLIGHT = 5
_DIFFERENT = 100
"""Frames that are built; more records are sent with the same ones."""


@dataclass(frozen=True)
class Schedule:
    """Messages due between two delays from when they are taken; or all at one time, if `at_ms` says it."""

    port: int
    pid: int
    topic: str
    records: int
    size: int
    least_ms: int = 0
    most_ms: int = 0
    at_ms: int = 0


@dataclass(frozen=True)
class Scheduled:
    records: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Receive:
    bootstrap: str
    topic: str
    records: int
    seconds: float
    """How long nothing may come before the run fails."""


@dataclass(frozen=True)
class Received:
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    stamped_p50_ms: float
    stamped_p99_ms: float
    stamped_max_ms: float


@dataclass(frozen=True)
class Others:
    """One record a request, acks=all, one after the other; judged between two times of the wall clock."""

    port: int
    topic: str
    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class Waited:
    requests: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def schedule(work: Schedule) -> Scheduled:
    return Child("bench.load.scheduling", work, Scheduled).finish()


def receive(work: Receive) -> Child[Received]:
    return Child("bench.load.scheduling", work, Received)


def others(work: Others) -> Child[Waited]:
    return Child("bench.load.scheduling", work, Waited)


def now_ms() -> int:
    return int(time.time() * 1000)


def _requests(work: Schedule) -> list[bytes]:
    chance = random.Random(1)
    count = -(-work.records // IN_A_BATCH)
    made = []
    for number in range(min(count, 1 if work.at_ms else _DIFFERENT)):
        builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 24)
        for _ in range(min(IN_A_BATCH, work.records)):
            header = ("qmq-deliver-at", b"%d" % work.at_ms)
            if not work.at_ms:
                header = ("qmq-delay-ms", b"%d" % chance.randint(work.least_ms, work.most_ms))
            value = chance.randbytes(work.size)
            builder.append(timestamp=now_ms(), key=None, value=value, headers=[header])
        builder.close()
        batch = bytes(builder.buffer())
        made.append(frames.produce_request(work.topic, batch, -1, number))
    return made


def _schedule(work: Schedule) -> Scheduled:
    requests = _requests(work)
    count = -(-work.records // IN_A_BATCH)
    with connect(work.port) as connection:
        cpu, began = proc.cpu_seconds(work.pid), time.perf_counter()
        for number in range(count):
            connection.sendall(requests[number % len(requests)])
            if number >= _IN_FLIGHT:
                frames.base_offset(frames.receive(connection))
        for _ in range(min(count, _IN_FLIGHT)):
            frames.base_offset(frames.receive(connection))
        seconds = time.perf_counter() - began
    return Scheduled(count * IN_A_BATCH, seconds, proc.cpu_seconds(work.pid) - cpu)


def _receive(work: Receive) -> Received:
    reader = Consumer(
        {"bootstrap.servers": work.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    reader.assign([TopicPartition(work.topic, 0, 1)])  # behind the one that made the topic
    read: list[int] = []
    stamped: list[int] = []
    while len(read) < work.records:
        messages = reader.consume(1, work.seconds)
        messages += reader.consume(10_000, 0) if messages else []
        seen = now_ms()
        if not messages:
            raise RuntimeError(f"only {len(read)} of {work.records} messages came")
        for message in messages:
            if (error := message.error()) is not None:
                raise RuntimeError(str(error))
            headers: Any = message.headers()
            due = int(dict(headers)["qmq-due-ms"])
            read.append(seen - due)
            stamped.append(message.timestamp()[1] - due)
    reader.close()
    if min(read) < 0 or min(stamped) < 0:
        raise RuntimeError(f"a message came {-min(*read, *stamped)} ms early")
    read.sort()
    stamped.sort()
    return Received(
        _part(read, 0.5),
        _part(read, 0.99),
        _part(read, 0.999),
        read[-1],
        _part(stamped, 0.5),
        _part(stamped, 0.99),
        stamped[-1],
    )


def _others(work: Others) -> Waited:
    request = frames.produce_request(work.topic, frames.record_batch([bytes(100)]), -1)
    waited: list[float] = []
    with connect(work.port) as connection:
        while (began := now_ms()) < work.to_ms or not waited:
            clock = time.perf_counter()
            connection.sendall(request)
            frames.receive(connection)
            if began >= work.from_ms:
                waited.append((time.perf_counter() - clock) * 1000)
    waited.sort()
    return Waited(len(waited), _part(waited, 0.5), _part(waited, 0.99), waited[-1])


def _part(ordered: list[int] | list[float], part: float) -> float:
    return ordered[int(len(ordered) * part)]


if __name__ == "__main__":
    main((Schedule, _schedule), (Receive, _receive), (Others, _others))
