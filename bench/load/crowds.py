"""Clients that come in thousands and go together: what they leave behind is the broker's to clear away.

Frames are built by hand, as in hostile.py, which runs these.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from bench.load import frames
from bench.load.wire import array, compact, frame, text, uvarint

if TYPE_CHECKING:
    from bench.load.hostile import Clients

SESSION_MS = 6_000
METADATA_VERSION = 12
RELEASE = 2
LOCKS = 2_000
"""Messages of a topic that a member of a share group may hold."""
_WINDOW = 100


def join_group(group: str, topic: str, version: int = 2) -> bytes:
    """The join of a new member that reads a topic."""
    subscription = struct.pack(">h", 0) + array(1, text(topic)) + struct.pack(">i", 0)
    body = text(group) + struct.pack(">ii", SESSION_MS, 60_000) + text("")
    if version >= 5:
        body += struct.pack(">h", -1)
    protocol = text("range") + struct.pack(">i", len(subscription)) + subscription
    return frame(11, version, body + text("consumer") + array(1, protocol))


def share_heartbeat(group: str, member: str, topics: list[str]) -> bytes:
    names = uvarint(len(topics) + 1) + b"".join(map(compact, topics))
    body = compact(group) + compact(member) + struct.pack(">i", 0) + b"\0" + names + b"\0"
    return frame(76, 1, body, flexible=True)


def share_fetch(
    group: str, member: str, epoch: int, topics: list[bytes], *, wait_ms: int = 0, acks: bytes = b""
) -> bytes:
    """`acks`: the batches of each topic, with their count before them."""
    body = compact(group) + compact(member)
    body += struct.pack(">iiiiii", epoch, wait_ms, 1, 50 << 20, LOCKS, LOCKS)
    body += uvarint(len(topics) + 1)
    for topic_id in topics:
        body += topic_id + b"\2" + struct.pack(">i", 0) + (acks or b"\1") + b"\0" + b"\0"
    return frame(78, 1, body + b"\1" + b"\0", flexible=True)


def batches(count: int, stride: int, kind: int) -> bytes:
    """Acknowledgements of single messages, so many, each so far behind the one before."""
    one = struct.Struct(">qqBbB")
    return uvarint(count + 1) + b"".join(
        one.pack(first, first, 2, kind, 0) for first in range(0, count * stride, stride)
    )


def topic_ids(port: int, names: list[str]) -> list[bytes]:
    asked = MetadataRequest.MetadataRequestTopic
    request: Any = MetadataRequest(
        topics=[asked(name=name) for name in names],
        allow_auto_topic_creation=True,
        version=METADATA_VERSION,
    )
    request.with_header(correlation_id=0, client_id="crowd")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request.encode(header=True, framed=True))
        answer: Any = MetadataResponse[METADATA_VERSION].decode(
            frames.receive(connection), header=True
        )
    found = {topic.name: topic.topic_id.bytes for topic in answer.topics}
    return [found[name] for name in names]


def call(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    return frames.receive(connection)


@contextmanager
def many(clients: Clients, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as held:
        yield [held.enter_context(clients.connect()) for _ in range(count)]


def join_many(clients: Clients, groups: int, members: int) -> None:
    """Members that never come back, of so many groups each."""
    names = [f"crowd-{index}" for index in range(groups)] * members
    with clients.connect() as connection:
        for begin in range(0, len(names), _WINDOW):
            some = names[begin : begin + _WINDOW]
            connection.sendall(b"".join(join_group(name, clients.work.topic) for name in some))
            for _ in some:
                frames.receive(connection)
                clients.requests += 1


def lose_shares(clients: Clients, count: int) -> None:
    """Members of one share group that hold messages and wait for more; they all close at once."""
    topic = clients.work.topic
    ids = topic_ids(clients.work.port, [topic])
    with many(clients, count) as held:
        for index, connection in enumerate(held):
            call(connection, share_heartbeat("crowd", f"member-{index}", [topic]))
        for index, connection in enumerate(held):
            call(connection, share_fetch("crowd", f"member-{index}", 0, ids))
        for index, connection in enumerate(held):
            connection.sendall(share_fetch("crowd", f"member-{index}", 1, [], wait_ms=30_000))
        time.sleep(2)
    clients.requests = count


def close_with_fragments(clients: Clients, topics: int) -> None:
    """A share member that holds every second message of some topics, one by one, and closes."""
    names = [f"fragments-{index}" for index in range(topics)]
    ids = topic_ids(clients.work.port, names)
    with clients.connect() as connection:
        batch = frames.record_batch([b"x"] * 2 * LOCKS)
        call(connection, share_heartbeat("fragments", "m", names))
        call(connection, share_fetch("fragments", "m", 0, ids))
        for name in names:
            call(connection, frames.produce_request(name, batch, -1))
        epoch = 1
        for _ in clients.again():
            call(connection, share_fetch("fragments", "m", epoch, ids))
            released = batches(LOCKS // 2, 2, RELEASE)
            call(connection, share_fetch("fragments", "m", epoch + 1, ids, acks=released))
            epoch += 2
            clients.requests += 1
            time.sleep(0.5)


def acknowledge_much(clients: Clients, count: int) -> None:
    """So many acknowledgements of one topic, each of one message, most of them never given."""
    topic = clients.work.topic
    ids = topic_ids(clients.work.port, [topic])
    with clients.connect() as connection:
        call(connection, share_heartbeat("acks", "m", [topic]))
        call(connection, share_fetch("acks", "m", 0, ids))
        epoch = 1
        for _ in clients.again():
            acks = batches(count, 1, RELEASE)
            call(connection, share_fetch("acks", "m", epoch, ids, acks=acks))
            epoch += 1
            clients.requests += 1


def come_and_go(clients: Clients, count: int) -> None:
    """So many connections that stay for a while; then a time without any, in which garbage is collected."""
    with many(clients, count) as held:
        for connection in held:
            call(connection, frames.metadata_request())
        clients.requests = count
        time.sleep(5)
    time.sleep(30 + clients.work.seconds)


def join_large_names(clients: Clients, count: int) -> None:
    """Joins of groups with names of 32 kB, which are never repeated with the member id that they get."""
    with clients.connect() as connection:
        for index in range(count):
            group = f"{index:06}" + "x" * 32_700
            call(connection, join_group(group, clients.work.topic, version=5))
            clients.requests += 1
