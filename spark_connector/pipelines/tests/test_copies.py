"""Copies into a subject: each once, even after interrupted runs."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import latest
from kumquat.spark.pipelines.copies.copier import (
    BLOCK_SECONDS,
    DELIVERY_SECONDS,
    ORIGIN,
    ORIGINAL_MS,
    RUN,
    WIRE_SECONDS,
    Copier,
)
from kumquat.spark.pipelines.copies.journal import FILE, Journal, Run
from kumquat.spark.pipelines.copies.tasks import TAKEN_OVER
from kumquat.spark.subjects import read_subject
from kumquat.spark.tests.messages import T0, held, produce

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kumquat.testing import TestBroker

ALL = (0, 21)
KEYLESS = "key binary, value binary, headers array<struct<key:string,value:binary>>"
LONG = WIRE_SECONDS + BLOCK_SECONDS + DELIVERY_SECONDS


def copier(
    spark: SparkSession,
    broker: TestBroker,
    folder: Path,
    sleep: Callable[[float], None] = lambda _: None,
) -> Copier:
    folder.mkdir(exist_ok=True)
    run = Run("test", "again", "from", "to", "plan")
    return Copier(spark, broker.bootstrap, folder, run, watched=["from", "to"], sleep=sleep)


def rows(spark: SparkSession, broker: TestBroker) -> DataFrame:
    return read_subject(spark, broker.bootstrap, "from")


class Crash(BaseException):
    pass


def crash(*_: object) -> None:
    raise Crash


@pytest.fixture
def subjects(kumquat: TestBroker) -> TestBroker:
    produce(kumquat.bootstrap, "from", [b"v%d" % n for n in range(20)] + [None])
    produce(kumquat.bootstrap, "to", [b"there before"])
    return kumquat


@pytest.mark.short
def test_copy_loses_key_value_header_order_or_time(
    spark: SparkSession, subjects: TestBroker, tmp_path: Path
) -> None:
    with copier(spark, subjects, tmp_path) as copies:
        sent = copies.send(rows(spark, subjects), 0, ALL)
        run = copies.run
    assert (sent.copies, sent.held, sent.doubled) == (21, 0, 0)
    got = held(subjects.bootstrap, "to")[1:]
    for number, (record, source) in enumerate(
        zip(got, held(subjects.bootstrap, "from"), strict=True)
    ):
        assert (record.key, record.value) == (source.key, source.value)
        marks = [
            (RUN, run.encode()),
            (ORIGIN, b"from/%d" % number),
            (ORIGINAL_MS, b"%d" % (T0 + number)),
        ]
        assert list(record.headers) == [*source.headers, *marks]


def test_batch_run_again_after_its_end_was_not_recorded_sends_twice(
    spark: SparkSession, subjects: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = rows(spark, subjects).where("offset < 7")
    with monkeypatch.context() as patch, copier(spark, subjects, tmp_path) as copies:
        patch.setattr(Journal, "done", crash)
        with pytest.raises(Crash):
            copies.send(part, 0, ALL)
    (tmp_path / "plan").touch()
    produce(subjects.bootstrap, "to", [b"of somebody else"])
    with copier(spark, subjects, tmp_path) as copies:
        assert copies.next_batch == 0
        again = copies.send(rows(spark, subjects), 0, ALL)
        assert (again.copies, again.held, again.doubled) == (14, 7, 0)
        done = copies.send(rows(spark, subjects), 0, ALL)
        assert (done.copies, done.held) == (0, 21)
        assert copies.sent == 21
        assert copies.next_batch == 1
    values = [record.value for record in held(subjects.bootstrap, "to")]
    expected = [b"v%d" % n for n in range(20)]
    assert values == [b"there before", *expected[:7], b"of somebody else", *expected[7:], None]


def test_two_runs_at_once_in_one_folder(
    spark: SparkSession, subjects: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kumquat.spark.pipelines.common.durable.LOCK_WAIT_SECONDS", 0)
    second = copier(spark, subjects, tmp_path)
    with copier(spark, subjects, tmp_path), pytest.raises(ConnectorError, match="in use"):
        second.__enter__()
    with copier(spark, subjects, tmp_path) as copies:
        assert copies.next_batch == 0


def test_producers_in_a_spark_that_lives_are_not_waited_for(
    spark: SparkSession, subjects: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark's JVM holds after a failure it may send for long; what a JVM that has ended held
    is on the wire. A SparkContext that was stopped and begun again is in the same JVM."""
    waits = list[float]()

    def run() -> None:
        with copier(spark, subjects, tmp_path, waits.append) as copies:
            copies.send(None, 0, ALL)

    monkeypatch.setattr(Copier, "_held", crash)  # the batch has begun, and has sent nothing
    with pytest.raises(Crash):
        run()
    (tmp_path / "plan").touch()
    assert waits == []
    path = tmp_path / FILE
    begun = json.loads(path.read_text())
    ended = begun["sender"] | {"started": begun["sender"]["started"] - 1}
    elsewhere = begun["sender"] | {"boot": "another"}
    for sender, seconds in [
        (begun["sender"], LONG),
        (ended, WIRE_SECONDS),
        (elsewhere, LONG),
        (None, LONG),
    ]:
        path.write_text(json.dumps(begun | {"sender": sender}))
        with pytest.raises(Crash):
            run()
        assert sum(waits) == seconds
        waits.clear()


