"""A Kafka connection by hand: for what no client can be made to send, and to prepare topics for stories.

Requests and answers are kafka-python's message classes at a chosen version. Nothing is retried and
nothing is hidden: `call` returns the answer as it came, with its error codes.
"""

from __future__ import annotations

import itertools
import socket
import struct
from typing import TYPE_CHECKING, Any, Self

from kafka.protocol.admin import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record import MemoryRecordsBuilder

from compat_tests.support import DEADLINE, T0, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

Message = Any
"""kafka-python's messages carry no types."""


class Wire:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE)
        self._correlation = itertools.count(1)
        self._awaited: list[Message] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, request: Message, version: int) -> Message:
        self.send(request, version)
        return self.receive()

    def send(self, request: Message, version: int, *, answered: bool = True) -> None:
        request.API_VERSION = version
        request.with_header(correlation_id=next(self._correlation), client_id="wire")
        self.socket.sendall(request.encode(header=True, framed=True))
        if answered:
            self._awaited.append(request)

    def receive(self) -> Message:
        """The answer to the oldest request that has none yet."""
        request = self._awaited.pop(0)
        answer = ResponseClassRegistry.get_response_class(request.header).decode(
            self.read_frame(), header=True
        )
        assert answer.header.correlation_id == request.header.correlation_id
        return answer

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            chunk = self.socket.recv(size - len(parts))
            if not chunk:
                raise ConnectionError("closed by the broker")
            parts += chunk
        return bytes(parts)

    def closed_by_broker(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


def create_topic(
    wire: Wire, name: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> Message:
    """Made, and visible with a leader; gives CreateTopics' answer for it."""
    creatable = CreateTopicsRequest.CreatableTopic
    pairs = [
        creatable.CreatableTopicConfig(name=key, value=value)
        for key, value in (configs or {}).items()
    ]
    asked = creatable(name=name, num_partitions=partitions, replication_factor=1, configs=pairs)
    request = CreateTopicsRequest(topics=[asked], timeout_ms=10_000, validate_only=False)
    made = wire.call(request, 7).topics[0]
    assert made.error_code == 0, (made.error_code, made.error_message)
    eventually(lambda: _is_served(wire, name), f"{name} is served")
    return made


def delete_topic(wire: Wire, name: str) -> None:
    """Deleted, and gone from Metadata."""
    state = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=None)
    request = DeleteTopicsRequest(topics=[state], timeout_ms=10_000)
    assert wire.call(request, 6).responses[0].error_code == 0
    eventually(lambda: describe_topic(wire, name).error_code == 3, f"{name} is gone")


def describe_topic(wire: Wire, name: str) -> Message:
    asked = MetadataRequest.MetadataRequestTopic(name=name, topic_id=None)
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    return wire.call(request, 12).topics[0]


def retried(ask: Callable[[], Message], *codes: int) -> Message:
    """The first answer without any of these error codes, after which a client asks again."""
    answers: list[Message] = []

    def settled() -> bool:
        answers[:] = [ask()]
        return answers[0].error_code not in codes

    eventually(settled, f"an answer without the error codes {codes}")
    return answers[0]


def _is_served(wire: Wire, name: str) -> bool:
    """Kafka shows a topic in Metadata a little before its partitions take requests."""
    visible = describe_topic(wire, name).error_code == 0
    return visible and listed(wire.call(list_offsets(name, -1), 7))[0] == 0


def batch(
    *values: bytes | None,
    codec: int = 0,
    timestamps: list[int] | None = None,
    producer: tuple[int, int, int] | None = None,
) -> bytearray:
    """A record batch; `producer` is id, epoch and base sequence."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 24)
    for index, value in enumerate(values):
        when = timestamps[index] if timestamps else T0 + index
        builder.append(timestamp=when, key=None, value=value)
    if producer is not None:
        builder.set_producer_state(*producer, is_transactional=False)
    builder.close()
    made = bytearray(builder.buffer())
    assert made[22] & 7 == codec, "kafka-python leaves alone what does not shrink: give it more"
    return made


def produce(
    topic: str, records: bytes | bytearray, *, acks: int = -1, partition: int = 0
) -> Message:
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            data(
                name=topic,
                partition_data=[data.PartitionProduceData(index=partition, records=bytes(records))],
            )
        ],
    )


def produced(answer: Message) -> Message:
    """The one partition of a Produce answer."""
    return answer.responses[0].partition_responses[0]


def fetch(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 26,
    partition_max_bytes: int = 1 << 26,
) -> Message:
    asked = FetchRequest.FetchTopic
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            asked(
                topic=topic,
                partitions=[
                    asked.FetchPartition(
                        partition=0,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


def fetched(answer: Message) -> Message:
    """The one partition of a Fetch answer."""
    return answer.responses[0].partitions[0]


def list_offsets(topic: str, timestamp: int) -> Message:
    asked = ListOffsetsRequest.ListOffsetsTopic
    partition = asked.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=timestamp
    )
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[asked(name=topic, partitions=[partition])]
    )


def listed(answer: Message) -> tuple[int, int, int]:
    """Error code, timestamp and offset of the one partition of a ListOffsets answer."""
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.timestamp, partition.offset
