"""A well-behaved producer and consumer in a process of their own: how much do other clients disturb them?

The producer sends a record of 100 bytes with acks=all each PAUSE_SECONDS, and waits for the answer. The
consumer fetches as a client at default settings does. Measured for each record: the time until it was
acknowledged, and until it was read, both from when it should have been sent. So a stall counts for every
record that it delays.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass

from bench.load import frames
from bench.load.child import Child, main

PAUSE_SECONDS = 0.03
WARM_UP_RECORDS = 30
_FETCH, _FETCH_VERSION = 1, 4


@dataclass(frozen=True)
class Work:
    port: int
    topic: str
    seconds: float


@dataclass(frozen=True)
class Measured:
    records: int
    acked_p50_ms: float
    acked_p99_ms: float
    acked_max_ms: float
    read_p99_ms: float
    read_max_ms: float
    missing: int


def start(work: Work) -> Child[Measured]:
    return Child("bench.load.probe", work, Measured)


def fetch_request(topic: str, offset: int, max_bytes: int = 1 << 20) -> bytes:
    """Fetch v4 of one topic."""
    name = topic.encode()
    body = struct.pack(">iiiibi", -1, 500, 1, 50 << 20, 0, 1)
    body += struct.pack(f">h{len(name)}si", len(name), name, 1)
    body += struct.pack(">iqi", 0, offset, max_bytes)
    head = struct.pack(">hhih", _FETCH, _FETCH_VERSION, 0, -1)
    return struct.pack(">i", len(head + body)) + head + body


def _batches(answer: bytes, topic: str) -> bytes:
    """The batches in an answer to that."""
    at = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4 + 2 + 8 + 8
    (aborted,) = struct.unpack_from(">i", answer, at)
    at += 4 + max(aborted, 0) * 16
    return answer[at + 4 :]


class _Reader(threading.Thread):
    """Notes when each offset was read."""

    def __init__(self, work: Work) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.read: dict[int, float] = {}

    def run(self) -> None:
        offset = 0
        with socket.create_connection(("127.0.0.1", self._work.port)) as connection:
            while True:
                connection.sendall(fetch_request(self._work.topic, offset))
                batches = _batches(frames.receive(connection), self._work.topic)
                now = time.perf_counter()
                at = 0
                while at + 61 <= len(batches):
                    offset, length = struct.unpack_from(">qi", batches, at)
                    self.read[offset] = now
                    offset += 1
                    at += 12 + length


def _send(work: Work) -> tuple[dict[int, float], dict[int, float]]:
    """When each offset should have been sent, and when it was acknowledged."""
    due: dict[int, float] = {}
    acked: dict[int, float] = {}
    request = frames.produce_request(work.topic, frames.record_batch([bytes(100)]), -1)
    began = time.perf_counter()
    ends = began + work.seconds
    with socket.create_connection(("127.0.0.1", work.port)) as connection:
        while began < ends:
            connection.sendall(request)
            answer = frames.receive(connection)
            now = time.perf_counter()
            offset = frames.base_offset(answer)
            due[offset], acked[offset] = began, now
            began += PAUSE_SECONDS
            time.sleep(max(0.0, began - time.perf_counter()))
    return due, acked


def _measure(work: Work) -> Measured:
    reader = _Reader(work)
    reader.start()
    due, acked = _send(work)
    patience = time.perf_counter() + 60
    while max(due) not in reader.read and time.perf_counter() < patience:
        time.sleep(0.01)
    measured = sorted(due)[WARM_UP_RECORDS:]
    to_ack = sorted(acked[offset] - due[offset] for offset in measured)
    to_read = sorted(reader.read[o] - due[o] for o in measured if o in reader.read)
    return Measured(
        len(measured),
        to_ack[len(to_ack) // 2] * 1000,
        to_ack[len(to_ack) * 99 // 100] * 1000,
        to_ack[-1] * 1000,
        to_read[len(to_read) * 99 // 100] * 1000,
        to_read[-1] * 1000,
        len(to_ack) - len(to_read),
    )


if __name__ == "__main__":
    main((Work, _measure))
