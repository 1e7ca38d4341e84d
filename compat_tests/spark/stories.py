"""What the stories with a real Spark share.

They use Spark's own `format("kafka")`, unmodified. spark_connector only starts Spark (the fixture
`spark`): everything that an application without knowledge of Kumquat does must work.
Messages have the values b"0", b"1", … so that a story can say which ones it expects by number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from compat_tests.support import T0

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECONDS = 180
"""How long any one step may take before it has failed; Spark on a busy machine is slow."""
STEP = 10
"""Milliseconds between the timestamps of two messages, the first of which is T0."""


def fill(bootstrap: str, topic: str, numbers: Iterable[int], **record: Any) -> None:
    """One message a number; number n has the timestamp T0 + n * STEP unless `record` says otherwise."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    futures = [
        producer.send(topic, b"%d" % n, **({"timestamp_ms": T0 + n * STEP} | record))
        for n in numbers
    ]
    for future in futures:
        future.get(SECONDS)
    producer.close(timeout=SECONDS)


def messages(bootstrap: str, topic: str) -> list[Any]:
    """All that the topic holds now, read by kafka-python."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    place = TopicPartition(topic, 0)
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        found: list[Any] = []
        while consumer.position(place) < end:
            found += consumer.poll(timeout_ms=1000).get(place, [])
        return found
    finally:
        consumer.close()


def values(bootstrap: str, topic: str) -> list[int]:
    """The numbers of the messages that the topic holds now, sorted."""
    return sorted(int(each.value) for each in messages(bootstrap, topic))


def earliest(bootstrap: str, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    place = TopicPartition(topic, 0)
    try:
        return int(consumer.beginning_offsets([place])[place])
    except KafkaError:
        return -1
    finally:
        consumer.close()


def batch(spark: SparkSession, bootstrap: str, **options: object) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**texts(options)).load()


def stream(spark: SparkSession, bootstrap: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**texts({"startingOffsets": "earliest"} | options)).load()


def texts(options: dict[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def numbers(frame: DataFrame) -> list[int]:
    """The numbers of the messages, sorted: what was lost or doubled shows."""
    return sorted(int(row.value) for row in frame.select("value").collect())


def slowly(frame: DataFrame, milliseconds: str) -> DataFrame:
    """Each row takes that long (an SQL expression) on its way from the source to the sink, so that a
    story can step into the middle of a batch."""
    return frame.where(f"java_method('java.lang.Thread', 'sleep', {milliseconds}) is not null")


def write(frame: DataFrame, bootstrap: str, **options: str) -> None:
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**options).save()


class Copy:
    """A stream from a topic into Parquet files, which Spark writes exactly once. A new query on the
    same folder continues where the last one stopped."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._files = str(folder / "files")
        self._checkpoint = str(folder / "checkpoint")

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.select("value", "offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", self._checkpoint)
        return writer.trigger(**trigger).start(self._files)

    def run(self, frame: DataFrame) -> StreamingQuery:
        """Waits until all that is there now has been copied."""
        query = self.start(frame, availableNow=True)
        assert query.awaitTermination(SECONDS), "the query did not end"
        return query

    def numbers(self) -> list[int]:
        return numbers(self._spark.read.schema("value binary").parquet(self._files))


def sizes(query: StreamingQuery) -> list[int]:
    """How many messages each micro-batch had that had any."""
    return [
        progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]
    ]
