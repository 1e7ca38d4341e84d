"""A member that is librdkafka, through confluent-kafka: classic or KIP-848."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from compat_tests.members.client import SECONDS, Record, Report, Told, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Message


class Confluent:
    STRATEGIES: ClassVar = {
        "range": "range",
        "cooperative": "cooperative-sticky",
        "roundrobin": "roundrobin",
    }
    SERVER_SIDE = ("session.timeout.ms", "heartbeat.interval.ms")

    def __init__(self, strategy: str, settings: dict[str, str], told: Told) -> None:
        settings = {name: value for name, value in settings.items() if name != "max.poll.records"}
        if settings.get("auto.offset.reset") == "none":
            settings["auto.offset.reset"] = "error"
        if strategy == "consumer":
            settings = {n: v for n, v in settings.items() if n not in self.SERVER_SIDE}
            settings["group.protocol"] = "consumer"
        else:
            settings["partition.assignment.strategy"] = self.STRATEGIES[strategy]
        self._consumer = Consumer({"log_level": 2, **settings})
        self._told = told
        self._report: Report = lambda _: None
        self._taken: list[Record] = []
        """What a poll that has not ended has got, and not reported."""

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        def tell(kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
            def callback(_: Consumer, parts: list[TopicPartition]) -> None:
                self._report_taken()
                self._told(kind, [part.topic for part in parts])

            return callback

        self._consumer.subscribe(
            ["^" + pattern] if pattern else topics,
            on_assign=tell("assigned"),
            on_revoke=tell("revoked"),
            on_lost=tell("lost"),
        )

    def poll(self, seconds: float, most: int, report: Report) -> list[Record]:
        self._taken = _records([self._consumer.poll(seconds)])
        if not self._taken:
            return []
        self._report = report
        got = self._taken
        if most > 1:
            more = _records(self._consumer.consume(most - 1, 0))
            got = got + more
            self._taken = self._taken + more
        self._report_taken()
        return got

    def _report_taken(self) -> None:
        """At the end of a poll, or when a callback comes between its two calls."""
        taken, self._taken = self._taken, []
        if taken:
            self._report(taken)

    def commit(self) -> None:
        try:
            self._raise(self._consumer.commit(asynchronous=False))
        except KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":  # librdkafka: nothing new to commit
                raise

    def commit_at(self, topic: str, offset: int, text: str) -> None:
        wanted = TopicPartition(topic, 0, offset, metadata=text)
        self._raise(self._consumer.commit(offsets=[wanted], asynchronous=False))

    @staticmethod
    def _raise(partitions: list[TopicPartition] | None) -> None:
        for partition in partitions or []:
            if partition.error is not None:
                raise KafkaException(partition.error)

    def committed(self, topic: str) -> int | None:
        (found,) = self._consumer.committed([TopicPartition(topic, 0)], SECONDS)
        self._raise([found])
        return None if found.offset == OFFSET_INVALID else found.offset

    def position(self, topic: str) -> int:
        (found,) = self._consumer.position([TopicPartition(topic, 0)])
        return int(found.offset)

    def seek(self, topic: str, where: str) -> None:
        named = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}
        offset = named[where] if where in named else int(where)
        self._consumer.seek(TopicPartition(topic, 0, offset))

    def ends(self, topic: str) -> tuple[int, int]:
        found = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS)
        assert found is not None
        return found

    def at(self, topic: str, timestamp: int) -> int | None:
        asked = TopicPartition(topic, 0, timestamp)
        (found,) = self._consumer.offsets_for_times([asked], SECONDS)
        return None if found.offset == OFFSET_END else found.offset

    def pause(self, topic: str) -> None:
        self._consumer.pause([TopicPartition(topic, 0)])

    def resume(self, topic: str) -> None:
        self._consumer.resume([TopicPartition(topic, 0)])

    def assignment(self) -> list[str]:
        return [part.topic for part in self._consumer.assignment()]

    def close(self) -> None:
        self._consumer.close()


def _records(messages: Iterable[Message | None]) -> list[Record]:
    records = []
    for message in messages:
        if message is None:
            continue
        if (error := message.error()) is not None:
            # A deleted topic is reported once; librdkafka goes on with the others, as Java does.
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise KafkaException(error)
        topic, offset, value = message.topic(), message.offset(), message.value()
        assert topic is not None
        assert offset is not None
        body = value if isinstance(value, bytes) else None
        records.append(record(topic, offset, message.timestamp()[1], body, message.headers()))
    return records
