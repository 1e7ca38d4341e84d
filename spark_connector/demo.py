"""`make demo`: everything once, end to end, on a broker of its own, with a line for each step.

    produce → delay → a sharing group → archive → reconcile → report

Orders come in for some seconds, in waves; reminders are sent with a delay and arrive when they are due.
Meanwhile a group of stock Kafka consumers reads the orders: one at first, which is too slow, then
three, which share the one subject. Then Spark archives all of it, compares the archive with the
subjects, and writes the report's page, which stays when the demo is over, with the archive beside it.

Every step waits for what it reports and checks it, so a demo that ends without an error has worked. Each
run has a folder of its own below the one that is given.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import latest
from kumquat.spark.pipelines.archive.command import archive
from kumquat.spark.pipelines.common.sources import Source
from kumquat.spark.pipelines.common.summary import count, duration, size
from kumquat.spark.pipelines.reconcile.command import reconcile
from kumquat.spark.pipelines.report.command import report, write_page
from kumquat.spark.pipelines.report.facts import milliseconds, summary
from kumquat.spark.session import spark_session
from kumquat.testing import broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ORDERS, REMINDERS, GROUP = "orders", "reminders", "warehouse"
PRODUCE_SECONDS = 12
ORDERS_A_SECOND = 300
REMINDERS_SENT = 400
DELAYS_MS = (500, 15_000)
HANDLE_SECONDS = 0.005
"""How long a consumer takes for an order: one alone is too slow."""
MEMBERS = 3
PATIENCE_SECONDS = 180.0
QUIET: dict[str, str | int | bool] = {
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": 2,
}


def main(folder: Path) -> int:
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    place = folder.absolute() / time.strftime("%Y-%m-%dT%H-%M-%S")
    place.mkdir(parents=True)
    try:
        with broker(directory=place / "data") as running:
            show("broker", f"{running.bootstrap}, its data in {place / 'data'}")
            demo(running.bootstrap, place)
    except ConnectorError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    return 0


def show(step: str, text: str) -> None:
    print(f"{step:<10} {text}", flush=True)


def demo(bootstrap: str, place: Path) -> None:
    readers = Readers(bootstrap)
    try:
        sent = produce(bootstrap, readers)
        wait_for(lambda: readers.has_handled(sent), "the group to read all orders")
    finally:
        readers.stop()
    show("group", readers.summary())
    wait_for(
        lambda: latest(bootstrap, [REMINDERS])[REMINDERS] == REMINDERS_SENT,
        "the reminders to arrive",
    )
    show("delay", f"all {count(REMINDERS_SENT, 'reminder')} have arrived")
    started = time.monotonic()
    spark = spark_session("kumquat demo", "local[*]", **QUIET)
    show("spark", f"{spark.version} started in {duration(time.monotonic() - started)}")
    try:
        with_spark(spark, bootstrap, place)
    finally:
        spark.stop()


def produce(bootstrap: str, readers: Readers) -> int:
    """Orders in waves, reminders for later in between, and a second and third reader on the way."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
    draw, begin, sent, reminded = random.Random(1), time.monotonic(), 0, 0
    while (now := time.monotonic() - begin) < PRODUCE_SECONDS:
        wave = 1 + 0.8 * math.sin(now * 1.5)
        for _ in range(round(ORDERS_A_SECOND * wave / 20)):
            customer = f"customer-{int(draw.paretovariate(0.6)) % 500}".encode()
            value = b'{"order": %d, "note": "%s"}' % (sent, b"x" * draw.randrange(20, 400))
            producer.send(ORDERS, value, customer, headers=[("message-id", b"order-%d" % sent)])
            sent += 1
        while reminded < min(REMINDERS_SENT, REMINDERS_SENT * now * 1.5 / PRODUCE_SECONDS):
            delay = b"%d" % draw.randrange(*DELAYS_MS)
            producer.send(REMINDERS, b"%d" % reminded, headers=[("qmq-delay-ms", delay)])
            reminded += 1
        readers.grow_when_begun()
        time.sleep(0.05)
    producer.flush()
    producer.close()
    show("produce", f"{count(sent, 'order')} in {PRODUCE_SECONDS} s")
    low, high = (duration(ms / 1000) for ms in DELAYS_MS)
    show("delay", f"{count(reminded, 'reminder')} sent ahead, due in {low} to {high}")
    wait_for(readers.grow_when_begun, "the group's first reader to begin")
    return sent


