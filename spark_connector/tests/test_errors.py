"""Pages of Spark's, made one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kumquat.spark.errors import LONGEST, ConnectorError, clear_errors, explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_last_cause_of_a_stack_trace_is_kept() -> None:
    text = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.Some.method(Some.scala:1)
Caused by: java.lang.RuntimeException: outer
\tat a.b(c.scala:2)
Caused by: java.io.IOException: No space left on device
\tat a.b(c.scala:3)
"""
    assert explain(text) == "No space left on device"


def test_known_causes_say_what_to_do() -> None:
    text = "Caused by: org.apache.kafka.common.errors.TimeoutException: Topic a not present"
    assert explain(text) == (
        "the broker does not answer: see that it runs, then run this again (Topic a not present)"
    )


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("TimeoutException: Cannot fetch record for offset 5 in 120000 ms", "does not answer"),
        ("Partition t-0's offset was changed from 3 to 0", "--accept-loss"),
        ("Answer from Java side is empty", "Spark has ended"),
    ],
)
def test_cause_that_leaves_a_person_helpless(text: str, advice: str) -> None:
    assert advice in explain(text)


def test_endless_line_is_cut() -> None:
    assert len(explain("x" * 10_000)) == LONGEST


def test_silence_is_told() -> None:
    assert explain("") == "Spark failed and said nothing"


@pytest.mark.short
def test_error_of_a_real_job_is_one_line(spark: SparkSession) -> None:
    with pytest.raises(ConnectorError) as caught, clear_errors():
        spark.sql("select assert_true(id < 5, 'five is too many') from range(10)").collect()
    assert "five is too many" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.short
def test_error_of_the_plan_is_one_line(spark: SparkSession) -> None:
    with pytest.raises(ConnectorError, match="UNRESOLVED_COLUMN") as caught, clear_errors():
        spark.range(3).select("nowhere")
    assert "\n" not in str(caught.value)
