"""Spark reads a topic as a stream, and goes on from its checkpoint with nothing lost or doubled.

In a checkpoint `offsets/N` says what batch N reads, `commits/N` that it is done. A query that was stopped
or killed in between left a batch that is planned and not committed: the next one must read the
same offsets again, whatever has come meanwhile.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from compat_tests.spark.stories import SECONDS, Copy, fill, sizes, stream
from compat_tests.support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def batches(folder: Path, log: str) -> set[int]:
    """The numbers in one of the checkpoint's two logs."""
    return {int(each.name) for each in (folder / "checkpoint" / log).glob("[0-9]*")}


@pytest.mark.short
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


def test_stream_of_assigned_topics_is_split_by_records_and_has_headers(
    spark: SparkSession, bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A task writes a file: so many files, so many tasks."""
    first, second = make_topic(), make_topic()
    fill(bootstrap, first, range(30), headers=[("here", b"1")])
    fill(bootstrap, second, range(30, 37), headers=[("here", b"1")])
    assigned = json.dumps({first: [0], second: [0]})
    options = {"assign": assigned, "minPartitions": 3, "maxRecordsPerPartition": 4}
    source = stream(spark, bootstrap, includeHeaders=True, **options)
    copy = Copy(spark, tmp_path)
    copy.run(source.where("headers[0].key = 'here' and string(headers[0].value) = '1'"))
    assert copy.numbers() == list(range(37))
    assert len(list((tmp_path / "files").glob("*.parquet"))) == 8 + 2


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
            assert max(sizes(query)) <= 7
        finally:
            query.stop()
    assert copy.numbers() == list(range(written))


def test_batch_that_was_begun_and_not_finished_is_read_again_as_it_was_planned(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """The query dies of a row in the middle of a batch, when it has written the rows before it."""
    copy = Copy(spark, tmp_path)
    fill(bootstrap, topic, range(20))
    source = stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=7)
    broken = source.where("if(offset = 10, raise_error('bad luck'), true)")
    with pytest.raises(StreamingQueryException, match="bad luck"):
        copy.run(broken)
    assert batches(tmp_path, "offsets") - batches(tmp_path, "commits") == {1}
    fill(bootstrap, topic, range(20, 30))
    source = stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=11)
    assert sizes(copy.run(source)) == [7, 11, 5]
    assert copy.numbers() == list(range(30))


def test_batch_that_was_written_and_not_committed_is_not_doubled(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """As after a kill between the sink's files and the commit, which is taken away here."""
    copy = Copy(spark, tmp_path)
    fill(bootstrap, topic, range(10))
    source = stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=7)
    copy.run(source)
    assert copy.numbers() == list(range(10))
    newest = max(batches(tmp_path, "commits"))
    for name in (f"{newest}", f".{newest}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    fill(bootstrap, topic, range(10, 20))
    # Spark takes it up with the end that it had, and the sink knows it; then what has come meanwhile.
    assert sizes(copy.run(source)) == [7, 3]
    assert copy.numbers() == list(range(20))


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
