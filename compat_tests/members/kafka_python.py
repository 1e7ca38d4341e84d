"""A member that is kafka-python: range, roundrobin, its cooperative-sticky, or an assignor of its own."""

from __future__ import annotations

from typing import ClassVar

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.structs import OffsetAndMetadata

from compat_tests.members.client import Record, Report, Told, pythonic, record


class Custom(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """An assignor that no broker knows."""

    name = "custom"


class KafkaPython:
    STRATEGIES: ClassVar = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative": CooperativeStickyAssignor,
        "custom": Custom,
    }

    def __init__(self, strategy: str, settings: dict[str, str], told: Told) -> None:
        self._consumer = KafkaConsumer(
            partition_assignment_strategy=[self.STRATEGIES[strategy]], **pythonic(settings)
        )
        self._told = told

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        told = self._told

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
                told("revoked", [part.topic for part in revoked])

            def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
                told("assigned", [part.topic for part in assigned])

        self._consumer.subscribe(
            topics=() if pattern else topics, pattern=pattern, listener=Listener()
        )

    def poll(self, seconds: float, most: int, report: Report) -> list[Record]:
        # A poll that ends while a changed subscription is being joined forgets the answer.
        found = self._consumer.poll(timeout_ms=int(max(seconds, 0.5) * 1000), max_records=most)
        got = [
            record(each.topic, each.offset, each.timestamp, each.value, each.headers)
            for records in found.values()
            for each in records
        ]
        report(got)
        return got

    def commit(self) -> None:
        self._consumer.commit()

    def commit_at(self, topic: str, offset: int, text: str) -> None:
        self._consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, text, -1)})

    def committed(self, topic: str) -> int | None:
        found: int | None = self._consumer.committed(TopicPartition(topic, 0))
        return found

    def position(self, topic: str) -> int:
        return int(self._consumer.position(TopicPartition(topic, 0)))

    def seek(self, topic: str, where: str) -> None:
        partition = TopicPartition(topic, 0)
        if where == "beginning":
            self._consumer.seek_to_beginning(partition)
        elif where == "end":
            self._consumer.seek_to_end(partition)
        else:
            self._consumer.seek(partition, int(where))

    def ends(self, topic: str) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        first = self._consumer.beginning_offsets([partition])[partition]
        return first, self._consumer.end_offsets([partition])[partition]

    def at(self, topic: str, timestamp: int) -> int | None:
        partition = TopicPartition(topic, 0)
        found = self._consumer.offsets_for_times({partition: timestamp})[partition]
        return None if found is None else int(found.offset)

    def pause(self, topic: str) -> None:
        self._consumer.pause(TopicPartition(topic, 0))

    def resume(self, topic: str) -> None:
        self._consumer.resume(TopicPartition(topic, 0))

    def assignment(self) -> list[str]:
        return [part.topic for part in self._consumer.assignment()]

    def close(self) -> None:
        self._consumer.close()
