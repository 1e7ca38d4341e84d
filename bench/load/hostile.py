"""Clients that ask for too much, each kind for some seconds, in a process of their own.

Frames are built by hand, in old versions of the protocol where those are enough. If a request is refused,
the broker closes the connection; the client then connects and tries again, so a broker that refuses is
attacked for as long as one that does not.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import zstandard
from crc32c import crc32c

from bench.load import crowds, frames
from bench.load.child import Child, main
from bench.load.probe import fetch_request
from bench.load.wire import array, compact, frame, text, uvarint

BIG = 100_000_000
EMPTY = "empty"
"""A topic with almost nothing in it."""


@dataclass(frozen=True)
class Attack:
    port: int
    kind: str
    topic: str
    seconds: float


@dataclass(frozen=True)
class Attacked:
    requests: int
    closed: int


def start(work: Attack) -> Child[Attacked]:
    return Child("bench.load.hostile", work, Attacked)


# --- single requests --------------------------------------------------------------------------


def offset_fetch(count: int) -> bytes:
    return frame(9, 5, text("g") + array(1, text("t") + array(count, bytes(4 * count))))


def metadata(count: int) -> bytes:
    names = b"".join(text(f"n{index}") for index in range(count))
    return frame(3, 4, array(count, names) + b"\0")


def find_coordinator(count: int) -> bytes:
    names = b"".join(
        uvarint(len(name) + 1) + name for name in (b"n%d" % index for index in range(count))
    )
    return frame(10, 4, b"\0" + uvarint(count + 1) + names + b"\0", flexible=True)


def describe_groups(count: int) -> bytes:
    return frame(15, 0, array(count, b"".join(text(f"n{index}") for index in range(count))))


def offset_commit(count: int) -> bytes:
    partitions = struct.pack(">iqh", 0, 5, -1) * count
    head = text("g") + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    return frame(8, 2, head + array(1, text("hostile") + array(count, partitions)))


def delete_records(count: int) -> bytes:
    partitions = struct.pack(">iq", 0, 0) * count
    body = array(1, text("hostile") + array(count, partitions)) + struct.pack(">i", 1000)
    return frame(21, 0, body)


def create_topics(count: int, *, validate: bool, prefix: str = "made") -> bytes:
    topics = b"".join(
        text(f"{prefix}-{index}") + struct.pack(">ihii", 1, 1, 0, 0) for index in range(count)
    )
    return frame(19, 2, array(count, topics) + struct.pack(">ib", 1000, validate))


def describe_configs(count: int) -> bytes:
    resources = (b"\x04" + text("1") + struct.pack(">i", -1)) * count
    return frame(32, 1, array(count, resources) + b"\1")


def join_group(metadata: int, version: int = 2, group: str = "hostile") -> bytes:
    body = text(group) + struct.pack(">ii", 30_000, 60_000) + text("")
    if version >= 5:
        body += struct.pack(">h", -1)
    body += text("consumer") + array(
        1, text("range") + struct.pack(">i", metadata) + bytes(metadata)
    )
    return frame(11, version, body)


def header_tags(size: int) -> bytes:
    tags = uvarint(size // 2) + b"\x63\x00" * (size // 2)
    head = struct.pack(">hhih", 0, 9, 0, -1) + tags
    return struct.pack(">i", len(head) + 10) + head + bytes(10)


def body_tags(size: int) -> bytes:
    """A Produce whose tagged fields are all unknown."""
    tags = uvarint(size // 2) + b"\x63\x00" * (size // 2)
    return frame(0, 9, b"\0" + struct.pack(">hi", 1, 1000) + b"\1" + tags, flexible=True)


def heartbeat(group: str, member: str, pattern: str) -> bytes:
    body = compact(group) + compact(member) + struct.pack(">i", 0) + b"\0\0"
    body += struct.pack(">i", 60_000) + b"\0" + compact(pattern) + b"\0" + b"\1" + b"\0"
    return frame(68, 1, body, flexible=True)


def bomb(topic: str, codec: int, compressed: bytes) -> bytes:
    """A Produce of a batch that is small on the wire and large inside: one record, or so it says."""
    body = struct.pack(">hiqqqhii", codec, 0, 0, 0, -1, -1, -1, 1) + compressed
    head = struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body))
    return frames.produce_request(topic, head + body, -1)


def zeros_gzip(megabytes: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(megabytes)), packer.flush()])


def zeros_zstd(megabytes: int) -> bytes:
    return zstandard.compress(bytes(megabytes << 20))


# --- clients ----------------------------------------------------------------------------------


class Clients:
    """The connections of one attack, and what became of its requests."""

    def __init__(self, work: Attack) -> None:
        self.work = work
        self.ends = time.monotonic() + work.seconds
        self.requests = self.closed = 0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.work.port), timeout=30)

    def again(self) -> Iterator[None]:
        while time.monotonic() < self.ends:
            yield None

    def repeat(self, data: bytes) -> None:
        """Send a request and take its answer, again and again."""
        self.ends = time.monotonic() + self.work.seconds
        for _ in self.again():
            with suppress(OSError), self.connect() as connection:
                try:
                    for _ in self.again():
                        connection.sendall(data)
                        frames.receive(connection)
                        self.requests += 1
                except OSError:
                    self.closed += 1
            time.sleep(0.01)

    def hold(self, count: int, data: bytes) -> None:
        """Send the same on many connections, and read nothing."""
        self.ends = time.monotonic() + self.work.seconds
        held = [self.connect() for _ in range(count)]
        left = [memoryview(data)] * count
        for connection in held:
            connection.setblocking(False)
        for _ in self.again():
            for index, connection in enumerate(held):
                with suppress(BlockingIOError):
                    try:
                        left[index] = left[index][connection.send(left[index]) :] or left[index][:0]
                    except OSError as error:
                        if isinstance(error, BlockingIOError):
                            raise
                        self.closed += 1
                        held[index], left[index] = self.connect(), memoryview(data)
                        held[index].setblocking(False)
            time.sleep(0.001)
        self.requests = count
        for connection in held:
            connection.close()


def _bombs(clients: Clients, codec: int, compressed: bytes) -> None:
    """Forty connections with five such batches under way each."""
    data = bomb(clients.work.topic, codec, compressed)
    clients.ends = time.monotonic() + clients.work.seconds

    def send() -> None:
        for _ in clients.again():
            with suppress(OSError), clients.connect() as connection:
                connection.sendall(data * 5)
                for _ in range(5):
                    frames.receive(connection)
                    clients.requests += 1

    senders = [threading.Thread(target=send) for _ in range(40)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()


def _readers(clients: Clients) -> None:
    """Thirty that ask for 50 MB and read nothing."""
    clients.hold(30, fetch_request(clients.work.topic, 0, 50 << 20) * 3)


def _unfinished(clients: Clients) -> None:
    """Twenty frames of 100 MB, each without its last byte."""
    clients.hold(20, frame(0, 9, bytes(BIG))[:-1])


def _joins(clients: Clients) -> None:
    """Joins that are never repeated with the member id that they get."""
    with clients.connect() as connection:
        head = join_group(10, 5)
        client_id = b"x" * 30_000
        long = struct.pack(">i", len(head) - 4 + len(client_id)) + head[4:12]
        long += struct.pack(">h", len(client_id)) + client_id + head[14:]
        for _ in range(20_000):
            if time.monotonic() > clients.ends:
                break
            connection.sendall(long)
            frames.receive(connection)
            clients.requests += 1
    for _ in clients.again():
        time.sleep(0.1)


def _patterns(clients: Clients) -> None:
    """A hundred members with a long pattern each, then topics."""
    with clients.connect() as connection:
        for index in range(100):
            pattern = "|".join(f"{index}[a-z]*{part}(x|y)*" for part in range(200))
            connection.sendall(heartbeat("patterns", f"member-{index}", pattern))
            frames.receive(connection)
        clients.ends = time.monotonic() + clients.work.seconds
        for number in range(1000):
            if time.monotonic() > clients.ends:
                break
            connection.sendall(create_topics(1, validate=False, prefix=f"new-{number}"))
            frames.receive(connection)
            clients.requests += 1


def _polls(clients: Clients) -> None:
    """Long polls of clients that close at once."""
    usual = struct.pack(">iii", -1, 500, 1)
    endless = struct.pack(">iii", -1, 600_000, 1 << 30)
    data = fetch_request(EMPTY, 0).replace(usual, endless, 1)
    for _ in range(10_050):
        if time.monotonic() > clients.ends:
            break
        with clients.connect() as connection:
            connection.sendall(data)
        clients.requests += 1


KINDS: dict[str, Callable[[Clients], None]] = {
    "offset-fetch-100mb": lambda c: c.repeat(offset_fetch(BIG // 4)),
    "offset-fetch-40k": lambda c: c.repeat(offset_fetch(40_000)),
    "header-tags-100mb": lambda c: c.repeat(header_tags(BIG)),
    "body-tags-100mb": lambda c: c.repeat(body_tags(BIG)),
    "metadata-1m": lambda c: c.repeat(metadata(1_000_000)),
    "metadata-40k": lambda c: c.repeat(metadata(40_000)),
    "metadata-200k": lambda c: c.repeat(metadata(200_000)),
    "find-coordinator-40k": lambda c: c.repeat(find_coordinator(40_000)),
    "describe-groups-40k": lambda c: c.repeat(describe_groups(40_000)),
    "offset-commit-900k": lambda c: c.repeat(offset_commit(900_000)),
    "offset-commit-40k": lambda c: c.repeat(offset_commit(40_000)),
    "delete-records-40k": lambda c: c.repeat(delete_records(40_000)),
    "create-topics-2k": lambda c: c.repeat(create_topics(2_000, validate=False)),
    "validate-topics-20k": lambda c: c.repeat(create_topics(20_000, validate=True)),
    "describe-configs-20k": lambda c: c.repeat(describe_configs(20_000)),
    "join-50mb": lambda c: c.repeat(join_group(50_000_000)),
    "join-2mb": lambda c: c.repeat(join_group(2_000_000)),
    "joins-20k": _joins,
    "patterns-100": _patterns,
    "unfinished-20": _unfinished,
    "readers-30": _readers,
    "polls-10k": _polls,
    "zstd-60mb": lambda c: _bombs(c, 4, zeros_zstd(60)),
    "gzip-1gb": lambda c: _bombs(c, 1, zeros_gzip(1000)),
    "large-names-24k": lambda c: crowds.join_large_names(c, 24_000),
    "sessions-4k-groups": lambda c: crowds.join_many(c, groups=4_000, members=1),
    "sessions-4k-members": lambda c: crowds.join_many(c, groups=1, members=4_000),
    "lost-shares-2k": lambda c: crowds.lose_shares(c, 2_000),
    "fragments-20k": lambda c: crowds.close_with_fragments(c, topics=10),
    "acks-80k": lambda c: crowds.acknowledge_much(c, 80_000),
    "connections-10k": lambda c: crowds.come_and_go(c, 10_000),
}
"""By name: what is asked, and how much of it; k and m are thousands and millions of names or numbers."""
RESTARTED = ("sessions-4k-groups", "sessions-4k-members")
"""After these the broker is killed and started again: then all sessions end at the same time."""


def _attack(work: Attack) -> Attacked:
    clients = Clients(work)
    KINDS[work.kind](clients)
    return Attacked(clients.requests, clients.closed)


if __name__ == "__main__":
    main((Attack, _attack))
