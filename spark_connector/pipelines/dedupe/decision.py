"""Which messages of a batch are let through: a row for each id, as Spark's columns.

| column | |
|---|---|
| id | 16 bytes of the hash of the message's identity (identity.py) |
| messages | how many of the batch have it |
| nameless | how many of them have no id, and are known by their place |
| kept | time and offset of those that are let through; the time is the window's clock, not their own |
| top | the clock at the last of them |

Such rows are also what a run remembers of ids (dedupe/state.py): `last_seen` reads them. Pure columns:
nothing here reads or writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from kumquat.spark.pipelines.common.identity import identity
from kumquat.spark.pipelines.common.preceding_rows import with_highest
from kumquat.spark.pipelines.dedupe.state import NO_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from kumquat.spark.pipelines.dedupe.state import Rule

_PLACES = "array<struct<time:bigint,offset:bigint>>"
_KEPT = f"struct<last:bigint,kept:{_PLACES}>"
ROWS = f"id binary, messages int, nameless int, kept {_PLACES}, top bigint"
LAST = "id binary, last bigint"


def decide(messages: DataFrame, seen: DataFrame, rule: Rule, clock: int, now_ms: int) -> DataFrame:
    """`seen` is LAST: when each id was last let through."""
    name = identity(rule.by, rule.id_header)
    shown = sql.least(sql.unix_millis("timestamp"), sql.lit(now_ms))
    slim = messages.select(
        sql.substring(sql.unhex(sql.sha2(name, 256)), 1, 16).alias("id"),
        (sql.substring(name, 1, 1) == sql.lit(b"p")).alias("nameless"),
        "offset",
        sql.greatest(shown, sql.lit(clock)).alias("shown"),
    )
    timed = with_highest(slim, "offset", "shown", "time")
    grouped = timed.groupBy("id").agg(
        sql.count_if("nameless").cast("int").alias("nameless"),
        sql.sort_array(sql.collect_list(sql.struct("time", "offset"))).alias("all"),
    )
    return grouped.join(seen, "id", "left").select(
        "id",
        sql.size("all").alias("messages"),
        "nameless",
        _let_through(rule.window_ms).alias("kept"),
        sql.element_at("all", -1)["time"].alias("top"),
    )


def last_seen(rows: DataFrame, since: int) -> DataFrame:
    """When each id was last let through, where that is after `since`."""
    times = rows.select("id", sql.explode("kept.time").alias("time"))
    return times.where(sql.col("time") > since).groupBy("id").agg(sql.max("time").alias("last"))


def as_rows(last: DataFrame) -> DataFrame:
    """What `last_seen` gave, for the next batch."""
    place = sql.array(sql.struct(sql.col("last").alias("time"), sql.lit(-1).cast("bigint")))
    return last.select(
        "id",
        sql.lit(0).alias("messages"),
        sql.lit(0).alias("nameless"),
        place.cast(_PLACES).alias("kept"),
        sql.col("last").alias("top"),
    )


def _let_through(window_ms: int) -> Column:
    """Of an id's messages in order: the first, and each that is a window after the one before it."""
    never = sql.lit(NO_CLOCK).cast("bigint")
    none = sql.array().cast(_PLACES)
    start = sql.struct(sql.coalesce("last", never).alias("last"), none.alias("kept"))

    def add(so_far: Column, each: Column) -> Column:
        more = sql.struct(each["time"], sql.concat(so_far["kept"], sql.array(each))).cast(_KEPT)
        is_due = each["time"] - so_far["last"] >= window_ms
        return sql.when(is_due, more).otherwise(so_far)

    return sql.aggregate("all", start.cast(_KEPT), add, lambda so_far: so_far["kept"])
