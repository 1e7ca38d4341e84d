"""One small Spark for all tests of a run, as pytest fixtures.

    from kumquat.spark.testing import spark, spark_sockets   # in a conftest.py

Starting Spark takes ten seconds and more, so `spark` has session scope, and several conftests that
take it share one Spark: whichever comes first starts it. It has two task slots, no web page, and two
partitions where Spark would take two hundred.

PySpark leaves the sockets of its answers to the garbage collector. Where warnings are errors this
would fail whichever test runs when they are collected, so `spark_sockets` collects them, silently,
after each test that used Spark.
"""

from __future__ import annotations

import gc
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kumquat.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test is over before a better compiler has paid for itself."""
SMALL: dict[str, str | int | bool] = {
    "spark.driver.extraJavaOptions": _JVM,
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.log.level": "ERROR",
    "spark.sql.streaming.stopTimeout": "180s",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with _unclosed_sockets():
        session = small_spark()
    yield session
    with _unclosed_sockets():
        session.stop()


@pytest.fixture(autouse=True)
def spark_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    if "spark" not in request.fixturenames:
        yield
        return
    with _unclosed_sockets():
        yield


def small_spark() -> SparkSession:
    """For a program of its own, which a test starts to kill it."""
    return spark_session("kumquat tests", "local[2]", **SMALL)


@contextmanager
def _unclosed_sockets() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
        yield
        gc.collect()
