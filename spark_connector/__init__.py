"""Spark on Kumquat: sessions, subjects as DataFrames, and pipelines.

    from spark_connector import read_subject, spark_session

    spark = spark_session()
    read_subject(spark, "127.0.0.1:9092", "orders").groupBy("key").count().show()

`session.py` starts Spark with the connector that fits it; `subjects.py` reads, streams and writes;
`offsets.py` asks the broker where subjects begin and end; `pipelines/` is what an operator runs, each
a function and a command of `kumquat-spark`. What a person can mend is a ConnectorError of one line;
what Spark raises in a job of your own is made one by `with clear_errors():` around it.

Nothing here is known to the broker, and nothing of the broker is imported: over the wire it is
Kafka's protocol, spoken by Spark's own connector and by kafka-python.
"""

from typing import TYPE_CHECKING

from spark_connector.errors import ConnectorError, clear_errors, needed

if not TYPE_CHECKING and needed():
    # The package can be imported, so that `kumquat-spark` can say what is missing; nothing in it can.
    def __getattr__(name: str) -> None:
        raise ImportError(needed()) if name in __all__ else AttributeError(name)

else:
    from spark_connector.pipelines.archive import archive, read_archive
    from spark_connector.pipelines.dedupe import dedupe
    from spark_connector.pipelines.reconcile import reconcile
    from spark_connector.pipelines.replay import replay
    from spark_connector.pipelines.replay_plan import Selection
    from spark_connector.pipelines.report import report, write_page
    from spark_connector.pipelines.sources import Source
    from spark_connector.session import spark_session
    from spark_connector.subjects import read_subject, stream_subject, write_subject

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
