"""Subjects as tables and streams, on a real broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType, StringType, StructType

from kumquat.spark import (
    ConnectorError,
    clear_errors,
    read_subject,
    stream_subject,
    write_subject,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from pyspark.sql import Column, SparkSession

    from kumquat.testing import TestBroker

T0 = 1_900_000_000_000
ORDER = StructType().add("id", LongType()).add("customer", StringType())


def produce(kumquat: TestBroker, subject: str, values: Sequence[bytes | None], **more: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap)
    for number, value in enumerate(values):
        producer.send(subject, value, timestamp_ms=T0 + number, **more)
    producer.close()


def consume(kumquat: TestBroker, subject: str) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=kumquat.bootstrap, auto_offset_reset="earliest")
    place = TopicPartition(subject, 0)
    consumer.assign([place])
    end = consumer.end_offsets([place])[place]
    found: list[Any] = []
    while consumer.position(place) < end:
        found += consumer.poll(timeout_ms=1000).get(place, [])
    consumer.close()
    return found


def test_one_partition_is_read_by_more_than_one_task(
    spark: SparkSession, kumquat: TestBroker
) -> None:
    produce(kumquat, "orders", [b"%d" % n for n in range(100)])
    whole = read_subject(spark, kumquat.bootstrap, "orders")
    assert whole.rdd.getNumPartitions() == 2
    assert sorted(int(row.value) for row in whole.select("value").collect()) == list(range(100))
    assert read_subject(spark, kumquat.bootstrap, "orders", tasks=5).rdd.getNumPartitions() == 5


def test_places_are_offsets_times_and_ends(spark: SparkSession, kumquat: TestBroker) -> None:
    produce(kumquat, "orders", [b"%d" % n for n in range(10)])

    def read(**places: Any) -> list[int]:
        rows = read_subject(spark, kumquat.bootstrap, ["orders"], **places).collect()
        return sorted(row.offset for row in rows)

    assert read(starting={"orders": 3}, ending={"orders": 5}) == [3, 4]
    at = datetime.fromtimestamp((T0 + 7) / 1000, UTC)
    assert read(starting=at) == [7, 8, 9]
    assert read(ending=at) == list(range(7))
    assert read(starting=datetime(2035, 1, 1, tzinfo=UTC)) == []


@pytest.mark.short
def test_json_key_and_headers_become_columns(spark: SparkSession, kumquat: TestBroker) -> None:
    headers = [("message-id", b"old"), ("message-id", b"m1"), ("other", b"x")]
    produce(kumquat, "orders", [b'{"id": 7, "customer": "ann"}'], key=b"k", headers=headers)
    rows = read_subject(
        spark,
        kumquat.bootstrap,
        "orders",
        json=ORDER,
        text_key=True,
        headers_as_columns=["message-id", "absent"],
    )
    row = rows.select("key", "value.*", "message-id", "absent").collect()[0]
    assert tuple(row) == ("k", 7, "ann", "m1", None)


def test_value_that_does_not_fit_the_schema_is_loud(
    spark: SparkSession, kumquat: TestBroker
) -> None:
    produce(kumquat, "orders", [b'{"id": 7}', b'{"id": "seven"}'])
    orders = read_subject(spark, kumquat.bootstrap, "orders", json=ORDER)
    with (
        pytest.raises(ConnectorError, match="does not fit the JSON schema") as caught,
        clear_errors(),
    ):
        orders.select("value.id").collect()
    assert "\n" not in str(caught.value)
    with pytest.raises(ConnectorError, match="does not fit the JSON schema") as caught:
        write_subject(orders, kumquat.bootstrap, "copy", value="value")
    assert "\n" not in str(caught.value)


def test_options_that_are_given_lose_to_ours(spark: SparkSession, kumquat: TestBroker) -> None:
    produce(kumquat, "orders", [b"%d" % n for n in range(10)])
    given: dict[str, Any] = {"startingOffsets": '{"orders": {"0": 4}}', "minPartitions": 3}
    rows = read_subject(spark, kumquat.bootstrap, "orders", starting="latest", tasks=1, **given)
    assert rows.rdd.getNumPartitions() == 3
    assert sorted(row.offset for row in rows.collect()) == list(range(4, 10))


@pytest.mark.short
def test_rows_are_written_with_key_and_those_headers_that_are_not_null(
    spark: SparkSession, kumquat: TestBroker
) -> None:
    rows = spark.range(2).select(
        "id",
        sql.struct("id", sql.lit("ann").alias("customer")).alias("order"),
        sql.when(sql.col("id") == 1, sql.lit(5)).alias("some"),
    )
    headers: dict[str, str | Column] = {"number": "id", "some": "some", "same": sql.lit("s")}
    write_subject(rows, kumquat.bootstrap, "out", key="id", value="order", headers=headers)
    found = sorted(consume(kumquat, "out"), key=lambda record: record.key)
    assert [(each.key, each.value) for each in found] == [
        (b"0", b'{"id":0,"customer":"ann"}'),
        (b"1", b'{"id":1,"customer":"ann"}'),
    ]
    assert found[0].headers == [("number", b"0"), ("same", b"s")]
    assert found[1].headers == [("number", b"1"), ("some", b"5"), ("same", b"s")]


@pytest.mark.short
def test_stream_is_copied_once_over_two_runs(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    for half in (0, 1):
        produce(kumquat, "from", [b"%d" % (half * 50 + n) for n in range(50)])
        stream = stream_subject(spark, kumquat.bootstrap, "from", max_per_trigger=20)
        query = write_subject(
            stream,
            kumquat.bootstrap,
            "to",
            trigger={"availableNow": True},
            checkpointLocation=str(tmp_path),
        )
        assert query is not None
        assert query.awaitTermination(120)
    assert sorted(int(each.value) for each in consume(kumquat, "to")) == list(range(100))


def test_value_that_does_not_fit_the_schema_always_ends_the_job(
    spark: SparkSession, kumquat: TestBroker
) -> None:
    values = [b'{"n": 1}', b"no json", b'{"n": "one"}', None, b'{"n": 2}']
    produce(kumquat, "mixed", values, key=b"k")

    def read(on_bad: str) -> list[Any]:
        rows = read_subject(spark, kumquat.bootstrap, "mixed", json="n LONG", on_bad=on_bad)
        chosen = ["offset", "value", *[name for name in rows.columns if name == "_corrupt_record"]]
        found = rows.select(*chosen).orderBy("offset").collect()
        return [(row[0], row[1] and row[1].asDict(), *row[2:]) for row in found]

    assert read("PERMISSIVE") == [
        (0, {"n": 1}, None),
        (1, None, "no json"),
        (2, None, '{"n": "one"}'),
        (3, None, None),
        (4, {"n": 2}, None),
    ]
    assert read("dropmalformed") == [(0, {"n": 1}), (3, None), (4, {"n": 2})]
    with pytest.raises(ConnectorError), clear_errors():
        read("FAILFAST")


def test_bad_wishes_are_one_line(spark: SparkSession, kumquat: TestBroker) -> None:
    produce(kumquat, "orders", [b"1"])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"subjects": "ordres"}, "no subject ordres on"),
        ({"subjects": []}, "give subjects by name"),
        ({"subjects": "a,b"}, "give subjects by name"),
        ({"subjects": "orders", "starting": "begin"}, "starting='begin' is no place"),
        ({"subjects": "orders", "ending": datetime(2026, 1, 1)}, "no time zone"),
        ({"subjects": "orders", "tasks": 0}, "tasks is at least 1"),
        ({"subjects": "orders", "headers_as_columns": ["offset"]}, "would hide a column"),
        ({"subjects": "orders", "json": "id LONG LONG"}, "LONG"),
        ({"subjects": "order*"}, r"order\* is a pattern"),
        ({"subjects": "orders", "json": "id LONG", "on_bad": "skip"}, "on_bad is FAILFAST, PERM"),
        (
            {"subjects": "orders", "json": "_corrupt_record STRING", "on_bad": "permissive"},
            "without _corrupt_record",
        ),
    ]
    for wish, line in wrong:
        with pytest.raises(ConnectorError, match=line) as caught:
            read_subject(spark, kumquat.bootstrap, **wish)
        assert "\n" not in str(caught.value)


def test_writing_a_column_that_is_not_there_writes_nothing(
    spark: SparkSession, kumquat: TestBroker
) -> None:
    produce(kumquat, "out", [b"before"])
    with pytest.raises(ConnectorError, match="no column value to write; there are id"):
        write_subject(spark.range(3), kumquat.bootstrap, "out")
    stream = stream_subject(spark, kumquat.bootstrap, "out")
    with pytest.raises(ConnectorError, match="checkpointLocation"):
        write_subject(stream, kumquat.bootstrap, "copy")
    assert len(consume(kumquat, "out")) == 1
