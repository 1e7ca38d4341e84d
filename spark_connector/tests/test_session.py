"""Starting Spark: the connector is there, and what stops a start is one line."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark
import pytest

from kumquat.spark.session import connector_package, spark_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SECONDS = 180


def start_elsewhere(code: str, **environment: str) -> str:
    """Runs the code in a Python of its own; gives the text of the ConnectorError that ended it."""
    whole = (
        "import sys\n"
        "from kumquat.spark.errors import ConnectorError\n"
        "from kumquat.spark.session import spark_session\n"
        f"try:\n    {code}\nexcept ConnectorError as error:\n"
        "    print(repr(str(error)))\n    sys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", whole],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()[-1]


@pytest.mark.short
def test_connector_has_the_version_of_the_installed_pyspark(spark: SparkSession) -> None:
    assert connector_package().endswith(f":{pyspark.__version__}")
    assert connector_package() in spark.sparkContext.getConf().get("spark.jars.packages", "")


@pytest.mark.short
def test_second_session_is_the_first_one(spark: SparkSession) -> None:
    assert spark_session("another").sparkContext is spark.sparkContext


@pytest.mark.long
def test_connector_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    """Ivy with an empty cache and a settings file that knows an empty folder only."""
    settings = tmp_path / "settings.xml"
    settings.write_text(
        f"""<ivysettings><settings defaultResolver="none"/>
        <caches defaultCacheDir="{tmp_path}/cache"/>
        <resolvers><filesystem name="none">
        <artifact pattern="{tmp_path}/[artifact]-[revision].[ext]"/>
        </filesystem></resolvers></ivysettings>"""
    )
    said = start_elsewhere(
        f"spark_session(spark_jars_ivy='{tmp_path}/ivy', spark_jars_ivySettings='{settings}')"
    )
    assert r"\n" not in said
    assert "spark-sql-kafka-0-10_2.13" in said
    assert "spark.jars.repositories" in said


def test_missing_java_is_one_line(tmp_path: Path) -> None:
    said = start_elsewhere("spark_session()", JAVA_HOME=str(tmp_path), PATH="/usr/bin:/bin")
    assert r"\n" not in said
    assert "Java 17" in said
