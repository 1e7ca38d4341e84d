"""Topics for a benchmark: made, written to and known to be served, before any clock runs."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from bench.load import frames
from bench.load.requests import connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator

_NOT_YET = {3, 5, 6}
"""Error codes of a Kafka broker that does not know the topic yet from its controller."""
_CREATE_VERSION = 6
_AT_ONCE = 500
_SECONDS = 300


def make(port: int, names: list[str]) -> None:
    """Creates the topics and writes one record to each."""
    with connect(port) as connection:
        connection.settimeout(_SECONDS)
        for some in _parts(names, _AT_ONCE):
            _create(connection, some)
        write(connection, names, frames.record_batch([b"first"]))


def write_each(port: int, names: list[str], records: int) -> None:
    """Writes records to each topic, one request for many topics, acks=all."""
    with connect(port) as connection:
        connection.settimeout(_SECONDS)
        for _ in range(records):
            write(connection, names, frames.record_batch([bytes(100)]))


def write(connection: socket.socket, names: list[str], batch: bytes) -> None:
    end = time.monotonic() + _SECONDS
    left = names
    while left:
        refused = []
        for some in _parts(left, _AT_ONCE):
            refused += _write(connection, some, batch)
        if refused and time.monotonic() > end:
            raise RuntimeError(f"{len(refused)} topics are not served, {refused[0]} among them")
        if refused:
            time.sleep(0.1)
        left = refused


def _create(connection: socket.socket, names: list[str]) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in names
    ]
    request: Any = CreateTopicsRequest(
        topics=topics, timeout_ms=60_000, validate_only=False, version=_CREATE_VERSION
    )
    answer = _call(connection, request, CreateTopicsResponse[_CREATE_VERSION])
    for topic in answer.topics:
        if topic.error_code:
            raise RuntimeError(f"{topic.name} was not made: {topic.error_message}")


def _write(connection: socket.socket, names: list[str], batch: bytes) -> list[str]:
    """Returns the topics that are not served yet."""
    topic = ProduceRequest.TopicProduceData
    data = [
        topic(name=name, partition_data=[topic.PartitionProduceData(index=0, records=batch)])
        for name in names
    ]
    request: Any = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=60_000,
        topic_data=data,
        version=frames.PRODUCE_VERSION,
    )
    answer = _call(connection, request, ProduceResponse[frames.PRODUCE_VERSION])
    refused = []
    for topic in answer.responses:
        code = topic.partition_responses[0].error_code
        if code in _NOT_YET:
            refused.append(topic.name)
        elif code:
            raise RuntimeError(f"Produce to {topic.name} was answered with error code {code}")
    return refused


def _call(connection: socket.socket, request: Any, response: Any) -> Any:
    request.with_header(correlation_id=0, client_id="bench")
    connection.sendall(request.encode(header=True, framed=True))
    return response.decode(frames.receive(connection), header=True)


def _parts(names: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while some := list(islice(rest, size)):
        yield some
