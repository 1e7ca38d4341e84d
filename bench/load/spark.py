"""Spark jobs that are measured, each in a Python and a JVM of its own: no broker gains from a
JVM that the runs on another broker have warmed up.

A job runs once or more before the clock starts, to warm up the JVM. What is timed is Spark's work alone:
the job, from the call to its result.
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from bench.brokers import proc
from bench.load.child import Child, main
from kumquat.spark import read_subject, spark_session, stream_subject, write_subject
from kumquat.spark.pipelines.archive.command import archive
from kumquat.spark.pipelines.common.summary import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
TIMES = 3
REPORTS = 300


@dataclass(frozen=True)
class Read:
    """Count and sum of lengths of all that the topic has: by `read_subject` with two tasks and with one,
    and by Spark's own `format("kafka")` with two."""

    bootstrap: str
    pid: int
    topic: str
    records: int


@dataclass(frozen=True)
class Write:
    bootstrap: str
    pid: int
    topic: str
    rows: int
    size: int


@dataclass(frozen=True)
class Idle:
    """A stream with nothing to read, which asks again and again whether there is."""

    bootstrap: str
    topic: str
    folder: str
    seconds: float


@dataclass(frozen=True)
class Archive:
    bootstrap: str
    topic: str
    folder: str


@dataclass(frozen=True)
class Timed:
    seconds: float
    broker_cpu_seconds: float


@dataclass(frozen=True)
class Readings:
    seconds: float
    seconds_one_task: float
    seconds_stock: float
    """With no option but those that say what to read, and by how many tasks."""
    broker_cpu_seconds: float
    """Of one reading."""


@dataclass(frozen=True)
class Triggers:
    count: int
    milliseconds: float
    """Of one, on average."""


@dataclass(frozen=True)
class Archived:
    messages: int
    seconds: float
    early_bytes: int
    """Of live objects in the driver's heap when a third was archived."""
    late_bytes: int
    early_python_bytes: int
    """Of the driver's Python, which holds the archive's state: resident, in the same thirds."""
    late_python_bytes: int


def read(work: Read) -> Readings:
    return Child("bench.load.spark", work, Readings).finish()


def write(work: Write) -> Timed:
    return Child("bench.load.spark", work, Timed).finish()


def idle(work: Idle) -> Triggers:
    return Child("bench.load.spark", work, Triggers).finish()


def archived(work: Archive) -> Archived:
    return Child("bench.load.spark", work, Archived).finish()


def _spark() -> SparkSession:
    return spark_session(
        "bench",
        f"local[{TASKS}]",
        spark_ui_enabled=False,
        spark_ui_showConsoleProgress=False,
        spark_log_level="ERROR",
    )


def _timed(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def _read(work: Read) -> Readings:
    spark = _spark()

    def count(rows: DataFrame) -> None:
        records, octets = rows.agg(sql.count("*"), sql.sum(sql.length("value"))).collect()[0]
        if records < work.records or not octets:
            raise RuntimeError(f"Spark read {records} of {work.records} records")

    def stock() -> None:
        options = {
            "kafka.bootstrap.servers": work.bootstrap,
            "subscribe": work.topic,
            "minPartitions": str(TASKS),
        }
        count(spark.read.format("kafka").options(**options).load())

    jobs = [
        lambda: count(read_subject(spark, work.bootstrap, work.topic, tasks=TASKS)),
        lambda: count(read_subject(spark, work.bootstrap, work.topic, tasks=1)),
        stock,
    ]
    for job in jobs:
        job()
    cpu = proc.cpu_seconds(work.pid)
    # In turn, so that other load on the machine affects all of them.
    rounds = [[_timed(job) for job in jobs] for _ in range(TIMES)]
    cpu = proc.cpu_seconds(work.pid) - cpu
    two, one, as_it_comes = (median(times) for times in zip(*rounds, strict=True))
    return Readings(two, one, as_it_comes, cpu / (len(jobs) * TIMES))


def _write(work: Write) -> Timed:
    spark = _spark()

    def job(rows: int) -> None:
        frame = spark.range(rows, numPartitions=TASKS)
        value = sql.rpad(sql.col("id").cast("string"), work.size, "kumquat ")
        write_subject(frame, work.bootstrap, work.topic, value=value)

    job(work.rows // 5)
    cpu = proc.cpu_seconds(work.pid)
    seconds = median(_timed(lambda: job(work.rows)) for _ in range(TIMES))
    return Timed(seconds, (proc.cpu_seconds(work.pid) - cpu) / TIMES)


def _idle(work: Idle) -> Triggers:
    spark = _spark()
    # A report for each trigger, also for those that found nothing; the last few are taken, once,
    # at the end: to fetch them keeps Spark busy.
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(REPORTS))
    stream = stream_subject(spark, work.bootstrap, work.topic, starting="latest")
    writer = stream.writeStream.format("noop").option("checkpointLocation", work.folder)
    query = writer.trigger(processingTime="0 seconds").start()
    while query.lastProgress is None:
        time.sleep(0.5)
    time.sleep(work.seconds)
    reports: list[Any] = query.recentProgress
    query.stop()
    took = [report["durationMs"]["triggerExecution"] for report in reports]
    return Triggers(len(took), mean(took))


class _Memory(Progress):
    """Notes what the driver holds, in the JVM's heap and in Python, whenever the archive reports
    progress."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._jvm: Any = spark.sparkContext._jvm
        self.heap: list[int] = []
        self.python: list[int] = []

    def __call__(self, line: str) -> None:
        self._jvm.java.lang.System.gc()
        runtime = self._jvm.java.lang.Runtime.getRuntime()
        self.heap.append(int(runtime.totalMemory() - runtime.freeMemory()))
        gc.collect()
        self.python.append(proc.resident_bytes(os.getpid()))


def _archive(work: Archive) -> Archived:
    spark = _spark()
    memory = _Memory(spark)
    began = time.perf_counter()
    done = archive(spark, work.bootstrap, work.topic, work.folder, progress=memory)
    seconds = time.perf_counter() - began
    return Archived(done.messages, seconds, *_thirds(memory.heap), *_thirds(memory.python))


def _thirds(readings: list[int]) -> tuple[int, int]:
    """The middle of the first third, and of the last."""
    third = len(readings) // 3
    return int(median(readings[: third + 1])), int(median(readings[-third - 1 :]))


if __name__ == "__main__":
    main((Read, _read), (Write, _write), (Idle, _idle), (Archive, _archive))
