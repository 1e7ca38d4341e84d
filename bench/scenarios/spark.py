"""Spark on the broker: reading, writing, a stream that has nothing to do, and an archive.

Spark runs as `local[2]` beside the broker, so both share the machine's cores, as in every scenario here: a
broker that needs less CPU leaves more to Spark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from bench.load import client, spark, topics
from bench.scenario import Numbers, Run, Scenario, ratio, share

SIZE = 200
KIB = 1024


@dataclass(frozen=True)
class _Sizes:
    read_records: int
    written_rows: int
    archived_bytes: int


_SIZES = {
    "full": _Sizes(2_000_000, 1_000_000, 10_000_000_000),
    "quick": _Sizes(100_000, 50_000, 200_000_000),
}


def _read(run: Run) -> Numbers:
    records = _SIZES[run.scale.name].read_records
    with run.column.broker() as broker:
        run.say(f"writing {records:,} records of {SIZE} B to read")
        client.run(client.Produce(broker.bootstrap, broker.pid, "read", records, SIZE, "all"))
        os.sync()  # otherwise the first reader runs while the disk still writes
        run.say("Spark counts them: read_subject by two tasks and by one, format('kafka') by two")
        done = spark.read(spark.Read(broker.bootstrap, broker.pid, "read", records))
    return {
        "records/s": records / done.seconds,
        "one task, records/s": records / done.seconds_one_task,
        "stock options, records/s": records / done.seconds_stock,
        "broker's CPU s per GB": done.broker_cpu_seconds / (records * SIZE / 1e9),
    }


def _write(run: Run) -> Numbers:
    rows = _SIZES[run.scale.name].written_rows
    with run.column.broker() as broker:
        topics.make(broker.port, ["written"])
        run.say(f"Spark writes {rows:,} rows of {SIZE} B")
        done = spark.write(spark.Write(broker.bootstrap, broker.pid, "written", rows, SIZE))
    return {
        "rows/s": rows / done.seconds,
        "broker's CPU s per GB": done.broker_cpu_seconds / (rows * SIZE / 1e9),
    }


def _idle(run: Run) -> Numbers:
    with run.column.broker() as broker, TemporaryDirectory() as folder:
        topics.make(broker.port, ["quiet"])
        run.say("a stream that finds nothing new")
        seconds = run.scale.seconds + run.scale.warm_up
        done = spark.idle(spark.Idle(broker.bootstrap, "quiet", folder, seconds))
    return {"empty trigger, ms": done.milliseconds, "triggers": done.count}


def _archive(run: Run) -> Numbers:
    megabytes = _SIZES[run.scale.name].archived_bytes // 1_000_000
    records = megabytes * 1_000_000 // KIB
    with run.column.broker() as broker, TemporaryDirectory(dir=broker.folder) as folder:
        run.say(f"writing {megabytes:,} MB to archive")
        client.run(client.Produce(broker.bootstrap, broker.pid, "old", records, KIB, "all"))
        run.say("archiving")
        done = spark.archived(spark.Archive(broker.bootstrap, "old", folder))
    return {
        "MB/s": done.messages * KIB / done.seconds / 1e6,
        "driver's live heap in the first third, MB": done.early_bytes / 1e6,
        "driver's live heap in the last third, MB": done.late_bytes / 1e6,
        "driver's Python in the first third, MB": done.early_python_bytes / 1e6,
        "driver's Python in the last third, MB": done.late_python_bytes / 1e6,
    }


SPARK = [
    Scenario(
        "spark-read",
        "Spark, `local[2]`: count and sum of lengths of 200 B records",
        _read,
        [
            ratio("records/s", "kafka", at_least=1.0),
            ratio("stock options, records/s", "kafka", at_least=1.0),
            share("records/s", "one task, records/s", at_least=1.0),
        ],
        columns=("kumquat", "kafka"),
    ),
    Scenario(
        "spark-write",
        "Spark, `local[2]`: a table of 200 B rows written",
        _write,
        [ratio("rows/s", "kafka", at_least=1.0)],
        columns=("kumquat", "kafka"),
    ),
    Scenario(
        "spark-idle",
        "Spark: a micro-batch trigger that finds nothing",
        _idle,
        [ratio("empty trigger, ms", "kafka", at_most=1.0)],
        columns=("kumquat", "kafka"),
    ),
    Scenario(
        "spark-archive",
        "Spark: archiving 1 KiB records to Parquet",
        _archive,
        [
            share(
                "driver's live heap in the last third, MB",
                "driver's live heap in the first third, MB",
                at_most=1.1,
            ),
            share(
                "driver's Python in the last third, MB",
                "driver's Python in the first third, MB",
                at_most=1.1,
            ),
        ],
        columns=("kumquat",),
    ),
]
