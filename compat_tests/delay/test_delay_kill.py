"""kill -9 in a loop while messages are scheduled, cancelled, moved and delivered.

Idempotent producers schedule into several subjects, with delays from nothing to a few seconds, mixed with
plain records in batches of their own making; others cancel some of those by name, each cancel alone in its
batch, so that its answer tells the outcome. The broker is killed and started again on the same folder, with
small segments, so that rolls are caught in the act. At the end everything that was acked is reckoned up: it
came once and not early, or it was cancelled and did not come, or the cancel said that it came too late.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from compat_tests.delay.stories import (
    Headers,
    Read,
    Sent,
    after,
    assert_not_early,
    at,
    cancel,
    named,
    now,
    send_confluent,
    up_to,
)
from compat_tests.support import mostly_long
from kumquat.testing import TestBroker, broker

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.differs("the test needs to kill the broker")
SUBJECTS = ["orders", "payments"]
ACKS_BETWEEN_KILLS = 300
LONGEST_DELAY = 3000
SETTINGS: dict[str, str | int | bool] = {
    "enable.idempotence": True,
    "linger.ms": 2,
    "message.timeout.ms": 180_000,
    "reconnect.backoff.max.ms": 200,
}


class Load:
    """Schedules and cancels in one subject without end, and keeps book of what was acked."""

    def __init__(self, bootstrap: str, subject: str, seed: int) -> None:
        self.subject = subject
        self.plain: set[bytes] = set()
        self.scheduled: set[bytes] = set()
        self.cancelled: set[bytes] = set()
        self.moved: set[bytes] = set()
        self.too_late: set[bytes] = set()
        self.failed: list[KafkaError] = []
        self.acks = threading.Semaphore(0)
        self._chance = random.Random(seed)
        self._names: list[bytes] = []
        self._stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
        self._canceller = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
        self._threads = [threading.Thread(target=t) for t in (self._schedule, self._cancel)]
        for thread in self._threads:
            thread.start()

    def _schedule(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%s %d" % (self.subject.encode(), number)
            headers: Headers = []
            book = self.plain
            if number % 4:
                book = self.scheduled
                headers = after(self._chance.randrange(LONGEST_DELAY))
                if number % 3 == 0:
                    headers = after(LONGEST_DELAY - 1) + named(value.decode())
            told = self._told(book, value, len(headers) > 1)
            try:
                self._put(self._producer, value, headers, told)
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0.002 if number % 20 == 0 else 0)
        assert self._producer.flush(180) == 0

    def _put(
        self,
        producer: Producer,
        value: bytes | None,
        headers: Headers,
        told: Callable[[KafkaError | None, Message], None],
    ) -> None:
        given: dict[str, Any] = {"headers": headers}
        producer.produce(self.subject, value, on_delivery=told, **given)

    def _told(
        self, book: set[bytes], value: bytes, has_name: bool
    ) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed.append(error)
                return
            book.add(value)
            if has_name:
                self._names.append(value)
            self.acks.release()

        return told

    def _cancel(self) -> None:
        """Half of what has a name is cancelled and a quarter moved, most at once and some when they may be
        due already."""
        while not self._stop.is_set():
            if not self._names:
                self._canceller.poll(0.01)
                continue
            late = self._chance.random() < 0.1
            value = self._names.pop(self._chance.randrange(len(self._names)) if late else -1)
            headers, book = cancel(value.decode()), self.cancelled
            dice = self._chance.random()
            if dice < 0.25:
                headers, book = headers + after(self._chance.randrange(LONGEST_DELAY)), self.moved
            if dice < 0.75:
                self._put(self._canceller, None, headers, self._outcome(book, value))
                assert self._canceller.flush(180) == 0

    def _outcome(
        self, book: set[bytes], value: bytes
    ) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                book.add(value)
            elif error.code() == KafkaError.INVALID_RECORD:
                self.too_late.add(value)
            else:
                self.failed.append(error)

        return told

    def wait_for_acks(self, count: int) -> None:
        for _ in range(count):
            assert self.acks.acquire(timeout=120), f"{self.subject}: nothing is acked any more"

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(("seed", "kills"), mostly_long([(1, 6), (2, 1)], short=[(2, 1)]))
def test_kills_lose_nothing_double_nothing_and_deliver_nothing_early(seed: int, kills: int) -> None:
    chance = random.Random(seed)
    with broker(log_segment_bytes=1 << 20) as running:
        loads = [Load(running.bootstrap, name, seed + n) for n, name in enumerate(SUBJECTS)]
        try:
            for _ in range(kills):
                chance.choice(loads).wait_for_acks(chance.randrange(1, ACKS_BETWEEN_KILLS))
                running.kill()
                running.start()
        finally:
            for load in loads:
                load.finish()
        for _ in range(2):
            running.kill()
            running.start()
        for load in loads:
            check(running, load)


def check(running: TestBroker, load: Load) -> None:
    assert not load.failed
    send_confluent(running.bootstrap, load.subject, [Sent(b"last", at(now() + LONGEST_DELAY))])
    got = up_to(running.bootstrap, load.subject, b"last")
    times = Counter(read.value for read in got)
    twice = [value for value, count in times.items() if count > 1]
    assert not twice, f"came more than once: {twice[:10]}"
    wanted = load.plain | (load.scheduled - load.cancelled)
    missing = sorted(wanted - times.keys())
    assert not missing, f"{len(missing)} never came: {missing[:10]}"
    cancelled = sorted(load.cancelled & times.keys())
    assert not cancelled, f"came although they were cancelled: {cancelled[:10]}"
    assert load.too_late <= times.keys()
    for read in got:
        if is_delayed(read):
            assert_not_early(read)
    offsets = [read.offset for read in got]
    assert offsets == sorted(set(offsets))


def is_delayed(read: Read) -> bool:
    return any(name == "qmq-due-ms" for name, _ in read.headers)
