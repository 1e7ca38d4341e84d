"""Spark's sink writes messages for later: a header is all that it takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from compat_tests.spark.stories import SECONDS, batch, messages, numbers, values, write
from compat_tests.support import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELAY = 4000
"""Milliseconds."""


@pytest.mark.differs("Kafka knows no delayed messages")
def test_rows_with_a_delay_header_come_when_they_are_due(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    """Plain rows, delayed ones, and some due at a time of their own, all in one job: so in the same
    batches of its producers."""
    at = int(time.time() * 1000) + 2 * DELAY
    rows = spark.range(30).selectExpr(
        "cast(id as string) as value",
        "array(struct(element_at(array('plain', 'qmq-delay-ms', 'qmq-deliver-at'),"
        " cast(id % 3 + 1 as int)) as key,"
        f" cast(if(id % 3 = 1, '{DELAY}', '{at}') as binary) as value)) as headers",
    )
    write(rows, bootstrap, topic=topic, includeHeaders="true")
    at_once = messages(bootstrap, topic)
    now = int(time.time() * 1000)
    assert {int(each.value) for each in at_once} >= set(range(0, 30, 3))
    dues = [int(dict(each.headers).get("qmq-due-ms", b"0")) for each in at_once]
    assert all(due <= now for due in dues), "seen before it is due"
    eventually(lambda: values(bootstrap, topic) == list(range(30)), "all have come", SECONDS)
    for each in messages(bootstrap, topic):
        headers = dict(each.headers)
        kind = int(each.value) % 3
        assert ("qmq-due-ms" in headers) == (kind > 0)
        if kind:
            due, created = int(headers["qmq-due-ms"]), int(headers["qmq-created-ms"])
            # Not equal: on a slow machine a row may come to the broker when `at` is past.
            assert due >= (created + DELAY if kind == 1 else at)
            assert each.timestamp >= due
    # Where the delayed ones would have been are holes, which readers must step over.
    assert numbers(batch(spark, bootstrap, subscribe=topic, minPartitions=4)) == list(range(30))
