"""What the tests of the pipelines share: one Spark for the whole run, and a broker of each test's own
(the fixture `kumquat`, which comes with the broker)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_connector.testing import small_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = small_spark()
    yield session
    session.stop()
