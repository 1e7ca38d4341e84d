"""What went wrong, in one line that says what to do.

Everything that a person can fix is a ConnectorError: a subject that does not exist, a broker that is
down, a connector that cannot be downloaded, a schema that does not fit. Its text is one line. Spark
prints pages; `clear_errors()` around a job keeps the line with the cause:

    with clear_errors():
        orders.groupBy("key").count().show()

Nothing here needs PySpark, since one possible problem is that it is missing (`needed`).
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 400
_CLASS_NAME = re.compile(
    r"^(?:Caused by: |Exception in thread \S+ )?(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): "
)
_ADVICE = [
    (
        re.compile(r"MALFORMED_RECORD_IN_PARSING|Malformed records are detected"),
        "a value does not fit the JSON schema: correct the schema, or read without one",
    ),
    (
        re.compile(r"Some data may have been lost|OffsetOutOfRange|offset was changed from"),
        "messages asked for are deleted already: start later, or accept it (--accept-loss, failOnDataLoss)",
    ),
    (
        re.compile(r"UnknownTopicOrPartition"),
        "the subject is gone: create it, or correct its name",
    ),
    (
        re.compile(
            r"(?:kafka|Kafka)\S*\.TimeoutException|TimeoutException: (?:Topic|Timeout|Call)"
            r"|Cannot fetch record for offset"
        ),
        "the broker does not answer: see that it runs, then run this again",
    ),
    (
        re.compile(r"Answer from Java side is empty|Error while sending or receiving|Java server"),
        "Spark has ended: see that there is memory for it (spark.driver.memory), then run this again",
    ),
]


class ConnectorError(Exception):
    """One line for a person: what was wrong, where, and what to do."""


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turns what Spark raises in the block into a ConnectorError with the first cause in it."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise ConnectorError(explain(str(error))) from error


def needed() -> str:
    """What to install before anything here can run; empty when all of it is there."""
    if find_spec("pyspark") is not None and find_spec("kafka") is not None:
        return ""
    return (
        "Spark's part needs PySpark and kafka-python, which the broker does not: install "
        "kumquat-gateway[spark], or run `make .venv/.dev`, which does"
    )


def explain(text: str) -> str:
    """The line of Spark's text with the cause; in front of it what to do, where that is known."""
    cause = _cause(text)
    for pattern, advice in _ADVICE:
        if pattern.search(text):
            return f"{advice} ({cause})"
    return cause


def _cause(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    named = [line for line in lines if _CLASS_NAME.match(line)]
    line = (causes[-1:] or named[-1:] or lines[:1] or ["Spark failed and said nothing"])[0]
    line = _CLASS_NAME.sub("", line)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
