"""A broker in this process, on a real socket, and a client that speaks raw frames.

    def test_something(tmp_path):
        async def check(served: Served) -> None:
            async with served.client() as client:
                answer = await client.call(MetadataRequest(topics=None), 12)
        serve(check, tmp_path)

Time is Trio's mock clock and stands still unless the test moves it (`served.clock.jump`): no test waits
for a time-out. `files` is a file layer that can hold or fail writes and syncs.
"""

from __future__ import annotations

import errno
import itertools
import os
import struct
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from select import select
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import kumquat.gateway.handlers  # noqa: F401  (registers every API)
from kumquat.core import pools
from kumquat.core.logs.disk.files import RealFiles
from kumquat.core.logs.tests.batches import batch
from kumquat.gateway.broker import Broker
from kumquat.gateway.config.options import BrokerConfig, Listener
from kumquat.gateway.net.acceptor import Acceptor, bind
from kumquat.gateway.wire import (
    RESPONSES,
    CreatableTopic,
    CreateTopicsRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kumquat.gateway.wire.frame import response_header

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from kumquat.core.logs.disk.files import Buffer

DEADLINE = 120.0


class TroubledFiles(RealFiles):
    """Real files whose reads and writes can fail, and whose syncs can fail or be held."""

    def __init__(self) -> None:
        self.read_trouble: dict[str, int] = {}
        """The calls of readers that fail (`open`, `preadv_into`), and with which error."""
        self.write_error: int | None = None
        self.sync_error: int | None = None
        self.write_seconds = 0.0
        """How long a write takes, by the clock of these files: a busy machine makes no disk slow."""
        self._seconds = 0.0
        self.held = 0
        """How many syncs and writes are held at this moment."""
        self._counting = threading.Lock()
        self._go = threading.Event()
        self._go.set()
        self._write = threading.Event()
        self._write.set()

    def clock(self) -> float:
        self._seconds += self.write_seconds
        return self._seconds

    def hold_writes(self) -> None:
        """Those of threads: a write of the event loop would hold up the test itself."""
        self._write.clear()

    def release_writes(self) -> None:
        self._write.set()

    def hold_syncs(self) -> None:
        self._go.clear()

    def release_syncs(self) -> None:
        self._go.set()

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, readonly: bool = False
    ) -> int:
        self._trouble("open")
        return super().open(path, create=create, exclusive=exclusive, readonly=readonly)

    def preadv_into(
        self, fd: int, buffer: bytearray | memoryview, offset: int, *, nowait: bool
    ) -> int:
        self._trouble("preadv_into")
        return super().preadv_into(fd, buffer, offset, nowait=nowait)

    def _trouble(self, call: str) -> None:
        if call in self.read_trouble:
            raise OSError(self.read_trouble[call], os.strerror(self.read_trouble[call]))

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self.write_error is not None:
            raise OSError(self.write_error, os.strerror(self.write_error))
        if threading.current_thread() is not threading.main_thread():
            self._hold(self._write)
        return super().pwritev(fd, buffers, offset)

    def _hold(self, go: threading.Event) -> None:
        with self._counting:
            self.held += 1
        try:
            assert go.wait(DEADLINE)
        finally:
            with self._counting:
                self.held -= 1

    def fdatasync(self, fd: int) -> None:
        self._hold(self._go)
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().fdatasync(fd)


NO_SPACE = errno.ENOSPC
IO_ERROR = errno.EIO


