"""Workers of a group that can say of a message that it failed: the same three steps with each client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.serializer import Serializer

from compat_tests.support import DEADLINE
from kumquat.consumer import reject, retry


class Got(NamedTuple):
    value: str
    attempt: int
    at: float
    record: Any
    """The client's own."""


def got(value: bytes | None, headers: Any, record: Any) -> Got:
    attempt = dict(headers or ()).get("qmq-attempt", b"1")
    return Got((value or b"").decode(), int(attempt), time.time(), record)


class Worker(Protocol):
    def take(self, seconds: float) -> list[Got]:
        """What comes within this time, perhaps nothing."""

    def is_member(self) -> bool:
        """Whether it has been given the topic."""

    def retry(self, what: Got, **how: Any) -> None: ...
    def reject(self, what: Got, reason: object) -> None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class _Serializer(Serializer):  # type: ignore[misc]
    """kafka-python takes no plain function any more."""

    def __init__(self, function: Callable[[Any], bytes]) -> None:
        self._function = function

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return self._function(data)


class KafkaPython:
    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self._group = group
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        for name in settings.keys() & {"key_serializer", "value_serializer"}:
            settings[name] = _Serializer(settings[name])
        settings = {"enable_idempotence": False, **settings}
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)

    def take(self, seconds: float) -> list[Got]:
        found = self._consumer.poll(timeout_ms=int(seconds * 1000))
        return [got(r.value, r.headers, r) for records in found.values() for r in records]

    def is_member(self) -> bool:
        return bool(self._consumer.assignment())

    def retry(self, what: Got, **how: Any) -> None:
        retry(self._producer, self._group, what.record, **how)

    def reject(self, what: Got, reason: object) -> None:
        reject(self._producer, self._group, what.record, reason)

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


class Confluent:
    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self._group = group
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([topic])
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})

    def take(self, seconds: float) -> list[Got]:
        found = self._consumer.consume(500, seconds)
        assert not any(message.error() for message in found)
        return [got(message.value(), message.headers(), message) for message in found]

    def is_member(self) -> bool:
        return bool(self._consumer.assignment())

    def retry(self, what: Got, **how: Any) -> None:
        retry(self._producer, self._group, what.record, **how)

    def reject(self, what: Got, reason: object) -> None:
        reject(self._producer, self._group, what.record, reason)

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()
        self._producer.flush(DEADLINE)


class Aiokafka:
    """Its loop runs in a thread, so that it says it is there whatever the test does."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self._group = group
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

        async def start() -> tuple[Any, Any]:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
            await consumer.start()
            await producer.start()
            return consumer, producer

        self._consumer, self._producer = self._run(start())

    def _run(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(DEADLINE)

    def take(self, seconds: float) -> list[Got]:
        found = self._run(self._consumer.getmany(timeout_ms=int(seconds * 1000)))
        return [got(r.value, r.headers, r) for records in found.values() for r in records]

    def is_member(self) -> bool:
        return bool(self._consumer.assignment())

    def retry(self, what: Got, **how: Any) -> None:
        self._run(retry(self._producer, self._group, what.record, **how))

    def reject(self, what: Got, reason: object) -> None:
        self._run(reject(self._producer, self._group, what.record, reason))

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def close(self) -> None:
        self._run(self._consumer.stop())
        self._run(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()


WORKERS: dict[str, Any] = {
    "aiokafka": Aiokafka,
    "confluent": Confluent,
    "kafka-python": KafkaPython,
}
