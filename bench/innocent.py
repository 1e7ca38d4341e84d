"""One producer and one consumer at an easy pace, in a process of their own: what they notice of others.

The producer sends a record of 100 bytes with acks=all each PAUSE_SECONDS, and waits for the answer. The
consumer fetches as a client at default settings does. Measured for each record: until it was acknowledged,
and until it was read.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass

from bench import frames
from bench.child import Child, main

PAUSE_SECONDS = 0.01
MARK = b"@when"
_FETCH, _FETCH_VERSION = 1, 4


@dataclass(frozen=True)
class Notice:
    port: int
    topic: str
    seconds: float


@dataclass(frozen=True)
class Noticed:
    records: int
    acked_p50_ms: float
    acked_p99_ms: float
    acked_max_ms: float
    read_p99_ms: float
    read_max_ms: float
    missing: int


def start(work: Notice) -> Child[Noticed]:
    return Child("bench.innocent", work, Noticed)


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
    def __init__(self, work: Notice) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.latencies: list[float] = []

    def run(self) -> None:
        offset = 0
        with socket.create_connection(("127.0.0.1", self._work.port)) as connection:
            while True:
                connection.sendall(fetch_request(self._work.topic, offset))
                batches = _batches(frames.receive(connection), self._work.topic)
                now = time.perf_counter()
                at = 0
                while at + 61 <= len(batches):
                    base, length = struct.unpack_from(">qi", batches, at)
                    (delta,) = struct.unpack_from(">i", batches, at + 23)
                    offset = base + delta + 1
                    mark = batches.find(MARK, at, at + length)
                    if mark >= 0:
                        (sent,) = struct.unpack_from(">d", batches, mark + len(MARK))
                        self.latencies.append(now - sent)
                    at += 12 + length


def _notice(work: Notice) -> Noticed:
    reader = _Reader(work)
    reader.start()
    acked: list[float] = []
    ends = time.perf_counter() + work.seconds
    with socket.create_connection(("127.0.0.1", work.port)) as connection:
        while (began := time.perf_counter()) < ends:
            value = MARK + struct.pack(">d", began) + bytes(80)
            batch = frames.record_batch([value])
            connection.sendall(frames.produce_request(work.topic, batch, -1))
            frames.base_offset(frames.receive(connection))
            acked.append(time.perf_counter() - began)
            time.sleep(PAUSE_SECONDS)
    patience = time.perf_counter() + 60
    while len(reader.latencies) < len(acked) and time.perf_counter() < patience:
        time.sleep(0.01)
    acked.sort()
    read = sorted(reader.latencies)
    return Noticed(
        len(acked),
        acked[len(acked) // 2] * 1000,
        acked[len(acked) * 99 // 100] * 1000,
        acked[-1] * 1000,
        read[len(read) * 99 // 100] * 1000,
        read[-1] * 1000,
        len(acked) - len(read),
    )


if __name__ == "__main__":
    main((Notice, _notice))