class Client:
    """One connection, by hand."""

    def __init__(self, stream: trio.SocketStream, client_id: str) -> None:
        self.stream = stream
        self._client_id = client_id.encode()
        self._correlation = itertools.count(1)
        self._awaited: list[tuple[int, int, int]] = []
        self._received = bytearray()

    def frame(self, request: Any, version: int, *, answered: bool = True) -> bytes:
        """The bytes of a request; its answer is expected in turn."""
        correlation = next(self._correlation)
        if answered:
            self._awaited.append((request.api_key, version, correlation))
        head = struct.pack(">hhih", request.api_key, version, correlation, len(self._client_id))
        tags = b"\0" if request.is_flexible(version) else b""
        body = b"".join(type(request).encode(request, version))
        rest = head + self._client_id + tags + body
        return struct.pack(">i", len(rest)) + rest

    async def send(self, *requests: tuple[Any, int]) -> None:
        """Send requests in one go."""
        await self.stream.send_all(b"".join(self.frame(*request) for request in requests))

    async def call(self, request: Any, version: int) -> Any:
        await self.send((request, version))
        return await self.receive()

    async def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        key, version, correlation = self._awaited.pop(0)
        data = await self.receive_frame()
        head = response_header(key, version, correlation)
        assert data[: len(head)] == head, "this is the answer to another request"
        answer, end = RESPONSES[key].decode(data, version, len(head))
        assert end == len(data)
        return answer

    async def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(size)

    @property
    def has_answer(self) -> bool:
        """Whether the broker has sent something that was not received yet."""
        return bool(self._received or select([self.stream.socket], [], [], 0)[0])

    async def closed(self) -> bool:
        """Wait for the broker to end the connection; False if it sends something instead."""
        try:
            return await self.stream.receive_some() == b""
        except trio.BrokenResourceError:
            return True

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            more = await self.stream.receive_some()
            if not more:
                raise trio.EndOfChannel("closed by the broker")
            self._received += more
        data = bytes(self._received[:size])
        del self._received[:size]
        return data


@dataclass
class Served:
    """A running broker."""

    broker: Broker
    acceptor: Acceptor
    port: int
    clock: MockClock
    files: TroubledFiles

    @asynccontextmanager
    async def client(self, client_id: str = "tests") -> AsyncIterator[Client]:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        async with stream:
            yield Client(stream, client_id)

    async def create(self, name: str, **configs: str) -> None:
        await self.broker.subjects.create(name, configs)

    async def settled(self) -> None:
        """Until the broker has nothing left to do but to wait, and neither have its threads; but for the
        syncs that are held."""
        while True:
            await wait_all_tasks_blocked(0.01)
            if self._threads_at_work() <= self.files.held:
                return

    def _threads_at_work(self) -> int:
        logs = (self.broker.log.log, self.broker.actions.log)
        syncing = [log for log in logs if log.commit.under_way]
        default = trio.to_thread.current_default_thread_limiter().borrowed_tokens
        sql = self.broker.registry.thread.borrowed_tokens
        return len(syncing) + default + sql + pools.at_work()


def serve(check: Callable[[Served], Awaitable[None]], folder: Path, **options: Any) -> None:
    """Run a check against a broker with these options; fail if it hangs."""
    files = TroubledFiles()
    config = BrokerConfig(
        listeners=(Listener("127.0.0.1", 0),), log_dirs=folder / "data", **options
    )
    clock = MockClock()

    async def main() -> None:
        broker = Broker.open(config, files)
        sockets = bind(config.listeners)
        acceptor = Acceptor(broker)
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            async with trio.open_nursery() as serving:
                await serving.start(acceptor.run, sockets)
                port = sockets[0].getsockname()[1]
                served = Served(broker, acceptor, port, clock, files)
                await check(served)
                files.release_syncs()
                serving.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
        broker.close()

    async def watched() -> None:
        # The mock clock stands still, so a check that hangs is ended from outside.
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            watchdog = threading.Timer(DEADLINE, token.run_sync_soon, (scope.cancel,))
            watchdog.start()
            try:
                await main()
            finally:
                watchdog.cancel()
                files.release_syncs()
        assert not scope.cancelled_caught, "the check hangs"

    trio.run(watched, clock=clock)


def produce(
    topic: str, *values: bytes, acks: int = -1, records: bytes | None = None
) -> ProduceRequest:
    data = bytes(batch(*values)) if records is None else records
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=data)]
            )
        ],
    )


def create_topic(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic])
