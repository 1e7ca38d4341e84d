"""What came before a row, in the order of offsets, without one task that sorts everything.

A window function over all rows would run in a single task. So the rows are cut into ranges of
2^16 offsets. Each range is one group of a window; what it needs of the ranges before it is a window over
one row for each range, which is small: a billion messages are 16 thousand rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RANGE_BITS = 16


def with_previous(rows: DataFrame, order: str, value: str, name: str) -> DataFrame:
    """Adds the column `name`: `value` of the row before, null for the first."""
    inside = sql.lag(value).over(Window.partitionBy("range").orderBy(order))
    before = sql.lag("carry").over(Window.orderBy("range"))
    carry = sql.max_by(value, order)
    return _with(rows, order, carry, before, name, sql.coalesce(inside, sql.col("before")))


def with_highest(rows: DataFrame, order: str, value: str, name: str) -> DataFrame:
    """Adds the column `name`: the highest `value` up to here, this row's included."""
    so_far = Window.partitionBy("range").orderBy(order).rowsBetween(Window.unboundedPreceding, 0)
    inside = sql.max(value).over(so_far)
    ranges = Window.orderBy("range").rowsBetween(Window.unboundedPreceding, -1)
    before = sql.max("carry").over(ranges)
    return _with(rows, order, sql.max(value), before, name, sql.greatest(inside, "before"))


def _with(
    rows: DataFrame, order: str, carry: Column, before: Column, name: str, column: Column
) -> DataFrame:
    ranged = rows.withColumn("range", sql.shiftright(sql.col(order), RANGE_BITS))
    carried = ranged.groupBy("range").agg(carry.alias("carry"))
    handed = carried.select("range", before.alias("before"))
    joined = ranged.join(sql.broadcast(handed), "range")
    return joined.withColumn(name, column).drop("range", "before")
