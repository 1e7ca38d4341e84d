"""The broker is killed with -9 in the middle of a stream, and started again: the query goes on, with
nothing lost or doubled.

The query copies from topic to topic. Its rows are slow, and its fetches small, so a micro-batch is a
second of reading and of idempotent writing, and the broker dies when the target has some of the batch's
rows but not all. That it did is proven afterwards, by the times that Spark's producer gave the rows:
the batch has rows from before the kill, and more from after it than a reader can have had in hand.
A kill that came too late, as on a busy machine it may, is not counted, and there is another.

A query that ends in an error would be started again by its operator and write its last micro-batch
twice, on Kafka too; that it does not end is part of the story.

The story needs a broker to kill, so it starts its own: Kumquat, or Apache Kafka.
"""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from bench.brokers.kafka import Kafka
from compat_tests.spark.stories import SECONDS, messages, sizes, slowly, stream, values
from compat_tests.support import eventually
from compat_tests.wire.connection import Wire, create_topic
from kumquat.testing import broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KILLS = 3
MOST_TRIES = 12
AT_ONCE = 60
"""Rows of a micro-batch, which two tasks share."""
ROW_MS = 25
FETCH_BYTES = 400
IN_HAND = 16
"""More rows than the two readers can hold: each message is a batch of more than 68 bytes."""


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


def fill(bootstrap: str, numbers: range) -> None:
    """Each in a batch of its own: small fetches are small only then."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, batch_size=0)
    futures = [producer.send("from", b"%d" % n) for n in numbers]
    for future in futures:
        future.get(SECONDS)
    producer.close(timeout=SECONDS)


def copy(spark: SparkSession, bootstrap: str, checkpoint: Path) -> StreamingQuery:
    source = stream(
        spark,
        bootstrap,
        subscribe="from",
        minPartitions=2,
        minOffsetsPerTrigger=AT_ONCE,
        maxOffsetsPerTrigger=AT_ONCE,
        **{"kafka.max.partition.fetch.bytes": FETCH_BYTES, "kafka.max.poll.records": 2},
    )
    writer = slowly(source.select("value"), f"{ROW_MS}L").writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", "to")
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="50 milliseconds").start()


def goes_on(query: StreamingQuery) -> StreamingQuery:
    if not query.isActive:
        raise AssertionError(f"the query ended: {query.exception()}")
    return query


def has_read(query: StreamingQuery, count: int) -> bool:
    return sum(sizes(goes_on(query))) >= count


def kill_in_a_batch(query: StreamingQuery, mortal: Mortal, done: int) -> tuple[int, int]:
    """Kills it when some rows above `done` are written; gives the times around the kill, in ms."""
    place = TopicPartition("to", 0)
    # Closed before the kill: kafka-python, asked where nobody listens any more, leaves sockets behind.
    with closing(KafkaConsumer(bootstrap_servers=mortal.bootstrap, group_id=None)) as consumer:

        def has_begun() -> bool:
            goes_on(query)
            return bool(consumer.end_offsets([place])[place] > done)

        eventually(has_begun, "the batch begins to arrive", SECONDS)
    before = time.time_ns() // 1_000_000
    mortal.kill()
    return before, time.time_ns() // 1_000_000 + 1


def test_stream_from_topic_to_topic_outlives_a_broker_killed_within_a_batch(
    spark: SparkSession, mortal: Mortal, tmp_path: Path
) -> None:
    for topic in ("from", "to"):
        with Wire(mortal.bootstrap) as wire:
            create_topic(wire, topic)
    # All of the first batch before the query: Spark takes whatever is there for its first one.
    fill(mortal.bootstrap, range(AT_ONCE))
    query = copy(spark, mortal.bootstrap, tmp_path)
    kills: list[int] = []
    """Of each kill, how many of its batch's rows Spark sent when the broker was dead already."""
    try:
        while sum(IN_HAND < rows < AT_ONCE for rows in kills) < KILLS:
            assert len(kills) < MOST_TRIES, f"no kill within a batch: {kills}"
            done = AT_ONCE * len(kills)
            before, after = kill_in_a_batch(query, mortal, done)
            mortal.start()
            eventually(partial(has_read, query, done + AT_ONCE), "the batch is done", SECONDS)
            times = [each.timestamp for each in messages(mortal.bootstrap, "to")[done:]]
            assert min(times) <= before
            kills.append(sum(sent > after for sent in times))
            fill(mortal.bootstrap, range(done + AT_ONCE, done + 2 * AT_ONCE))
        written = AT_ONCE * (len(kills) + 1)
        eventually(partial(has_read, query, written), "it has read all", SECONDS)
    finally:
        query.stop()
    assert set(sizes(query)) == {AT_ONCE}
    assert values(mortal.bootstrap, "to") == list(range(written))
