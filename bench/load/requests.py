"""The request load: raw sockets in a process of their own, far cheaper than any broker.

Frames are built once; answers to one frame are all of one length, so they are counted by their
bytes and never parsed. A check at the end shows that none was an error: the next record's offset must
be the number of records sent. Frames go out in chunks, a chunk in one send, while at most `window`
requests per connection wait for their answer; a chunk's latency runs from its send to its last
answer.
"""

from __future__ import annotations

import itertools
import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass

from bench.brokers import proc
from bench.load import frames
from bench.load.child import Child, main

VALUE_BYTES = 100
"""On average: the values are of eleven lengths around it."""
MOST_SECONDS = 60
"""How long an answer may take before the run fails."""


@dataclass(frozen=True)
class Pipelined:
    """One record a request, over several connections; the topics take turns."""

    port: int
    pid: int
    topics: list[str]
    acks: int
    seconds: float
    warm_up: float
    connections: int = 8
    window: int = 64
    chunk: int = 16


@dataclass(frozen=True)
class OneByOne:
    """One record a request on one connection, which waits for each answer."""

    port: int
    topic: str
    acks: int
    seconds: float
    warm_up: float


@dataclass(frozen=True)
class Ping:
    """A tiny Metadata request, again and again: how long does the broker leave others waiting?"""

    port: int
    seconds: float


@dataclass(frozen=True)
class Loaded:
    requests: int
    seconds: float
    cpu_seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_microseconds(self) -> float:
        return self.cpu_seconds / self.requests * 1e6


def start(work: Pipelined | OneByOne | Ping) -> Child[Loaded]:
    return Child("bench.load.requests", work, Loaded)


def run(work: Pipelined | OneByOne | Ping) -> Loaded:
    return start(work).finish()


