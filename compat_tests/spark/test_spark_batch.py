"""Spark reads a topic as a table: from where to where, split over how many tasks, in which columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from compat_tests.spark.stories import STEP, batch, fill, numbers
from compat_tests.support import T0

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

COUNT = 40


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    fill(bootstrap, topic, range(COUNT))
    return topic


@pytest.fixture
def read(spark: SparkSession, bootstrap: str, filled: str) -> Callable[..., list[int]]:
    """`read(startingOffsets=…)` gives the numbers of the messages that Spark read."""
    return lambda **options: numbers(batch(spark, bootstrap, subscribe=filled, **options))


@pytest.mark.short
def test_all_is_read_from_earliest_to_latest(read: Callable[..., list[int]]) -> None:
    assert read() == list(range(COUNT))
    assert read(startingOffsets="earliest", endingOffsets="latest") == list(range(COUNT))


def test_empty_topic_is_an_empty_table(spark: SparkSession, bootstrap: str, topic: str) -> None:
    assert batch(spark, bootstrap, subscribe=topic).collect() == []


def test_explicit_offsets_are_a_half_open_range(
    read: Callable[..., list[int]], filled: str
) -> None:
    def place(offset: int) -> str:
        return json.dumps({filled: {"0": offset}})

    assert read(startingOffsets=place(7), endingOffsets=place(11)) == [7, 8, 9, 10]
    assert read(startingOffsets=place(-2), endingOffsets=place(3)) == [0, 1, 2]
    assert read(startingOffsets=place(COUNT - 2), endingOffsets=place(-1)) == [38, 39]


def test_timestamps_mean_the_first_message_that_is_as_late(
    read: Callable[..., list[int]], filled: str
) -> None:
    def at(number: float) -> int:
        return T0 + int(number * STEP)

    def by_topic(number: float) -> str:
        return json.dumps({filled: {"0": at(number)}})

    assert read(startingTimestamp=at(37)) == [37, 38, 39]
    assert read(startingTimestamp=at(36.5), endingTimestamp=at(39)) == [37, 38]
    assert read(endingTimestamp=at(2)) == [0, 1]
    assert read(endingTimestamp=at(COUNT + 5)) == list(range(COUNT))
    assert read(startingOffsetsByTimestamp=by_topic(37)) == [37, 38, 39]
    assert read(startingTimestamp=0, endingOffsetsByTimestamp=by_topic(2)) == [0, 1]


def test_timestamp_after_the_last_message_follows_the_strategy(
    read: Callable[..., list[int]],
) -> None:
    late = T0 + COUNT * STEP
    for strategy in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        with pytest.raises((PySparkException, Py4JError), match="No offset matched"):
            read(startingTimestamp=late, **strategy)
    assert read(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({"minPartitions": 1}, 1),
        ({"minPartitions": 7}, 7),
        # Spark 4.0 heeds maxRecordsPerPartition in a batch only when minPartitions asks for a split.
        ({"minPartitions": 2, "maxRecordsPerPartition": 6}, 7),
    ],
)
def test_one_partition_is_split_over_tasks(
    spark: SparkSession, bootstrap: str, filled: str, options: dict[str, int], tasks: int
) -> None:
    frame = batch(spark, bootstrap, subscribe=filled, **options)
    read = frame.selectExpr("value", "spark_partition_id() as task").collect()
    assert sorted(int(row.value) for row in read) == list(range(COUNT))
    sizes = [sum(row.task == task for row in read) for task in range(tasks)]
    assert sum(sizes) == COUNT
    assert max(sizes) - min(sizes) <= 1


def test_topics_are_found_by_name_pattern_and_assignment(
    spark: SparkSession, bootstrap: str, names: Callable[[], str], make_topic: Callable[..., str]
) -> None:
    first, second, other = make_topic(), make_topic(), make_topic()
    for number, topic in enumerate([first, second, other]):
        fill(bootstrap, topic, [number])

    def read(**options: Any) -> list[tuple[str, int]]:
        rows = batch(spark, bootstrap, **options).collect()
        return sorted((row.topic, int(row.value)) for row in rows)

    both = sorted([(first, 0), (second, 1)])
    assert read(subscribe=f"{first},{second}") == both
    assert read(subscribePattern=f"({first}|{second})") == both
    assert read(assign=json.dumps({first: [0], second: [0]})) == both
    with pytest.raises((PySparkException, Py4JError), match="UnknownTopicOrPartition"):
        read(subscribe=names())


def test_columns_are_those_of_the_message(spark: SparkSession, bootstrap: str, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
    fill(bootstrap, topic, [0], key=b"k", headers=headers)
    fill(bootstrap, topic, [1])
    rows = batch(spark, bootstrap, subscribe=topic, includeHeaders=True).orderBy("offset")
    first, second = rows.collect()
    assert (first.key, first.value, first.topic, first.partition) == (b"k", b"0", topic, 0)
    assert (first.offset, second.offset, first.timestampType) == (0, 1, 0)
    seconds = rows.selectExpr("unix_millis(timestamp) as ms").collect()
    assert [row.ms for row in seconds] == [T0, T0 + STEP]
    assert [tuple(header) for header in first.headers] == headers
    assert second.key is None
    assert not second.headers
    assert "headers" not in batch(spark, bootstrap, subscribe=topic).columns


def test_compressed_batches_are_split_over_tasks_too(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    """A task may begin in the middle of a batch, which the broker cannot cut."""
    for part, codec in enumerate(["gzip", "snappy", "lz4", "zstd"]):
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=200)
        for number in range(50 * part, 50 * part + 50):
            producer.send(topic, b"%d" % number)
        producer.close()
    frame = batch(spark, bootstrap, subscribe=topic, minPartitions=12)
    assert numbers(frame) == list(range(200))
