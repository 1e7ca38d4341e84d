"""The throughput client: librdkafka through confluent-kafka, in a process of its own.

It reads the broker's CPU time itself, at the edges of the measured part, so that warm-up and what
comes before and after are not in it. The settings are those of a producer made for throughput, the
same for every broker; messages go in lists, since a Python call for each would make the client
the limit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.brokers import proc
from bench.load.child import Child, main

BATCH_BYTES = 1_000_000
_LIST = 1000
_QUEUED = 200_000


@dataclass(frozen=True)
class Produce:
    bootstrap: str
    pid: int
    topic: str
    records: int
    size: int
    acks: str
    codec: str = "none"
    warm_up: int = 0
    batch_bytes: int = BATCH_BYTES


@dataclass(frozen=True)
class Consume:
    bootstrap: str
    pid: int
    topic: str
    records: int
    size: int
    warm_up: int = 0


@dataclass(frozen=True)
class Done:
    seconds: float
    cpu_seconds: float
    records: int
    size: int

    @property
    def megabytes_per_second(self) -> float:
        return self.records * self.size / self.seconds / 1e6

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_per_gigabyte(self) -> float:
        return self.cpu_seconds / (self.records * self.size / 1e9)


def start(work: Produce | Consume) -> Child[Done]:
    return Child("bench.load.client", work, Done)


def run(work: Produce | Consume) -> Done:
    return start(work).finish()


def _producer(work: Produce) -> Producer:
    return Producer(
        {
            "bootstrap.servers": work.bootstrap,
            "acks": work.acks,
            "compression.type": work.codec,
            "linger.ms": 5,
            "batch.size": work.batch_bytes,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": _QUEUED * 2,
            "queue.buffering.max.kbytes": 1 << 20,
            "message.max.bytes": 1_000_000,
        }
    )


def _payloads(work: Produce) -> list[dict[str, bytes]]:
    """Values that differ and that a codec compresses to about half, like text."""
    words = [f"{index * 2_654_435_761 % (1 << 32):08x}".encode() for index in range(4096)]
    made = []
    for index in range(_LIST):
        start = index * 37
        value = b"".join(words[(start + step * step) % 4096] for step in range(work.size // 8 + 1))
        made.append({"value": value[: work.size]})
    return made


def _send(producer: Producer, work: Produce, payloads: list[dict[str, bytes]], count: int) -> None:
    for _ in range(count // _LIST):
        while len(producer) > _QUEUED:
            producer.poll(0.001)
        producer.produce_batch(work.topic, payloads, partition=0)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} messages were not acknowledged")


def _produce(work: Produce) -> Done:
    producer, payloads = _producer(work), _payloads(work)
    _send(producer, work, payloads, work.warm_up)
    cpu, began = proc.cpu_seconds(work.pid), time.perf_counter()
    _send(producer, work, payloads, work.records)
    seconds = time.perf_counter() - began
    sent = work.records // _LIST * _LIST
    return Done(seconds, proc.cpu_seconds(work.pid) - cpu, sent, work.size)


def _consume(work: Consume) -> Done:
    # Another consumer warms up: librdkafka takes a third of a second to be assigned again.
    if work.warm_up:
        _read(work, work.warm_up).close()
    cpu, began = proc.cpu_seconds(work.pid), time.perf_counter()
    consumer = _read(work, work.records)
    seconds = time.perf_counter() - began
    done = Done(seconds, proc.cpu_seconds(work.pid) - cpu, work.records, work.size)
    consumer.close()
    return done


def _read(work: Consume, count: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": work.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 4 << 20,
            "fetch.max.bytes": 64 << 20,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 256 << 10,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(work.topic, 0, 0)])
    _take(consumer, count)
    return consumer


def _take(consumer: Consumer, count: int) -> None:
    got = 0
    while got < count:
        messages = consumer.consume(min(10_000, count - got), timeout=30)
        if not messages:
            raise RuntimeError(f"only {got} of {count} messages came")
        for message in (messages[0], messages[-1]):
            if (error := message.error()) is not None:
                raise RuntimeError(str(error))
        got += len(messages)


if __name__ == "__main__":
    main((Produce, _produce), (Consume, _consume))
