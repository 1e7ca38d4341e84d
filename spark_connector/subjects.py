"""Subjects as DataFrames, with sane defaults over Spark's own `format("kafka")`.

    orders = read_subject(spark, "127.0.0.1:9092", "orders", json="id LONG, customer STRING")
    stream = stream_subject(spark, "127.0.0.1:9092", ["orders", "payments"], max_per_trigger=10_000)
    write_subject(totals, "127.0.0.1:9092", "totals", key="customer")

- One partition does not mean one task: a subject's range of offsets is split over as many tasks as
  Spark runs at once, unless `tasks` says otherwise.
- The columns are Spark's (`key`, `value`, `topic`, `partition`, `offset`, `timestamp`,
  `timestampType`, `headers`). On request `value` is parsed as JSON into a struct (by a schema, or its
  text as in SQL), `key` becomes text, and headers become text columns of their names.
- A value that is no JSON of that schema fails the job, unless `on_bad` says otherwise, in the words of
  Spark's own JSON reader: FAILFAST; PERMISSIVE: the value is null, and the column `_corrupt_record` has
  its text; DROPMALFORMED: the message is left out. A message without a value is none of these.
- A missing broker or subject is a ConnectorError before Spark begins, and so is a failure while
  a table is written. A table that is read fails in your own job, where Spark raises pages:
  `with clear_errors():` around it makes them one line.
- `**options` go to Spark's source or sink as they are and win over what is set here. An option of the
  Kafka client has a dot in its name: `**{"kafka.fetch.max.bytes": 1 << 20}`.

To read other than by names (`subscribePattern`, `assign`), use Spark's source directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from kumquat.spark.errors import ConnectorError, clear_errors
from kumquat.spark.offsets import check_broker, check_subjects, spark_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Where = str | Mapping[str, int] | datetime
"""A place in each subject: "earliest", "latest", {subject: offset}, or a time (with its zone)."""
Option = str | int | bool
POLL_RECORDS = 10_000
MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
CORRUPT = "_corrupt_record"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def read_subject(
    spark: SparkSession,
    bootstrap: str,
    subjects: str | Sequence[str],
    *,
    starting: Where = "earliest",
    ending: Where = "latest",
    tasks: int | None = None,
    json: StructType | str | None = None,
    on_bad: str = "FAILFAST",
    text_key: bool = False,
    headers_as_columns: Sequence[str] = (),
    **options: Option,
) -> DataFrame:
    """What the subjects hold between two places, as a table."""
    chosen = _source(spark, bootstrap, subjects, starting, tasks)
    chosen |= _place("ending", ending)
    reader = spark.read.format("kafka").options(**_texts(chosen | options))
    return _decoded(reader.load(), json, on_bad, text_key, headers_as_columns)


def stream_subject(
    spark: SparkSession,
    bootstrap: str,
    subjects: str | Sequence[str],
    *,
    starting: Where = "earliest",
    tasks: int | None = None,
    max_per_trigger: int | None = None,
    json: StructType | str | None = None,
    on_bad: str = "FAILFAST",
    text_key: bool = False,
    headers_as_columns: Sequence[str] = (),
    **options: Option,
) -> DataFrame:
    """The subjects as a stream; a query that has a checkpoint continues from there, not from
    `starting`."""
    chosen = _source(spark, bootstrap, subjects, starting, tasks)
    if max_per_trigger is not None:
        chosen["maxOffsetsPerTrigger"] = max_per_trigger
    reader = spark.readStream.format("kafka").options(**_texts(chosen | options))
    return _decoded(reader.load(), json, on_bad, text_key, headers_as_columns)


def write_subject(
    frame: DataFrame,
    bootstrap: str,
    subject: str,
    *,
    key: str | Column | None = None,
    value: str | Column = "value",
    headers: Mapping[str, str | Column] | None = None,
    trigger: Mapping[str, str | bool] | None = None,
    **options: Option,
) -> StreamingQuery | None:
    """Writes each row as a message; columns are named, or given as expressions.

    A struct as value is written as JSON; other values, keys and headers as text, unless they are
    binary. A header that is null in a row is left out there, so that a column of
    `qmq-delay-ms` may delay some messages only. A table is written before this returns. For a
    stream the query is returned, which needs the option checkpointLocation; `trigger` is
    what Spark's own trigger() takes, `{"availableNow": True}` for instance.
    """
    check_broker(bootstrap)
    with clear_errors():
        rows = _messages(frame, key, value, headers or {})
    chosen = _texts({"kafka.bootstrap.servers": bootstrap, "topic": subject} | options)
    if not frame.isStreaming:
        with clear_errors():
            rows.write.format("kafka").options(**chosen).save()
        return None
    if "checkpointLocation" not in options:
        raise ConnectorError(
            "a stream needs a place for its progress: give checkpointLocation=FOLDER"
        )
    writer = rows.writeStream.format("kafka").options(**chosen)
    if trigger is not None:
        writer = writer.trigger(**trigger)  # type: ignore[arg-type]
    return writer.start()


def _source(
    spark: SparkSession,
    bootstrap: str,
    subjects: str | Sequence[str],
    starting: Where,
    tasks: int | None,
) -> dict[str, Option]:
    names = [subjects] if isinstance(subjects, str) else list(subjects)
    if not names or any("," in name or not name for name in names):
        raise ConnectorError(f"give subjects by name, one or a list of them, not {subjects!r}")
    if tasks is not None and tasks < 1:
        raise ConnectorError(f"tasks is at least 1, not {tasks}")
    check_subjects(bootstrap, names)
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": ",".join(names),
        "includeHeaders": True,
        # Spark asks for both ends of the log after each poll: 500 records are too few for that.
        "kafka.max.poll.records": POLL_RECORDS,
        "minPartitions": tasks or spark.sparkContext.defaultParallelism,
        **_place("starting", starting),
    }


def _place(which: str, where: Where) -> dict[str, Option]:
    if isinstance(where, datetime):
        if where.tzinfo is None:
            raise ConnectorError(f"{which}={where} has no time zone: add tzinfo=UTC, for instance")
        chosen: dict[str, Option] = {f"{which}Timestamp": int(where.timestamp() * 1000)}
        if which == "starting":
            # No message is as late as that yet: nothing to read, and no error.
            chosen["startingOffsetsByTimestampStrategy"] = "latest"
        return chosen
    if isinstance(where, Mapping):
        return {f"{which}Offsets": spark_json(where)}
    if where not in ("earliest", "latest"):
        raise ConnectorError(
            f'{which}={where!r} is no place: give "earliest", "latest", {{subject: offset}} '
            "or a datetime"
        )
    return {f"{which}Offsets": where}


def _decoded(
    frame: DataFrame,
    json: StructType | str | None,
    on_bad: str,
    text_key: bool,
    headers: Sequence[str],
) -> DataFrame:
    for name in headers:
        if name in COLUMNS:
            raise ConnectorError(f"header {name!r} would hide a column: take it out of `headers`")
    if on_bad.upper() not in MODES:
        raise ConnectorError(f"on_bad is {', '.join(MODES[:-1])} or {MODES[-1]}, not {on_bad!r}")
    columns: dict[str, Column] = {}
    if text_key:
        columns["key"] = sql.col("key").cast(StringType())
    columns |= {name: _header(name) for name in headers}
    with clear_errors():
        frame = frame.withColumns(columns) if columns else frame
        return frame if json is None else _parsed(frame, json, on_bad.upper())


def _parsed(frame: DataFrame, json: StructType | str, on_bad: str) -> DataFrame:
    text = sql.col("value").cast(StringType())
    if on_bad == "FAILFAST":
        return frame.withColumn("value", sql.from_json(text, json, {"mode": on_bad}))
    schema = json if isinstance(json, StructType) else StructType.fromDDL(json)
    if not isinstance(schema, StructType) or CORRUPT in schema.fieldNames():
        raise ConnectorError(f"on_bad={on_bad} needs a schema of fields, without {CORRUPT}")
    with_corrupt = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = frame.withColumn("value", sql.from_json(text, with_corrupt, options))
    is_bad = sql.col("value")[CORRUPT].isNotNull()
    value = sql.when(~is_bad, sql.col("value").dropFields(CORRUPT))
    if on_bad == "DROPMALFORMED":
        return parsed.where(~is_bad | sql.col("value").isNull()).withColumn("value", value)
    return parsed.withColumns({CORRUPT: sql.col("value")[CORRUPT], "value": value})


def _header(name: str) -> Column:
    """The last of that name, as Kafka's own lastHeader has it."""
    same = sql.filter("headers", lambda each: each["key"] == name)
    return sql.try_element_at(same, sql.lit(-1))["value"].cast(StringType())


