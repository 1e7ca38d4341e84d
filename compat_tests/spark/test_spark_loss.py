"""Retention has deleted what Spark asks for: loud, unless failOnDataLoss is false."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from compat_tests.spark.stories import SECONDS, Copy, batch, earliest, fill, numbers, stream
from compat_tests.support import T0, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

HOUR = 3_600_000
OLD = T0 - 2 * HOUR
LOUD = pytest.raises((PySparkException, Py4JError), match=r"data may have been lost|DATA_LOSS")


def expire(bootstrap: str, topic: str, upto: int) -> None:
    """Retention takes all that is OLD, which is all below `upto`."""
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": str(HOUR)})
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.alter_configs([resource])
    eventually(lambda: earliest(bootstrap, topic) == upto, f"all below {upto} goes", SECONDS)


def test_batch_over_deleted_offsets_fails_unless_told_not_to(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    fill(bootstrap, topic, range(10), timestamp_ms=OLD)
    expire(bootstrap, topic, 10)
    fill(bootstrap, topic, range(10, 15))
    start = json.dumps({topic: {"0": 3}})

    def read(fail: bool) -> list[int]:
        options = {"startingOffsets": start, "failOnDataLoss": fail}
        return numbers(batch(spark, bootstrap, subscribe=topic, **options))

    assert read(fail=False) == list(range(10, 15))
    with LOUD:
        read(fail=True)


def test_stream_overtaken_by_retention_fails_unless_told_not_to(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    copy = Copy(spark, tmp_path)
    fill(bootstrap, topic, range(5), timestamp_ms=OLD)
    copy.run(stream(spark, bootstrap, subscribe=topic))
    fill(bootstrap, topic, range(5, 10), timestamp_ms=OLD)
    expire(bootstrap, topic, 10)
    fill(bootstrap, topic, range(10, 15))
    with LOUD:
        copy.run(stream(spark, bootstrap, subscribe=topic))
    assert copy.numbers() == list(range(5))
    copy.run(stream(spark, bootstrap, subscribe=topic, failOnDataLoss=False))
    assert copy.numbers() == [*range(5), *range(10, 15)]
