"""The task that sends a batch: only its first attempt, only of the latest start, at a rate, and stopped
when the driver leaves it.

A condition is put into the rows' own plan as a filter. It uses what a Spark expression can call without a
jar or Python workers: static methods of Java. Such a filter is evaluated for each row, in order, and is
not moved by Spark, since it is not deterministic.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import Column

ASK_SECONDS = 0.1
REPEATED = (
    "a task failed and Spark repeated it, which would send copies twice: see in Spark's log why it "
    "failed, and run this again to send what is left"
)
TAKEN_OVER = "this run was started again, and that start sends now: this one ends"
_FIRST_ATTEMPT = r"task [0-9]+\.0 in stage [0-9]+\.0 "
_ROW_IN_TASK = (1 << 33) - 1
"""The part of monotonically_increasing_id() that counts a task's own rows."""


def only_first_attempt() -> Column:
    """Fails a task that Spark runs again. The name of its thread says which attempt it is."""
    thread = sql.java_method(sql.lit("java.lang.Thread"), sql.lit("currentThread"))
    refusal = sql.raise_error(sql.lit(REPEATED))
    bad = (_row_in_task() == 0) & ~thread.rlike(_FIRST_ATTEMPT)
    return sql.when(bad, refusal.cast("boolean")).otherwise(sql.lit(True))


def only_this_start(name: str, start: str) -> Column:
    """Fails a task of an earlier start of the run. Executors on a cluster do not have the property:
    what they show is null, as text."""
    found = sql.java_method(sql.lit("java.lang.System"), sql.lit("getProperty"), sql.lit(name))
    refusal = sql.raise_error(sql.lit(TAKEN_OVER))
    return sql.when(~found.isin("null", start), refusal.cast("boolean")).otherwise(sql.lit(True))


def paced(rate: float, begin_ms: int) -> Column:
    """Holds each row until its time has come."""
    now = sql.java_method(sql.lit("java.lang.System"), sql.lit("currentTimeMillis")).cast("bigint")
    due = sql.lit(begin_ms) + (_row_in_task() * sql.lit(1000.0 / rate)).cast("bigint")
    wait = sql.greatest(sql.lit(0).cast("bigint"), due - now)
    return sql.java_method(sql.lit("java.lang.Thread"), sql.lit("sleep"), wait).isNotNull()


@contextmanager
def own_jobs(context: SparkContext, tag: str, seconds: float) -> Iterator[None]:
    """If the block is left early, by an error or Ctrl-C, its tasks are ended first."""
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)  # one that waits for its time, or for the broker, ends too
    try:
        yield
    except BaseException:
        with suppress(Py4JError, OSError):  # Spark may have ended, and its tasks with it
            context.cancelJobsWithTag(tag)
            deadline = time.monotonic() + seconds
            while _running_tasks(context, tag) and time.monotonic() < deadline:
                time.sleep(ASK_SECONDS)
        raise
    finally:
        with suppress(Py4JError, OSError):
            context.setInterruptOnCancel(False)
            context.removeJobTag(tag)


def _row_in_task() -> Column:
    return sql.monotonically_increasing_id().bitwiseAND(sql.lit(_ROW_IN_TASK))


def _running_tasks(context: SparkContext, tag: str) -> int:
    java: Any = context._jsc
    tracker = java.sc().statusTracker()
    jobs = [context.statusTracker().getJobInfo(job) for job in tracker.getJobIdsForTag(tag)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    infos = [context.statusTracker().getStageInfo(stage) for stage in stages]
    return sum(info.numActiveTasks for info in infos if info is not None)