def _messages(
    frame: DataFrame,
    key: str | Column | None,
    value: str | Column,
    headers: Mapping[str, str | Column],
) -> DataFrame:
    named = [each for each in (key, value, *headers.values()) if isinstance(each, str)]
    missing = [name for name in named if name not in frame.columns]
    if missing:
        raise ConnectorError(
            f"no column {', '.join(missing)} to write; there are {', '.join(frame.columns)}"
        )
    columns = [_payload(frame, value).alias("value")]
    if key is not None:
        columns.append(_payload(frame, key).alias("key"))
    if headers:
        pairs = [
            sql.struct(sql.lit(name).alias("key"), _payload(frame, each).alias("value"))
            for name, each in headers.items()
        ]
        present = sql.filter(sql.array(*pairs), lambda each: each["value"].isNotNull())
        columns.append(present.alias("headers"))
    return frame.select(*columns)


def _payload(frame: DataFrame, column: str | Column) -> Column:
    expression = sql.col(f"`{column}`") if isinstance(column, str) else column
    kind = frame.select(expression).schema[0].dataType
    if isinstance(kind, BinaryType):
        return expression
    if isinstance(kind, StructType):
        expression = sql.to_json(expression)
    return expression.cast(StringType()).cast(BinaryType())


def _texts(options: Mapping[str, Option]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
