"""A member that is aiokafka: range or roundrobin."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, ClassVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.structs import OffsetAndMetadata

from compat_tests.members.client import Record, Report, Told, pythonic, record

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Aiokafka:
    """Its event loop runs in a thread of its own, all the time, as in an application."""

    STRATEGIES: ClassVar = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
    }

    def __init__(self, strategy: str, settings: dict[str, str], told: Told) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._told = told

        async def make() -> AIOKafkaConsumer:
            return AIOKafkaConsumer(
                partition_assignment_strategy=(self.STRATEGIES[strategy],), **pythonic(settings)
            )

        self._consumer = self._do(make())
        # Before it subscribes: else its start waits until the group has assigned something.
        self._do(self._consumer.start())

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _now(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async def call() -> Any:
            return function(*arguments)

        return self._do(call())

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        told = self._told

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
                told("revoked", [part.topic for part in revoked])

            def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
                told("assigned", [part.topic for part in assigned])

        def subscribe() -> None:
            self._consumer.subscribe(
                topics=() if pattern else topics, pattern=pattern, listener=Listener()
            )

        self._now(subscribe)

    def poll(self, seconds: float, most: int, report: Report) -> list[Record]:
        async def get() -> list[Record]:
            found = await self._consumer.getmany(timeout_ms=int(seconds * 1000), max_records=most)
            got = [
                record(each.topic, each.offset, each.timestamp, each.value, each.headers)
                for records in found.values()
                for each in records
            ]
            report(got)  # here: callbacks come on the loop, at any time
            return got

        got: list[Record] = self._do(get())
        return got

    def commit(self) -> None:
        self._do(self._consumer.commit())

    def commit_at(self, topic: str, offset: int, text: str) -> None:
        self._do(self._consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, text)}))

    def committed(self, topic: str) -> int | None:
        found: int | None = self._do(self._consumer.committed(TopicPartition(topic, 0)))
        return found

    def position(self, topic: str) -> int:
        return int(self._do(self._consumer.position(TopicPartition(topic, 0))))

    def seek(self, topic: str, where: str) -> None:
        partition = TopicPartition(topic, 0)
        if where == "beginning":
            self._do(self._consumer.seek_to_beginning(partition))
        elif where == "end":
            self._do(self._consumer.seek_to_end(partition))
        else:
            self._now(self._consumer.seek, partition, int(where))

    def ends(self, topic: str) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        first = self._do(self._consumer.beginning_offsets([partition]))[partition]
        return first, self._do(self._consumer.end_offsets([partition]))[partition]

    def at(self, topic: str, timestamp: int) -> int | None:
        partition = TopicPartition(topic, 0)
        found = self._do(self._consumer.offsets_for_times({partition: timestamp}))[partition]
        return None if found is None else int(found.offset)

    def pause(self, topic: str) -> None:
        self._now(self._consumer.pause, TopicPartition(topic, 0))

    def resume(self, topic: str) -> None:
        self._now(self._consumer.resume, TopicPartition(topic, 0))

    def assignment(self) -> list[str]:
        return [part.topic for part in self._now(self._consumer.assignment)]

    def close(self) -> None:
        self._do(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
