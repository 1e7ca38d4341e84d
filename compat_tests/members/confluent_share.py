"""A member of a share group that is librdkafka, through confluent-kafka's ShareConsumer.

It has no positions and no callbacks: it can take, run, stop, commit and close. A commit accepts what the
last poll gave.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from compat_tests.members.client import SECONDS, Record, Report, Told, record

OF_THE_GROUP = (
    "auto.offset.reset",
    "enable.auto.commit",
    "session.timeout.ms",
    "heartbeat.interval.ms",
)


class ConfluentShare:
    def __init__(self, _strategy: str, settings: dict[str, str], _told: Told) -> None:
        given = {name: value for name, value in settings.items() if name not in OF_THE_GROUP}
        self._consumer = ShareConsumer(
            {"log_level": 2, "share.acknowledgement.mode": "explicit", **given}
        )
        self._held: list[Message] = []

    def subscribe(self, topics: list[str], _pattern: str | None) -> None:
        self._consumer.subscribe(topics)

    def poll(self, seconds: float, _most: int, report: Report) -> list[Record]:
        records: list[Record] = []
        for message in self._consumer.poll(seconds):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            topic, offset, value = message.topic(), message.offset(), message.value()
            assert topic is not None
            assert offset is not None
            body = value if isinstance(value, bytes) else None
            self._held.append(message)
            records.append(record(topic, offset, message.timestamp()[1], body, message.headers()))
        report(records)
        return records

    def commit(self) -> None:
        held, self._held = self._held, []
        for message in held:
            self._consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        results: dict[Any, Any] = self._consumer.commit_sync(SECONDS)
        for error in results.values():
            if error is not None:
                raise KafkaException(error)

    def close(self) -> None:
        self._consumer.close()
