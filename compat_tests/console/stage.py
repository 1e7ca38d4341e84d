"""A broker as an operator meets it: subjects, groups that work and groups that do not, delays, letters.

Everything is made by ordinary clients. `everything` is the same for all tests that only look; a test that
changes something makes its own subject.
"""

from __future__ import annotations

import itertools
import json
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from compat_tests.support import DEADLINE, eventually
from kumquat.consumer import reject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kumquat.testing import TestBroker

SUBJECTS = (
    "orders",
    "payments",
    "shipments",
    "invoices",
    "users.created",
    "clicks",
    "emails",
    "audit",
)
ORDERS = 120


class Stage:
    _numbers = itertools.count(1)

    def __init__(self, broker: TestBroker) -> None:
        self.broker = broker
        self.admin = broker.admin
        self.bootstrap = broker.bootstrap
        self._filled = False

    def everything(self) -> None:
        """Once: ten subjects with something on them."""
        if self._filled:
            return
        self._filled = True
        self.create(SUBJECTS)
        with_key = [(b"customer-%d" % (n % 7), _order(n)) for n in range(ORDERS)]
        self.produce("orders", with_key, headers=[("trace-id", b"4bf92f3577b34da6")])
        self.produce("payments", [(None, b"payment %d" % n) for n in range(60)])
        self.produce("clicks", [(None, bytes(range(n))) for n in range(40)])
        for n in range(30):
            due = str(300_000 + n * n * 90_000).encode()
            asked = [("qmq-delay-ms", due), ("qmq-delay-id", b"mail-%d" % n)]
            self.produce("emails", [(b"user-%d" % n, b"Welcome back")], headers=asked)
        self.consume("payments", "ledger", 60)
        self.consume("clicks", "analytics", 10)
        self.letters("orders", "billing", 4)

    def new(self) -> str:
        """The name of a subject or group that nobody else uses."""
        return f"stage-{next(self._numbers)}"

    def create(self, names: Sequence[str]) -> None:
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as client:
            client.create_topics([NewTopic(name, 1, 1) for name in names])

    def produce(
        self,
        subject: str,
        messages: Sequence[tuple[bytes | None, bytes]],
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        with closing(self.producer(client_id="shop")) as producer:
            for key, value in messages:
                producer.send(subject, key=key, value=value, headers=list(headers))
            producer.flush(DEADLINE)

    def consume(self, subject: str, group: str, count: int) -> list[Any]:
        """Some messages, committed; then the consumer leaves."""
        with closing(self.consumer(subject, group, max_poll_records=count)) as consumer:
            got = _poll(consumer, count, most=count)
            consumer.commit()
        return got

    def letters(self, subject: str, group: str, count: int) -> None:
        """Messages of a subject become dead letters of a group, which then has no members."""
        with (
            closing(self.producer(enable_idempotence=False)) as producer,
            closing(self.consumer(subject, group)) as consumer,
        ):
            for record in _poll(consumer, count)[:count]:
                reject(producer, group, record, "the card has expired")
            consumer.commit()
        self.broker.wait_for_log(f"topic {subject}.{group}.dlq created")

    def producer(self, **settings: Any) -> KafkaProducer:
        """To be closed also when a test fails: kafka-python leaves sockets open once its broker is gone."""
        return KafkaProducer(bootstrap_servers=self.bootstrap, **settings)

    def consumer(self, subject: str, group: str, **settings: Any) -> KafkaConsumer:
        """From the start, without commits of its own; to be closed as a producer is."""
        own = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | settings
        return KafkaConsumer(
            subject,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            client_id=f"{group}-1",
            **own,
        )


@contextmanager
def polling(poll: Callable[[], object]) -> Iterator[None]:
    """Goes on polling in a thread, as an application does."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            poll()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _poll(consumer: KafkaConsumer, count: int, most: int | None = None) -> list[Any]:
    got: list[Any] = []

    def poll() -> bool:
        left = None if most is None else most - len(got)
        for records in consumer.poll(500, max_records=left).values():
            got.extend(records)
        return len(got) >= count

    eventually(poll, f"{count} messages of {consumer.subscription()}")
    return got


def _order(number: int) -> bytes:
    items = [{"sku": f"A-{number % 9}", "count": number % 4 + 1}]
    order = {"order": number, "customer": number % 7, "total": number * 3.5, "items": items}
    return json.dumps(order).encode()