@dataclass
class Readers:
    """Consumers of one group, each in a thread: one from the start, the others when it has begun."""

    bootstrap: str
    by_member: Counter[int] = field(default_factory=Counter)
    handled: set[bytes] = field(default_factory=set)
    failed: list[Exception] = field(default_factory=list)
    _again: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def grow_when_begun(self) -> bool:
        """Starts the first member, and the others once it has committed; True when all are there."""
        if not self._threads:
            self._add()
        elif len(self._threads) == 1 and self.by_member:
            for _ in range(MEMBERS - 1):
                self._add()
        self._check()
        return len(self._threads) == MEMBERS

    def has_handled(self, orders: int) -> bool:
        self._check()
        return len(self.handled) == orders

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def summary(self) -> str:
        shares = ", ".join(f"{n:,}" for _, n in sorted(self.by_member.items()))
        again = f"; {self._again:,} came again after a commit that failed" if self._again else ""
        each = "each order once" if not again else "every order"
        return f"{MEMBERS} consumers shared {ORDERS}: {shares}; {each}{again}"

    def _check(self) -> None:
        if self.failed:
            raise ConnectorError(f"a consumer failed: {self.failed[0]}")

    def _add(self) -> None:
        number = len(self._threads)
        thread = threading.Thread(target=self._run, args=(number,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, number: int) -> None:
        consumer = KafkaConsumer(
            ORDERS,
            bootstrap_servers=self.bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=100,
        )
        try:
            while not self._stop.is_set():
                self._handle(number, consumer)
        except Exception as error:
            self.failed.append(error)
        finally:
            with suppress(KafkaError):
                consumer.close()

    def _handle(self, number: int, consumer: Any) -> None:
        polled = consumer.poll(timeout_ms=500)
        records = [record for batch in polled.values() for record in batch]
        time.sleep(HANDLE_SECONDS * len(records))
        if records:
            with suppress(KafkaError):  # taken away meanwhile: another member gets them
                consumer.commit()
        with self._lock:
            values = {record.value for record in records}
            self._again += len(self.handled & values)
            self.by_member[number] += len(values - self.handled)
            self.handled |= values


def with_spark(spark: SparkSession, bootstrap: str, place: Path) -> None:
    done = archive(spark, bootstrap, [ORDERS, REMINDERS], place / "archive")
    what = f"{count(done.messages, 'message')}, {size(done.octets)} of Parquet"
    show("archive", f"{what} in {place / 'archive'}")
    for subject in (ORDERS, REMINDERS):
        archived = Source(archive=place / "archive", subjects=[subject])
        found = reconcile(spark, Source(bootstrap, [subject]), archived)
        if not found.ok:
            raise ConnectorError(f"the archive of {subject} differs: {found.counts}")
        text = f"{count(found.counts['matched'])} of {subject} are there, once and in order"
        show("reconcile", text)
    facts = report(spark, Source(bootstrap, [ORDERS, REMINDERS]))
    page = place / "report.html"
    write_page(page, facts)
    reminders = next(subject.total for subject in facts.subjects if subject.name == REMINDERS)
    if reminders.early or reminders.delayed != REMINDERS_SENT:
        raise ConnectorError(f"of {reminders.delayed} reminders {reminders.early} came early")
    late = ", ".join(
        f"{name} {milliseconds(value)}"
        for name, value in (("p50", reminders.late_p50), ("p99", reminders.late_p99))
    )
    show("report", f"{reminders.delayed:,} reminders came late by {late}; none early")
    print(f"\n{summary(facts, page.as_uri()).text()}\n")
    show("page", f"open {page.as_uri()}")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise ConnectorError(
                f"waited {duration(PATIENCE_SECONDS)} for {what}; it did not happen"
            )
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo")))