def test_task_that_was_left_running_sends_beside_the_next_start(
    spark: SparkSession, subjects: TestBroker, tmp_path: Path
) -> None:
    """As when a SparkContext is stopped from another thread: its task is neither ended nor waited
    for. It waits for the time of its next row, and must not send it."""
    first = copier(spark, subjects, tmp_path)
    first.__enter__()
    ended = list[str]()

    def send_slowly() -> None:
        try:
            first.send(rows(spark, subjects), 0, ALL, rate=4)
        except ConnectorError as error:
            ended.append(str(error))

    def until_it_has_ended(seconds: float) -> None:
        if seconds == WIRE_SECONDS:  # the last wait
            thread.join()
            # The same producer of Spark's, which flushes: what was handed to it before is there.
            second._write(spark.createDataFrame([(None, b"flushed", None)], KEYLESS))

    thread = threading.Thread(target=send_slowly)
    thread.start()
    while latest(subjects.bootstrap, ["to"])["to"] < 3:
        assert thread.is_alive()
    first.__exit__()
    (tmp_path / "plan").touch()
    second = copier(spark, subjects, tmp_path, until_it_has_ended)
    with second as copies:
        sent = copies.send(rows(spark, subjects), 0, ALL)
    assert ended == [TAKEN_OVER]
    assert 2 <= sent.held < 21
    assert (sent.copies, sent.doubled) == (21 - sent.held, 0)
    values = [record.value for record in held(subjects.bootstrap, "to")[1:]]
    assert [value for value in values if value != b"flushed"] == [
        *(b"v%d" % n for n in range(20)),
        None,
    ]


def test_copy_with_a_header_of_the_delay_service_is_held_back(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source does not look at such headers, its target does: it would park the copy, where
    nobody sees that it was sent, cancel something, or refuse the batch for ever."""
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        plain = NewTopic("from", 1, 1, topic_configs={"delay.enabled": "false"})
        admin.create_topics([plain, NewTopic("to", 1, 1)])
    producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap)
    asking = [
        [("a", b"1"), ("qmq-delay-ms", b"3600000"), ("qmq-delay-id", b"x")],
        [("qmq-deliver-at", b"soon")],
        [("qmq-delay-cancel", b"x"), ("qmq-due-ms", b"5")],
    ]
    for number, headers in enumerate(asking):
        producer.send("from", b"v%d" % number, headers=headers)
    producer.close()
    with monkeypatch.context() as patch, copier(spark, kumquat, tmp_path) as copies:
        patch.setattr(Journal, "done", crash)
        with pytest.raises(Crash):
            copies.send(rows(spark, kumquat), 0, ALL)
    (tmp_path / "plan").touch()
    with copier(spark, kumquat, tmp_path) as copies:
        again = copies.send(rows(spark, kumquat), 0, ALL)
    assert (again.copies, again.held) == (0, 3)
    assert [record.headers[:-3] for record in held(kumquat.bootstrap, "to")] == [
        [
            ("a", b"1"),
            ("kumquat-original-delay-ms", b"3600000"),
            ("kumquat-original-delay-id", b"x"),
        ],
        [("kumquat-original-deliver-at", b"soon")],
        [("kumquat-original-delay-cancel", b"x"), ("qmq-due-ms", b"5")],
    ]
