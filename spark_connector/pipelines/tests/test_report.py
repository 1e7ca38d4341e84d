"""Reports on a real broker's subjects: every figure is one that can be counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.common.sources import Source
from kumquat.spark.pipelines.report.command import key_text, report, write_page
from kumquat.spark.pipelines.report.facts import HOUR_MS, Report, Silence, summary
from kumquat.spark.pipelines.report.page import page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=2)
T0 = int(NOON.timestamp()) * 1000
"""Of this week, since retention takes what is older."""


@pytest.fixture
def producer(kumquat: TestBroker) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap)
    yield producer
    producer.close()


def send(
    producer: KafkaProducer, subject: str, ms: int, value: bytes = b"", **more: object
) -> None:
    producer.send(subject, value, timestamp_ms=ms, **more)


def due(ms: int) -> list[tuple[str, bytes]]:
    return [("qmq-due-ms", str(ms).encode())]


@pytest.mark.short
def test_figures_that_do_not_add_up(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    for i in range(100):
        send(producer, "orders", T0 + i * 10, b"x" * i, key=b"k%d" % (i % 4))
    send(producer, "orders", T0 + HOUR_MS, b"late", key=b"k0", headers=due(T0 + HOUR_MS - 70))
    send(producer, "orders", T0 + HOUR_MS + 1, b"", headers=due(T0 + HOUR_MS - 4))
    send(producer, "other", T0 + 5, b"1234567")
    producer.flush()

    facts = report(spark, Source(kumquat.bootstrap, ["orders", "other"]))

    orders, other = facts.subjects
    assert (facts.start_ms, facts.end_ms, facts.messages) == (T0, T0 + HOUR_MS + 1, 103)
    assert orders.total.messages == 102
    assert orders.total.octets == sum(range(100)) + 100 * 2 + 4 + 2
    assert (orders.total.largest, orders.total.keys, orders.total.keyless) == (101, 4, 1)
    assert {hour: f.messages for hour, f in orders.hours.items()} == {T0: 100, T0 + HOUR_MS: 2}
    assert sum(figures.messages for figures in orders.slots.values()) == 102
    assert orders.top_keys == [("k0", 26), ("k1", 25), ("k2", 25), ("k3", 25)]
    assert (orders.busiest, orders.holes) == ((100, T0), 0)
    assert orders.silences == [Silence(T0 + 990, T0 + HOUR_MS)]
    sizes = sorted([*(size + 2 for size in range(100)), 4 + 2, 0])
    assert (orders.total.size_p50, orders.total.size_p99) == (sizes[50], sizes[100])
    assert (orders.total.delayed, orders.total.late_max, orders.total.early) == (2, 70, 0)
    assert (orders.total.late_p50, orders.total.late_p99) == (5, 70)
    assert orders.hours[T0].delayed == 0
    assert (other.total.messages, other.total.octets, other.silences) == (1, 7, [])
    assert "orders" in summary(facts, "page").text()


def test_a_delayed_message_that_came_early_is_not_hidden(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    send(producer, "early", T0, b"", headers=due(T0 + 30))
    send(producer, "early", T0, b"", headers=[("qmq-due-ms", b"soon")])
    producer.flush()
    facts = report(spark, Source(kumquat.bootstrap, ["early"]))
    assert (facts.subjects[0].total.early, facts.subjects[0].total.delayed) == (1, 1)
    assert "1 delayed message came before" in page(facts)


def test_a_copy_is_as_late_as_the_day_on_which_it_was_made(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    """Replay and dedupe keep the header that says when the original was due."""
    original = ("kumquat-original-ms", b"%d" % (T0 + 7))
    send(producer, "copies", T0 + 24 * HOUR_MS, b"", headers=[*due(T0), original])
    send(producer, "copies", T0 + 24 * HOUR_MS, b"", headers=[*due(T0 + 24 * HOUR_MS - 2)])
    producer.flush()
    total = report(spark, Source(kumquat.bootstrap, ["copies"])).subjects[0].total
    assert (total.delayed, total.late_p50, total.late_max, total.early) == (2, 2, 7, 0)


def test_a_time_that_no_calendar_has_ends_the_report(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    """A producer gave microseconds for milliseconds; the broker takes the time that it is given."""
    send(producer, "mixed", T0 * 1000)
    send(producer, "mixed", T0)
    send(producer, "never", T0 * 1000)
    producer.flush()
    facts = report(spark, Source(kumquat.bootstrap, ["mixed", "never"]))
    assert [(subject.name, subject.total.messages) for subject in facts.subjects] == [("mixed", 1)]
    assert (facts.timeless, list(facts.empty)) == ({"mixed": 1, "never": 1}, [])
    only = report(spark, Source(kumquat.bootstrap, ["never"]))
    for message in (summary(facts, "page").text(), page(facts), page(only)):
        assert "1 message of never: without a time" in message
    assert "without messages" not in summary(only, "page").text()


def test_messages_outside_the_range_are_counted(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    for minute in range(10):
        send(producer, "range", T0 + minute * 60_000)
    producer.flush()
    since, until = NOON + timedelta(minutes=3), NOON + timedelta(minutes=7)
    facts = report(spark, Source(kumquat.bootstrap, ["range"], since=since, until=until))
    assert (facts.messages, facts.start_ms) == (4, T0 + 180_000)
    assert "without a message" not in page(facts)


def test_messages_of_another_time_are_taken_for_holes(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    for minute in (0, 1, 50, 2, 3):
        send(producer, "mixed", T0 + minute * 60_000)
    producer.flush()
    until = NOON + timedelta(minutes=10)
    facts = report(spark, Source(kumquat.bootstrap, ["mixed"], until=until))
    assert (facts.messages, facts.subjects[0].holes) == (4, None)
    assert "without a message" not in page(facts)


def test_an_empty_subject_ends_the_report(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer, tmp_path: Path
) -> None:
    producer.send("full", b"1", timestamp_ms=T0).get(60)
    later = datetime.fromtimestamp(T0 / 1000, UTC) + timedelta(hours=1)
    facts = report(spark, Source(kumquat.bootstrap, ["full"], since=later))
    assert (list(facts.subjects), list(facts.empty)) == ([], ["full"])
    write_page(tmp_path / "page.html", facts)
    assert "no message in the range" in (tmp_path / "page.html").read_text()
    assert "no messages" in summary(facts, "page").text()


def test_a_subject_that_is_not_there(spark: SparkSession, kumquat: TestBroker) -> None:
    with pytest.raises(ConnectorError, match="no subject nowhere") as raised:
        report(spark, Source(kumquat.bootstrap, ["nowhere"]))
    assert "\n" not in str(raised.value)


def test_a_page_that_cannot_be_written_takes_the_old_one_with_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, Report("the old one", T0, []))
    (tmp_path / "page.html.partial").mkdir()
    with pytest.raises(ConnectorError, match="give another --page"):
        write_page(path, Report("the new one", T0, []))
    assert "the old one" in path.read_text()


@pytest.mark.parametrize(
    ("key", "text"),
    [(b"order-1", "order-1"), (b"", "0x"), (b"\xff\x00", "0xff00"), (b"a\nb", "0x610a62")],
)
def test_keys_that_are_no_text(key: bytes, text: str) -> None:
    assert key_text(key) == text
    assert len(key_text(key * 100)) <= 80
