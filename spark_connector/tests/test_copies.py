"""Copies into a subject: each once, whatever broke off before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.copies import ORIGIN, ORIGINAL_MS, RUN, Copier
from spark_connector.pipelines.copy_journal import Journal
from spark_connector.subjects import read_subject
from spark_connector.tests.messages import T0, held, produce

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from gateway.testing import TestBroker


def copier(spark: SparkSession, broker: TestBroker, folder: Path, **options: Any) -> Copier:
    return Copier(
        spark, broker.bootstrap, "to", folder, name="again", sleep=lambda _: None, **options
    )


def rows(spark: SparkSession, broker: TestBroker) -> DataFrame:
    return read_subject(spark, broker.bootstrap, "from")


@pytest.fixture
def subjects(kumquat: TestBroker) -> TestBroker:
    produce(kumquat.bootstrap, "from", [b"v%d" % n for n in range(20)] + [None])
    produce(kumquat.bootstrap, "to", [b"there before"])
    return kumquat


def test_copy_loses_key_value_header_order_or_time(
    spark: SparkSession, subjects: TestBroker, tmp_path: Path
) -> None:
    with copier(spark, subjects, tmp_path) as copies:
        sent = copies.send(rows(spark, subjects), 0)
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
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    part = rows(spark, subjects).where("offset < 7")
    with monkeypatch.context() as patch, copier(spark, subjects, tmp_path) as copies:
        patch.setattr(Journal, "done", crash)
        with pytest.raises(KeyboardInterrupt):
            copies.send(part, 0)
    produce(subjects.bootstrap, "to", [b"of somebody else"])
    with copier(spark, subjects, tmp_path) as copies:
        assert copies.next_batch == 0
        again = copies.send(rows(spark, subjects), 0)
        assert (again.copies, again.held, again.doubled) == (14, 7, 0)
        assert copies.send(rows(spark, subjects), 0).copies == 0
        assert copies.sent == 21
        assert copies.next_batch == 1
    values = [record.value for record in held(subjects.bootstrap, "to")]
    expected = [b"v%d" % n for n in range(20)]
    assert values == [b"there before", *expected[:7], b"of somebody else", *expected[7:], None]


def test_two_runs_at_once_in_one_folder(
    spark: SparkSession, subjects: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_connector.pipelines.durable.LOCK_WAIT_SECONDS", 0)
    second = copier(spark, subjects, tmp_path)
    with copier(spark, subjects, tmp_path), pytest.raises(ConnectorError, match="in use"):
        second.__enter__()
    with copier(spark, subjects, tmp_path) as copies:
        assert copies.next_batch == 0
