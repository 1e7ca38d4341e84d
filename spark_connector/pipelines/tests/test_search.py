"""Search in a subject and in its archive: the same messages, no others, and what cannot be looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.spark.cli import main
from kumquat.spark.pipelines.archive.command import archive
from kumquat.spark.pipelines.common.sources import Source
from kumquat.spark.pipelines.search.command import search
from kumquat.spark.tests.command import with_shared_spark
from kumquat.spark.tests.messages import produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kumquat.testing import TestBroker

__all__ = ["with_shared_spark"]


def offsets(found: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in found.select("offset").collect())


@pytest.mark.short
def test_a_search_that_finds_other_messages_than_were_asked_for(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    produce(kumquat.bootstrap, "orders", [b"value %d" % n for n in range(30)] + [b"\xff7", None])
    archive(spark, kumquat.bootstrap, "orders", tmp_path / "archive")
    for source in (
        Source(kumquat.bootstrap, ["orders"]),
        Source(subjects=["orders"], archive=tmp_path / "archive"),
    ):
        assert offsets(search(spark, source, key=b"k7")) == [7]
        assert offsets(search(spark, source, key=b"k8")) == []
        assert offsets(search(spark, source, header=("n", b"8"))) == [8]
        assert offsets(search(spark, source, header=("n", b"9"))) == []
        assert offsets(search(spark, source, text="7")) == [7, 17, 27, 30]
        assert offsets(search(spark, source, text="7", key=b"k17")) == [17]


@pytest.mark.usefixtures("with_shared_spark")
def test_a_search_as_a_command_that_hides_that_there_is_more(
    kumquat: TestBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(kumquat.bootstrap, "orders", [b"value %d" % n for n in range(30)])
    line = ["search", "orders", "--bootstrap", kumquat.bootstrap]
    assert main([*line, "--text", "value 2", "--most", "2"]) == 0
    shown = capsys.readouterr().out
    assert "2 messages" in shown
    assert "there are older ones" in shown
    assert shown.index("value 28") < shown.index("value 29")
    assert main([*line, "--text", "nowhere"]) == 0
    assert "0 messages" in capsys.readouterr().out
    for wrong, said in (
        ([], "say what to look for"),
        (["--header", "n"], "write NAME=VALUE"),
        (["--key", "k", "--most", "0"], "--most is at least 1"),
        (["--key", "k", "--archive", "nowhere"], "no archive in"),
    ):
        assert main([*line, *wrong]) == 2
        assert said in capsys.readouterr().err
