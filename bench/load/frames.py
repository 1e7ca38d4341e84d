"""The few Kafka frames that the launchers and the load generators write and read by hand.

Frames are plain bytes, built once and sent many times.
Requests that are more than a header come from kafka-python's own schemas, so that nothing here
shares code with the broker under test.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.record import MemoryRecordsBuilder

_HEADER = struct.Struct(">ihhih")
PRODUCE_VERSION = 10


def metadata_request() -> bytes:
    """Metadata v1 for no topic: the smallest request that shows whether a broker serves."""
    return _HEADER.pack(14, 3, 1, 0, -1) + struct.pack(">i", 0)


def all_topics_request() -> bytes:
    """Metadata v12, as today's clients send it: the header's tags, null topics, two flags, tags."""
    body = bytes(5)
    return _HEADER.pack(10 + len(body), 3, 12, 0, -1) + body


def record_batch(values: list[bytes], codec: int = 0) -> bytes:
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 24)
    for value in values:
        builder.append(timestamp=None, key=None, value=value)
    builder.close()
    return bytes(builder.buffer())


def produce_request(topic: str, batch: bytes, acks: int, correlation_id: int = 0) -> bytes:
    partition = ProduceRequest.TopicProduceData.PartitionProduceData
    request: Any = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, partition_data=[partition(index=0, records=batch)]
            )
        ],
        version=PRODUCE_VERSION,
    )
    request.with_header(correlation_id=correlation_id, client_id="bench")
    return bytes(request.encode(header=True, framed=True))


def base_offset(answer: bytes) -> int:
    """Of a Produce answer with one partition, without its size; an error is raised."""
    decoded: Any = ProduceResponse[PRODUCE_VERSION].decode(answer, header=True)
    partition = decoded.responses[0].partition_responses[0]
    if partition.error_code:
        raise RuntimeError(f"Produce was answered with error code {partition.error_code}")
    return int(partition.base_offset)


def receive(connection: socket.socket) -> bytes:
    """One whole answer, without its size."""
    head = _exactly(connection, 4)
    return _exactly(connection, int.from_bytes(head, "big"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        chunk = connection.recv(size - len(parts))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        parts += chunk
    return bytes(parts)


def answers_metadata(port: int) -> bool:
    """True once the broker names at least one broker (Kafka listens before it can)."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(metadata_request())
            answer = receive(connection)
    except OSError:
        return False
    return int.from_bytes(answer[4:8], "big") > 0
