"""Spark reads a topic as a stream, and goes on from its checkpoint with nothing lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.spark import SECONDS, Copy, fill, sizes, stream
from compat_tests.support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_available_now_reads_all_and_ends_and_goes_on_from_the_checkpoint(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    copy = Copy(spark, tmp_path)
    source = stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=20)
    fill(bootstrap, topic, range(50))
    assert sizes(copy.run(source)) == [20, 20, 10]
    assert copy.numbers() == list(range(50))
    fill(bootstrap, topic, range(50, 75))
    assert sizes(copy.run(source)) == [20, 5]
    assert sizes(copy.run(source)) == []
    assert copy.numbers() == list(range(75))


def test_split_micro_batches_lose_and_double_nothing(
    spark: SparkSession, bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Two topics, many tasks for each, some of which read nothing."""
    first, second = make_topic(), make_topic()
    fill(bootstrap, first, range(30))
    fill(bootstrap, second, range(30, 37))
    copy = Copy(spark, tmp_path)
    options = {"minPartitions": 5, "maxRecordsPerPartition": 4, "maxOffsetsPerTrigger": 25}
    copy.run(stream(spark, bootstrap, subscribe=f"{first},{second}", **options))
    assert copy.numbers() == list(range(37))


def test_query_that_runs_sees_what_is_written_meanwhile(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """By a processing-time trigger; stopped in between, and started again on its checkpoint."""
    copy = Copy(spark, tmp_path)
    written = 0
    for _ in range(2):
        source = stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=7)
        query = copy.start(source, processingTime="100 milliseconds")
        try:
            for _ in range(2):
                fill(bootstrap, topic, range(written, written + 20))
                written += 20
                query.processAllAvailable()
                assert copy.numbers() == list(range(written))
        finally:
            query.stop()
    assert copy.numbers() == list(range(written))


def test_new_topic_of_the_pattern_joins_the_stream(
    spark: SparkSession, bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    first = make_topic()
    pattern = first.rsplit("-", 1)[0] + ".*"
    fill(bootstrap, first, range(5))
    copy = Copy(spark, tmp_path)
    source = stream(
        spark, bootstrap, subscribePattern=pattern, **{"kafka.metadata.max.age.ms": 100}
    )
    query = copy.start(source, processingTime="100 milliseconds")
    try:
        query.processAllAvailable()
        fill(bootstrap, make_topic(), range(5, 10))

        def joined() -> bool:
            query.processAllAvailable()
            return copy.numbers() == list(range(10))

        eventually(joined, "the messages of the new topic are there", SECONDS)
    finally:
        query.stop()
