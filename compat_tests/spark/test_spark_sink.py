"""Spark writes to a topic: a table, and a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compat_tests.spark.stories import SECONDS, fill, messages, stream, values, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.short
def test_table_is_written_with_keys_and_headers(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    rows = spark.range(3).selectExpr(
        "cast(id as string) as value",
        "if(id = 0, null, concat('k', id)) as key",
        "array(struct('a' as key, cast(cast(id as string) as binary) as value),"
        " struct('b' as key, cast(null as binary) as value)) as headers",
    )
    write(rows, bootstrap, topic=topic, includeHeaders="true")
    found = sorted(messages(bootstrap, topic), key=lambda each: bytes(each.value))
    assert [(each.key, each.value) for each in found] == [
        (None, b"0"),
        (b"k1", b"1"),
        (b"k2", b"2"),
    ]
    assert found[1].headers == [("a", b"1"), ("b", None)]


def test_rows_choose_their_topic(
    spark: SparkSession, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    even, odd = make_topic(), make_topic()
    rows = spark.range(20).selectExpr(
        "cast(id as string) as value", f"if(id % 2 = 0, '{even}', '{odd}') as topic"
    )
    write(rows, bootstrap)
    assert values(bootstrap, even) == list(range(0, 20, 2))
    assert values(bootstrap, odd) == list(range(1, 20, 2))


def test_many_rows_from_several_tasks_are_all_there_once(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    rows = spark.range(20_000, numPartitions=4).selectExpr("cast(id as string) as value")
    write(rows, bootstrap, topic=topic, **{"kafka.compression.type": "zstd"})
    assert values(bootstrap, topic) == list(range(20_000))


def test_topic_that_is_not_there_is_made_by_the_first_row(
    spark: SparkSession, bootstrap: str, name: str
) -> None:
    write(spark.range(5).selectExpr("cast(id as string) as value"), bootstrap, topic=name)
    assert values(bootstrap, name) == list(range(5))


@pytest.mark.short
def test_stream_is_copied_from_topic_to_topic(
    spark: SparkSession, bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = make_topic(), make_topic()
    for part in range(2):
        fill(bootstrap, source, range(part * 30, part * 30 + 30), key=b"k")
        rows = stream(spark, bootstrap, subscribe=source, maxOffsetsPerTrigger=20)
        writer = rows.select("key", "value").writeStream.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
        writer = writer.option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)
    assert values(bootstrap, target) == list(range(60))
    assert {each.key for each in messages(bootstrap, target)} == {b"k"}
