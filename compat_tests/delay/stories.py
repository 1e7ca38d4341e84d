"""What the stories of delayed messages share: one batch from each client, and readers.

    sent = [Sent(b"now"), Sent(b"later", headers=[("qmq-delay-ms", b"300")])]
    offsets = SEND["confluent"](bootstrap, topic, sent, codec="zstd")
    for message in READ["aiokafka"](bootstrap, topic, 2): assert_not_early(message)

A `Sent` list goes out as one batch: which offsets stay empty depends on what is in one batch. The broker
and the stories use the same clock, so a story can check that nothing is early; lateness is not checked
here. When all that is due before some time must have come, a story sends a *last* message that is due
later and reads up to it: messages of a subject come in the order of their due times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonError

from compat_tests.support import DEADLINE, T0

Headers = list[tuple[str, bytes | None]]
DUE, CREATED = "qmq-due-ms", "qmq-created-ms"
REFUSED = (KafkaException, PythonError, AioError)
"""What a client raises when the broker refuses a batch."""
_LINGER_MS = 60_000
"""Nothing goes out before the flush: all in one batch."""


class Sent(NamedTuple):
    value: bytes | None
    headers: Headers = []  # noqa: RUF012 (nobody changes it)
    key: bytes | None = None
    timestamp: int = T0


class Read(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    seen: int
    """When the story got it, in ms."""

    @property
    def due(self) -> int:
        return int(dict(self.headers)[DUE] or b"")


class Send(Protocol):
    def __call__(
        self,
        bootstrap: str,
        topic: str,
        sent: list[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
        acks: str = "all",
    ) -> list[int]:
        """Sends one batch; returns the offset that the client reports for each record."""
        ...


def now() -> int:
    return int(time.time() * 1000)


def after(ms: int) -> Headers:
    return [("qmq-delay-ms", b"%d" % ms)]


def at(when: int) -> Headers:
    return [("qmq-deliver-at", b"%d" % when)]


def named(name: str) -> Headers:
    return [("qmq-delay-id", name.encode())]


def cancel(name: str) -> Headers:
    return [("qmq-delay-cancel", name.encode())]


def assert_not_early(message: Read) -> None:
    """By the broker's timestamp, and by the reader's clock."""
    assert message.timestamp >= message.due, "stamped before it was due"
    assert message.seen >= message.due, "read before it was due"


def as_delivered(sent: Sent, read: Read) -> bool:
    """Whether this is that message, with the headers that delivery removes and adds."""
    kept = [h for h in sent.headers if not h[0].startswith(("qmq-delay-", "qmq-deliver-at"))]
    added = [(DUE, b"%d" % read.due), (CREATED, b"%d" % sent.timestamp)]
    return (read.key, read.value, read.headers) == (sent.key, sent.value, kept + added)


# --- sending ---------------------------------------------------------------------------------------


def send_kafka_python(
    bootstrap: str,
    topic: str,
    sent: list[Sent],
    *,
    codec: str = "none",
    idempotent: bool = False,
    acks: str = "all",
) -> list[int]:
    writer = KafkaProducer(
        bootstrap_servers=bootstrap,
        linger_ms=_LINGER_MS,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=idempotent,
        acks=acks if acks == "all" else int(acks),
    )
    try:
        asked = [
            writer.send(topic, each.value, each.key, each.headers, 0, each.timestamp)
            for each in sent
        ]
        writer.flush(DEADLINE)
        return [future.get(DEADLINE).offset for future in asked]
    finally:
        writer.close(DEADLINE)


def send_aiokafka(
    bootstrap: str,
    topic: str,
    sent: list[Sent],
    *,
    codec: str = "none",
    idempotent: bool = False,
    acks: str = "all",
) -> list[int]:
    """As a batch made by hand: aiokafka has no flush that ends a linger."""

    async def send() -> list[int]:
        writer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks=acks if acks == "all" else int(acks),
        )
        await writer.start()
        try:
            batch = writer.create_batch()
            for each in sent:
                batch.append(
                    key=each.key,
                    value=each.value,
                    timestamp=each.timestamp,
                    headers=each.headers,
                )
            told = await (await writer.send_batch(batch, topic, partition=0))
        finally:
            await writer.stop()
        base = -1 if told is None else told.offset
        return [-1 if base < 0 else base + index for index in range(len(sent))]

    return asyncio.run(asyncio.wait_for(send(), 2 * DEADLINE))


def send_confluent(
    bootstrap: str,
    topic: str,
    sent: list[Sent],
    *,
    codec: str = "none",
    idempotent: bool = False,
    acks: str = "all",
) -> list[int]:
    writer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": _LINGER_MS,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "acks": acks,
        }
    )
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        offset = message.offset()
        offsets.append(-1 if offset is None else offset)

    # Otherwise the first messages wait for the topic and may be sent alone once it exists.
    writer.list_topics(topic, DEADLINE)
    for each in sent:
        given: dict[str, Any] = {"key": each.key, "headers": each.headers, "partition": 0}
        writer.produce(topic, each.value, timestamp=each.timestamp, on_delivery=told, **given)
    assert writer.flush(DEADLINE) == 0, "not answered in time"
    if errors:
        raise KafkaException(errors[0])
    return [max(offset, -1) for offset in offsets]


# --- reading ---------------------------------------------------------------------------------------


def read_kafka_python(bootstrap: str, topic: str, count: int, start: int = 0) -> list[Read]:
    reader = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    partition = PythonPartition(topic, 0)
    reader.assign([partition])
    reader.seek(partition, start)
    got: list[Read] = []
    end = time.monotonic() + DEADLINE
    try:
        while len(got) < count:
            assert time.monotonic() < end, f"only {len(got)} of {count} came"
            for records in reader.poll(1000).values():
                got += [
                    Read(r.offset, r.timestamp, r.key, r.value, list(r.headers), now())
                    for r in records
                ]
        assert reader.position(partition) >= got[-1].offset + 1
    finally:
        reader.close()
    return got


def read_aiokafka(bootstrap: str, topic: str, count: int, start: int = 0) -> list[Read]:
    async def read() -> list[Read]:
        reader = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False
        )
        await reader.start()
        try:
            partition = AioPartition(topic, 0)
            reader.assign([partition])
            reader.seek(partition, start)
            got = []
            for _ in range(count):
                r = await reader.getone()
                got.append(Read(r.offset, r.timestamp, r.key, r.value, list(r.headers), now()))
            return got
        finally:
            await reader.stop()

    return asyncio.run(asyncio.wait_for(read(), 2 * DEADLINE))


def read_confluent(bootstrap: str, topic: str, count: int, start: int = 0) -> list[Read]:
    reader = reading(bootstrap, topic, start)
    try:
        return [next_of(reader) for _ in range(count)]
    finally:
        reader.close()


def reading(bootstrap: str, topic: str, start: int = 0) -> Consumer:
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "delays", "enable.auto.commit": False}
    )
    reader.assign([TopicPartition(topic, 0, start)])
    return reader


def next_of(reader: Consumer) -> Read:
    message = reader.poll(DEADLINE)
    assert message is not None, "nothing came"
    if (error := message.error()) is not None:
        raise KafkaException(error)
    offset, key, value = message.offset(), message.key(), message.value()
    assert offset is not None
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    headers: Any = message.headers() or []
    return Read(offset, message.timestamp()[1], key, value, list(headers), now())


def up_to(bootstrap: str, topic: str, last: bytes, start: int = 0) -> list[Read]:
    """All messages before the one with this value, which has come or will come."""
    reader = reading(bootstrap, topic, start)
    try:
        return list(iter(lambda: _unless(next_of(reader), last), None))
    finally:
        reader.close()


def _unless(message: Read, last: bytes) -> Read | None:
    return None if message.value == last else message


SEND: dict[str, Send] = {
    "kafka_python": send_kafka_python,
    "aiokafka": send_aiokafka,
    "confluent": send_confluent,
}
READ: dict[str, Callable[[str, str, int], list[Read]]] = {
    "kafka_python": read_kafka_python,
    "aiokafka": read_aiokafka,
    "confluent": read_confluent,
}
