"""Two subjects, or a subject and its archive, with known faults put in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.archive import archive
from spark_connector.pipelines.identity import identity_text
from spark_connector.pipelines.neighbours import with_highest, with_previous
from spark_connector.pipelines.reconcile import (
    HARMLESS,
    WRONG,
    Reconciliation,
    Sample,
    reconcile,
    summary,
)
from spark_connector.pipelines.sources import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from gateway.testing import TestBroker


@pytest.fixture
def producer(kumquat: TestBroker) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap)
    yield producer
    producer.close()


def send_ids(producer: KafkaProducer, subject: str, ids: Sequence[int]) -> None:
    for number in ids:
        producer.send(subject, b"v", headers=[("message-id", b"m%d" % number)])
    producer.flush()


def faults(found: Reconciliation) -> dict[str, int]:
    return {what: number for what, number in found.counts.items() if number}


def test_every_fault_is_found_once(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    send_ids(producer, "left", [0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9])
    send_ids(producer, "right", [0, 2, 1, 3, 4, 4, 4, 6, 7, 8, 9, 99])
    left, right = (Source(kumquat.bootstrap, [name]) for name in ("left", "right"))

    found = reconcile(spark, left, right)

    assert faults(found) == {
        "matched": 9,
        "missing": 1,
        "extra": 1,
        "doubled left": 1,
        "doubled right": 2,
        "out of order": 1,
    }
    assert found.samples["missing"] == [Sample("id m5", 6, None)]
    assert found.samples["extra"] == [Sample("id m99", None, 11)]
    assert found.samples["out of order"] == [Sample("id m2", 2, 1)]
    assert not summary(found, "left and right").ok
    assert "id m99" in summary(found, "left and right").text()


def test_keys_that_come_often_are_taken_for_doubles(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    for subject, keys in (("l", "abaab"), ("r", "ababbcc")):
        for key in keys:
            producer.send(subject, b"v", key=key.encode())
    producer.flush()
    left, right = (Source(kumquat.bootstrap, [name]) for name in ("l", "r"))

    found = reconcile(spark, left, right, order="key")
    assert faults(found) == {"matched": 4, "missing": 1, "extra": 2, "doubled right": 1}
    same = reconcile(spark, left, left)
    assert faults(same) == {"matched": 5}
    assert same.ok


def test_an_archive_that_is_behind_or_older_than_retention_is_called_wrong(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer, tmp_path: Path
) -> None:
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.create_topics([NewTopic("kept", 1, 1)])
        for _ in range(10):
            producer.send("kept", b"no id, no key")
        producer.flush()
        archive(spark, kumquat.bootstrap, "kept", tmp_path)
        for _ in range(3):
            producer.send("kept", b"not archived")
        producer.flush()
        admin.delete_records({TopicPartition("kept", 0): 4})

    subject = Source(kumquat.bootstrap, ["kept"])
    found = reconcile(spark, subject, Source(subjects=["kept"], archive=tmp_path))

    assert faults(found) == {"matched": 6, "expired": 4, "not archived yet": 3}
    assert found.ok


def test_a_second_side_that_is_not_there(spark: SparkSession, kumquat: TestBroker) -> None:
    side = Source(kumquat.bootstrap, ["nowhere"])
    with pytest.raises(ConnectorError, match="no subject nowhere"):
        reconcile(spark, side, side)
    with pytest.raises(ConnectorError, match="not by 'luck'"):
        reconcile(spark, side, side, by="luck")


def test_neighbours_are_lost_between_ranges(spark: SparkSession) -> None:
    """Offsets on both sides of the borders of ranges, and ranges without any."""
    width = 1 << 16
    offsets = [0, 1, width - 1, width, width + 7, 5 * width, 5 * width + 1]
    values = [3, 9, 2, 4, 1, 8, 12]
    rows = spark.createDataFrame(list(zip(offsets, values, strict=True)), "o long, v long")
    before = with_previous(rows, "o", "v", "previous").orderBy("o").collect()
    assert [row["previous"] for row in before] == [None, *values[:-1]]
    highest = with_highest(rows, "o", "v", "highest").orderBy("o").collect()
    assert [row["highest"] for row in highest] == [3, 9, 9, 9, 9, 9, 12]


def test_an_identity_that_is_no_text() -> None:
    assert identity_text(b"korder") == "key order"
    assert identity_text(b"i\xff\x00") == "id 0xff00"
    assert identity_text(b"i") == "id 0x"


def test_a_verdict_that_the_summary_leaves_out() -> None:
    nothing = dict.fromkeys((*WRONG, *HARMLESS), 0)
    for what in WRONG:
        assert not summary(Reconciliation(nothing | {what: 1}, {}), "a and b").ok
    assert "expired" in summary(Reconciliation(nothing | {"expired": 2}, {}), "a and b").text()