def _loaded(latencies: list[float], requests: int, seconds: float, cpu: float) -> Loaded:
    ordered = sorted(latencies)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return Loaded(requests, seconds, cpu, p50 * 1e3, p99 * 1e3, ordered[-1] * 1e3)


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _frames(topics: list[str], acks: int, at_least: int = 1) -> list[bytes]:
    """Frames that take the topics in turn, each with values and a correlation id of its own, as a
    client's have: a broker must not gain from having seen the same bytes before."""
    count = -(-at_least // len(topics)) * len(topics)
    made = []
    for index in range(count):
        value = index.to_bytes(4, "big") * (VALUE_BYTES // 4 - 5 + index % 11)
        batch = frames.record_batch([value])
        made.append(frames.produce_request(topics[index % len(topics)], batch, acks, index))
    return made


def _produced_at(port: int, frame: bytes) -> tuple[int, int]:
    """Sends the frame alone; returns the size of its answer and the offset that it got."""
    with connect(port) as connection:
        connection.sendall(frame)
        answer = frames.receive(connection)
        return len(answer) + 4, frames.base_offset(answer)


class _Connection:
    def __init__(self, port: int, chunks: list[bytes], turn: int) -> None:
        self.socket = connect(port)
        self.socket.setblocking(False)
        self._chunks = chunks
        self._turn = turn
        self._unsent = b""
        self.sent: deque[float] = deque()
        self.sent_chunks: list[int] = [0] * len(chunks)
        self.received = 0

    def fill(self, limit: int) -> None:
        """Sends chunks until `limit` of them are unanswered, or the socket is full."""
        while self._unsent or len(self.sent) < limit:
            if not self._unsent:
                self._turn = (self._turn + 1) % len(self._chunks)
                self._unsent = self._chunks[self._turn]
                self.sent_chunks[self._turn] += 1
                self.sent.append(time.perf_counter())
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return

    def read(self, size_of_chunk: int, latencies: list[float]) -> int:
        """Counts the chunks whose answers are complete now."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self.received += len(data)
        whole, self.received = divmod(self.received, size_of_chunk)
        now = time.perf_counter()
        latencies += [now - self.sent.popleft() for _ in range(whole)]
        return whole


class _Generator:
    def __init__(self, work: Pipelined) -> None:
        self.work = work
        if len({len(name) for name in work.topics}) > 1:
            raise ValueError("answers are counted by their bytes: topics need names of one length")
        each = _frames(work.topics, work.acks, at_least=4 * work.chunk)
        self.first = each[0]
        answer, self.begin = _produced_at(work.port, self.first)
        self.answer = answer * work.chunk
        self._topic_mark = work.topics[0].encode()
        count = max(1, len(each) // work.chunk)
        self.chunks = [
            b"".join(each[(c * work.chunk + i) % len(each)] for i in range(work.chunk))
            for c in range(count)
        ]
        spread = [count * index // work.connections for index in range(work.connections)]
        self.connections = [_Connection(work.port, self.chunks, turn) for turn in spread]

    def run(self) -> Loaded:
        limit = max(1, self.work.window // self.work.chunk)
        selector = selectors.EpollSelector()
        for connection in self.connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        self._pump(selector, limit, self.work.warm_up, [], at_least=0)
        latencies: list[float] = []
        cpu, began = proc.cpu_seconds(self.work.pid), time.perf_counter()
        chunks = self._pump(selector, limit, self.work.seconds, latencies, at_least=1)
        seconds = time.perf_counter() - began
        cpu = proc.cpu_seconds(self.work.pid) - cpu
        self._drain(selector)
        self._check()
        return _loaded(latencies, chunks * self.work.chunk, seconds, cpu)

    def _pump(
        self,
        selector: selectors.EpollSelector,
        limit: int,
        seconds: float,
        latencies: list[float],
        *,
        at_least: int,
    ) -> int:
        """For that long, and until at least so many chunks were answered."""
        chunks = 0
        end = time.perf_counter() + seconds
        for connection in self.connections:
            connection.fill(limit)
        while (now := time.perf_counter()) < end or chunks < at_least:
            if now > end + MOST_SECONDS:
                raise RuntimeError("no request was answered")
            for key, _ in selector.select(1):
                chunks += key.data.read(self.answer, latencies)
                key.data.fill(limit)
        return chunks

    def _drain(self, selector: selectors.EpollSelector) -> None:
        end = time.perf_counter() + MOST_SECONDS
        while any(connection.sent for connection in self.connections):
            if time.perf_counter() > end:
                raise RuntimeError("requests were left without an answer")
            for key, _ in selector.select(1):
                key.data.read(self.answer, [])
                key.data.fill(0)

    def _check(self) -> None:
        """Topic 0 got one record for each of its frames that was sent, and no error."""
        mine = [chunk.count(self._topic_mark) for chunk in self.chunks]
        sent = sum(
            count * times
            for connection in self.connections
            for count, times in zip(mine, connection.sent_chunks, strict=True)
        )
        _, offset = _produced_at(self.work.port, self.first)
        if offset != self.begin + 1 + sent:
            raise RuntimeError(f"{sent} records were sent, {offset - self.begin - 1} were stored")


def _pipelined(work: Pipelined) -> Loaded:
    return _Generator(work).run()


def _one_by_one(work: OneByOne) -> Loaded:
    each = _frames([work.topic], work.acks, at_least=64)
    with connect(work.port) as connection:
        _repeat(connection, each, work.warm_up)
        return _repeat(connection, each, work.seconds)


def _ping(work: Ping) -> Loaded:
    with connect(work.port) as connection:
        return _repeat(connection, [frames.metadata_request()], work.seconds)


def _repeat(connection: socket.socket, each: list[bytes], seconds: float) -> Loaded:
    connection.sendall(each[0])
    size = len(frames.receive(connection)) + 4
    turns = itertools.cycle(each)
    latencies = []
    now = began = time.perf_counter()
    while now < began + seconds:
        connection.sendall(next(turns))
        left = size
        while left:
            data = connection.recv(left)
            if not data:
                raise ConnectionError("the broker closed the connection")
            left -= len(data)
        then, now = now, time.perf_counter()
        latencies.append(now - then)
    return _loaded(latencies, len(latencies), now - began, 0.0)


if __name__ == "__main__":
    main((Pipelined, _pipelined), (OneByOne, _one_by_one), (Ping, _ping))
