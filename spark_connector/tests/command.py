"""`kumquat-spark` as a test starts it: in a process of its own, with a small and silent Spark; or in this
process, with the Spark that is there (the fixture `with_shared_spark`, and `main`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kumquat.spark.testing import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def with_shared_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes the Spark that is there, and leaves it running."""
    monkeypatch.setattr("kumquat.spark.session.spark_session", lambda *_, **__: spark)
    monkeypatch.setattr("kumquat.spark.cli._stop", lambda _: None)


def command(*arguments: str, bootstrap: str) -> list[str]:
    line = [sys.executable, "-m", "kumquat.spark.cli", *arguments, "--bootstrap", bootstrap]
    for name, value in SMALL.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        line += ["--conf", f"{name}={text}"]
    return [*line, "--conf", "spark.log.level=OFF"]
