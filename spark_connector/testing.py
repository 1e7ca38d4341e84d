"""One small Spark for all tests of a run.

Starting Spark takes ten seconds and more, so every conftest that needs one makes its `spark` fixture,
of session scope, out of this. Whichever comes first starts it; the others get the same. It has two
task slots, no web page, and two partitions where Spark would take two hundred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_connector.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: dict[str, str | int | bool] = {
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.log.level": "ERROR",
    "spark.sql.streaming.stopTimeout": "60s",
}


def small_spark() -> SparkSession:
    return spark_session("kumquat tests", "local[2]", **SMALL)
