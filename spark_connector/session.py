"""A SparkSession that can talk to Kumquat.

Spark's Kafka connector must be of the same version as Spark and of the same Scala: both are read
from the installed PySpark, and Spark fetches the connector by `spark.jars.packages`, as all its
packages (so `spark.jars.repositories`, `spark.jars.ivySettings` and the like hold for it too).

While Spark starts, the output of its JVM is held back. If the start succeeds, nobody needs it; if it
fails, the line with the reason becomes a ConnectorError. After that the JVM's messages go to this
program's stderr, as with any PySpark.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kumquat.spark.errors import ConnectorError, explain

_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_NOT_HAD = re.compile(r"(?:unresolved dependency|download failed): ([^\s:,\]!]+)")
_NO_JAVA = re.compile(r"JAVA_HOME is not set|bin/java: |java: command not found")
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
STOP_SECONDS = 10.0
# Spark keeps the consumers of a job that has ended, each with what it fetched and nobody took, for five
# minutes: megabytes for each job of a pipeline. A stream with a trigger within this time keeps its own.
_FORGET = {
    f"spark.kafka.consumer.{cache}.{what}": seconds
    for cache in ("cache", "fetchedData.cache")
    for what, seconds in (("timeout", "20s"), ("evictorThreadRunInterval", "5s"))
}


def spark_session(
    name: str = "kumquat", master: str = "local[*]", **conf: str | int | bool
) -> SparkSession:
    """A session with the connector; the active one, if there is one.

    Options are Spark's, with _ for each dot, or as they are:

        spark_session("report", spark_ui_enabled=False)
        spark_session("report", **{"spark.sql.shuffle.partitions": 8})

    Days and hours are those of UTC unless `spark.sql.session.timeZone` says otherwise.
    """
    options = _options(name, master, conf)
    if SparkContext._gateway is None:
        _start(options)
    running = SparkSession.getActiveSession() is not None
    asked = {_key(key) for key in conf}
    builder = SparkSession.builder
    for key, value in options.items():
        if key in asked or not running:
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _check_connector(spark.sparkContext)
    return spark


def connector_package() -> str:
    """The coordinates of the connector that fits the installed PySpark."""
    home = Path(pyspark.__file__).parent
    scala = sorted((home / "jars").glob("scala-library-*.jar"))
    release = _RELEASE.match(pyspark.__version__)
    if not scala or release is None:
        raise ConnectorError(
            f"PySpark {pyspark.__version__} in {home} is no release with jars, so no connector "
            "fits it: install a released one, pyspark==4.0.0 for instance"
        )
    binary = ".".join(scala[-1].stem.removeprefix("scala-library-").split(".")[:2])
    return f"org.apache.spark:spark-sql-kafka-0-10_{binary}:{release[0]}"


def _options(name: str, master: str, conf: dict[str, str | int | bool]) -> dict[str, str]:
    options = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.sql.session.timeZone": "UTC",
        **_FORGET,
    }
    if master.startswith("local"):
        # No other machine takes part: do not depend on what this one's name resolves to.
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    options |= {_key(key): _text(value) for key, value in conf.items()}
    packages = [options.get("spark.jars.packages"), connector_package()]
    options["spark.jars.packages"] = ",".join(filter(None, packages))
    return options


def _key(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _start(options: dict[str, str]) -> None:
    """Starts the JVM here and not in PySpark, to read its output when it fails."""
    conf = SparkConf().setAll(list(options.items()))
    jvm = _Messages()
    try:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            conf, popen_kwargs={"stderr": jvm.write_end}
        )
        jvm.close_write_end()
        SparkContext(conf=conf, gateway=gateway)
    except (PySparkRuntimeError, Py4JError, OSError) as error:
        jvm.close_write_end()
        raise ConnectorError(_why(jvm.so_far(), options, error)) from error
    jvm.pass_on()


class _Messages:
    """What the JVM writes to stderr: kept while it starts, passed on afterwards."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self._kept: list[str] | None = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, args=(read_end,), daemon=True)
        self._thread.start()

    def close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
        self.write_end = -1

    def so_far(self) -> list[str]:
        """All lines; the JVM has ended, or is about to."""
        self._thread.join(STOP_SECONDS)
        with self._lock:
            return list(self._kept or [])

    def pass_on(self) -> None:
        with self._lock:
            self._kept = None

    def _read(self, read_end: int) -> None:
        with open(read_end, errors="replace") as lines:
            for line in lines:
                with self._lock:
                    if self._kept is not None:
                        self._kept.append(line.strip())
                        continue
                with contextlib.suppress(OSError, ValueError):
                    sys.stderr.write(line)


def _why(lines: list[str], options: dict[str, str], error: Exception) -> str:
    missing = _NOT_HAD.findall("\n".join(lines))
    if missing:
        return (
            f"Spark cannot get {', '.join(dict.fromkeys(missing))}, which the connector "
            f"{options['spark.jars.packages']} needs: see that the network or a mirror "
            "(spark.jars.repositories) has it, or install pyspark==4.0.0"
        )
    if any(_NO_JAVA.search(line) for line in lines):
        return "Spark needs Java 17 or newer: install it, or set JAVA_HOME"
    said = explain("\n".join(lines)) if lines else str(error)
    return f"Spark did not start: {said}"


def _check_connector(spark: SparkContext) -> None:
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_PROVIDER)
    except Py4JError:
        raise ConnectorError(
            "the Spark session that is active has no Kafka connector: start it with "
            f"spark.jars.packages={connector_package()}, or let spark_session() start it"
        ) from None
