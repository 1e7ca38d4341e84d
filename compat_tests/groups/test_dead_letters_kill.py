"""kill -9 of the broker while messages die: each becomes one dead letter, whenever that was.

The group allows one delivery, and its members leave without a commit: so every message that is handed out
dies. A producer goes on meanwhile. In the end, the dead letters name every message of the subject once.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from compat_tests.groups.stories import configure
from compat_tests.support import SESSION_MS, eventually
from kumquat.testing import TestBroker, broker

TOPIC, GROUP = "orders", "workers"
LETTERS = f"{TOPIC}.{GROUP}.dlq"
MESSAGES = 400
KILLS = 5


class Worker(threading.Thread):
    """Takes messages, does nothing about them, and leaves; again and again."""

    def __init__(self, bootstrap: str, taken: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._stop_it = threading.Event()
        self._taken = taken

    def run(self) -> None:
        while not self._stop_it.is_set():
            consumer = Consumer(
                {
                    "bootstrap.servers": self._servers,
                    "group.id": GROUP,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": SESSION_MS,
                    "heartbeat.interval.ms": 300,
                }
            )
            consumer.subscribe([TOPIC])
            for _ in consumer.consume(50, timeout=1.5):
                self._taken.release()
            consumer.close()

    def finish(self) -> None:
        self._stop_it.set()
        self.join()


def ends(bootstrap: str, topic: str) -> int:
    """How many messages a subject has."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looks"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(high)
    except KafkaException:
        return 0
    finally:
        consumer.close()


def sequences(bootstrap: str) -> Counter[int]:
    """Which messages the dead letters name, and how often."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads"})
    consumer.assign([TopicPartition(LETTERS, 0, 0)])
    found: Counter[int] = Counter()
    left = ends(bootstrap, LETTERS)
    deadline = time.monotonic() + 60
    while left and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=5):
            assert message.error() is None
            headers = dict(message.headers() or [])
            sequence = int(headers["qmq-dead-sequence"] or -1)
            assert headers["qmq-dead-reason"] == b"attempts"
            assert (message.value() or b"").startswith(b"message ")
            found[sequence] += 1
            left -= 1
    consumer.close()
    return found


def produce(running: TestBroker, stop: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "enable.idempotence": True})
    for number in range(MESSAGES):
        producer.produce(TOPIC, b"message %d" % number)
        if number % 20 == 0:
            producer.flush(120)
            stop.wait(0.05)
    assert producer.flush(180) == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_each_message_that_dies_is_one_dead_letter(seed: int) -> None:
    chance, stop = random.Random(seed), threading.Event()
    with broker(group_min_session_timeout_ms=1000, log_segment_bytes=1 << 16) as running:
        configs = {"consume.mode": "shared", "delivery.count.limit": "1", "retry.backoff.ms": "0"}
        configure(running.bootstrap, GROUP, **configs)
        taken = threading.Semaphore(0)
        workers = [Worker(running.bootstrap, taken) for _ in range(2)]
        load = threading.Thread(target=produce, args=(running, stop), daemon=True)
        load.start()
        for worker in workers:
            worker.start()
        try:
            for _ in range(KILLS):
                for _ in range(chance.randrange(1, 25)):
                    assert taken.acquire(timeout=60), "nothing is delivered any more"
                running.kill()
                running.start()
            load.join()
            total = ends(running.bootstrap, TOPIC)
            assert total >= MESSAGES
            eventually(
                lambda: ends(running.bootstrap, LETTERS) >= total, "all are dead", seconds=240
            )
        finally:
            stop.set()
            for worker in workers:
                worker.finish()
        for _ in range(2):
            running.kill()
            running.start()
        found = sequences(running.bootstrap)
        assert found == Counter(dict.fromkeys(range(total), 1))
