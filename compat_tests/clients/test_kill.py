"""kill -9 in a loop under load: every acked record is there, once, at its offset, and offsets are dense.

Idempotent librdkafka producers write to several topics, in batches of their own making, while the broker
is killed and started again on the same folder. Small segments, so that rolls, preambles and indexes are
caught in the act. Only Kumquat: the test needs to kill the broker.
"""

import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from compat_tests.support import mostly_long
from kumquat.testing import TestBroker, broker

TOPICS = ["orders", "payments", "audit"]
ACKS_BETWEEN_KILLS = 400


class Load:
    """Produces without end, and keeps book of what was acked."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.acked: dict[int, bytes] = {}
        self.failed: list[KafkaError] = []
        self.count = threading.Semaphore(0)
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = f"{self.topic} {number} ".encode() * (1 + number % 7)
            try:
                self._producer.produce(self.topic, value, on_delivery=self._delivered)
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0.001 if number % 50 == 0 else 0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        assert self.acked.setdefault(offset, value) == value
        self.count.release()

    def wait_for_acks(self, count: int) -> None:
        for _ in range(count):
            assert self.count.acquire(timeout=120), f"{self.topic}: nothing is acked any more"

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


def stored(bootstrap: str, topic: str) -> Iterator[tuple[int, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False}
    )
    try:
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=120)
        consumer.assign([partition])
        at = 0
        while at < end:
            messages = consumer.consume(min(10_000, end - at), timeout=120)
            assert messages, f"{topic}: nothing came at {at}, the end is {end}"
            for message in messages:
                assert message.error() is None
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                yield offset, value
                at = offset + 1
    finally:
        consumer.close()


@pytest.mark.parametrize(("seed", "kills"), mostly_long([(1, 8), (2, 8), (3, 2)], short=[(3, 2)]))
def test_kills_under_load_lose_nothing_and_double_nothing(seed: int, kills: int) -> None:
    chance = random.Random(seed)
    with broker(log_segment_bytes=1 << 20) as running:
        loads = [Load(running.bootstrap, topic) for topic in TOPICS]
        try:
            for _ in range(kills):
                chance.choice(loads).wait_for_acks(chance.randrange(1, ACKS_BETWEEN_KILLS))
                running.kill()
                running.start()
        finally:
            for load in loads:
                load.finish()
        for load in loads:
            check(running, load)


def check(running: TestBroker, load: Load) -> None:
    found = dict(stored(running.bootstrap, load.topic))
    assert not load.failed
    assert sorted(found) == list(range(len(found))), "offsets are dense"
    assert {offset: found.get(offset) for offset in load.acked} == load.acked
    twice = {value for value, count in Counter(found.values()).items() if count > 1}
    assert not twice, "an idempotent producer's record is there once"
