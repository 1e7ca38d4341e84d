"""Messages in and out of a subject for the tests of archive and replay, by clients that are not Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

DAY_MS = 86_400_000
T0 = (int(time.time() * 1000) // DAY_MS - 4) * DAY_MS
"""The beginning of a day, in ms: of this week, since retention takes what is older."""
SECONDS = 60.0


def produce(bootstrap: str, subject: str, values: Iterable[bytes | None], t0: int = T0) -> None:
    """Message number n has the time t0 + n, a key when n is odd, headers unless 3 divides n."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for n, value in enumerate(values):
        key = b"k%d" % n if n % 2 else None
        headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % n), ("none", None)]
        producer.produce(subject, value, key, headers=headers if n % 3 else [], timestamp=t0 + n)
    assert producer.flush(SECONDS) == 0


def held(bootstrap: str, subject: str) -> list[Any]:
    """All records of the subject."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    place = TopicPartition(subject, 0)
    consumer.assign([place])
    end = consumer.end_offsets([place])[place]
    records: list[Any] = []
    while consumer.position(place) < end:
        for found in consumer.poll(1000).values():
            records += found
    consumer.close()
    return records
