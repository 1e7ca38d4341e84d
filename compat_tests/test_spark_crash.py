"""The broker is killed with -9 in the middle of a stream, and started again: the query goes on, with
nothing lost or doubled.

The query copies from topic to topic, so its reads, its questions for offsets and its idempotent writes
are all under way when the broker dies. A query that ends in an error would be started again by its
operator and write its last micro-batch twice, on Kafka too; that it does not end is part of the story.

The story needs a broker to kill, so it starts its own: Kumquat, or Apache Kafka.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

import pytest

from bench.kafka import Kafka
from compat_tests.spark import SECONDS, fill, sizes, stream, values
from compat_tests.support import eventually
from gateway.testing import broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KILLS = 3
BETWEEN = 40
AT_ONCE = 10


class Mortal(Protocol):
    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> object: ...


@pytest.fixture
def mortal(pytestconfig: pytest.Config) -> Iterator[Mortal]:
    chosen = pytestconfig.getoption("--broker")
    if chosen == "kumquat":
        with broker() as running:
            yield running
    elif chosen == "kafka":
        with Kafka() as kafka:
            yield kafka
    else:
        pytest.skip("needs a broker that it may kill")


def has_read(query: StreamingQuery, count: int) -> bool:
    if not query.isActive:
        raise AssertionError(f"the query ended: {query.exception()}")
    return sum(sizes(query)) >= count


def test_stream_from_topic_to_topic_outlives_the_broker(
    spark: SparkSession, mortal: Mortal, tmp_path: Path
) -> None:
    written = 0
    fill(mortal.bootstrap, "from", range(BETWEEN))
    source = stream(
        spark, mortal.bootstrap, subscribe="from", minPartitions=2, maxOffsetsPerTrigger=AT_ONCE
    )
    writer = source.select("value").writeStream.format("kafka").option("topic", "to")
    writer = writer.option("kafka.bootstrap.servers", mortal.bootstrap)
    writer = writer.option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="50 milliseconds").start()
    try:
        for _ in range(KILLS):
            # One micro-batch of this round's four is done: the next is under way.
            eventually(partial(has_read, query, written + AT_ONCE), "it goes on", SECONDS)
            mortal.kill()
            mortal.start()
            written += BETWEEN
            fill(mortal.bootstrap, "from", range(written, written + BETWEEN))
        written += BETWEEN
        eventually(partial(has_read, query, written), "it has read all", SECONDS)
    finally:
        query.stop()
    assert values(mortal.bootstrap, "to") == list(range(written))
