"""Spark on Kumquat: sessions, subjects as DataFrames, and pipelines.

    from kumquat.spark import read_subject, spark_session

    spark = spark_session()
    read_subject(spark, "127.0.0.1:9092", "orders").groupBy("key").count().show()

`session.py` starts Spark with the connector that fits it; `subjects.py` reads, streams and writes;
`offsets.py` asks the broker where subjects begin and end; `pipelines/` is what an operator runs, each a
function and a command of `kumquat-spark`. A problem that a person can fix is a ConnectorError of one
line; `with clear_errors():` turns what Spark raises in a job of your own into one.

The broker knows nothing of this package, and nothing of the broker is imported here: both speak Kafka's
protocol, through Spark's own connector and kafka-python.
"""

from typing import TYPE_CHECKING

from kumquat.spark.errors import ConnectorError, clear_errors, needed

if not TYPE_CHECKING and needed():
    # Without PySpark only the package itself can be imported: `kumquat-spark` says what is missing.
    def __getattr__(name: str) -> None:
        raise ImportError(needed()) if name in __all__ else AttributeError(name)

else:
    from kumquat.spark.pipelines.archive.command import archive, read_archive
    from kumquat.spark.pipelines.common.sources import Source
    from kumquat.spark.pipelines.dedupe.command import dedupe
    from kumquat.spark.pipelines.reconcile.command import reconcile
    from kumquat.spark.pipelines.replay.command import replay
    from kumquat.spark.pipelines.replay.plan import Selection
    from kumquat.spark.pipelines.report.command import report, write_page
    from kumquat.spark.session import spark_session
    from kumquat.spark.subjects import read_subject, stream_subject, write_subject

__all__ = [
    "ConnectorError",
    "Selection",
    "Source",
    "archive",
    "clear_errors",
    "dedupe",
    "read_archive",
    "read_subject",
    "reconcile",
    "replay",
    "report",
    "spark_session",
    "stream_subject",
    "write_page",
    "write_subject",
]
