"""Dedupe when retention deletes what an interrupted batch had still to send, or had sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, TopicPartition

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.copies import copier as copies
from kumquat.spark.pipelines.copies.journal import Journal
from kumquat.spark.pipelines.dedupe.command import dedupe
from kumquat.spark.pipelines.dedupe.state import StateFile
from kumquat.spark.pipelines.tests.deduping import NOW, let_through, make, send

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker


class Crash(BaseException):
    pass


@pytest.fixture
def bootstrap(kumquat: TestBroker) -> str:
    make(kumquat.bootstrap, "in", "out")
    return kumquat.bootstrap


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing outlives its batch here: it is sent and flushed, or not sent at all."""
    monkeypatch.setattr(copies.Copier, "_wait_for_what_outlived", lambda _: None)


def delete(bootstrap: str, subject: str, up_to: int) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition(subject, 0): up_to})


def crash_in(place: type, name: str, spark: SparkSession, bootstrap: str, folder: Path) -> None:
    def crash(*_: object, **__: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, crash)
        with pytest.raises(Crash):
            dedupe(spark, bootstrap, "in", "out", folder)


def test_batch_that_retention_overtook_stops_the_run_for_ever(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    send(bootstrap, [(n, NOW) for n in range(5)])
    crash_in(copies.Copier, "_write", spark, bootstrap, tmp_path)
    delete(bootstrap, "in", 5)
    with pytest.raises(ConnectorError, match=r"offsets 0 to 4 of in .* --accept-loss"):
        dedupe(spark, bootstrap, "in", "out", tmp_path)
    dedupe(spark, bootstrap, "in", "out", tmp_path, accept_loss=True)
    send(bootstrap, [(n, NOW) for n in range(5, 8)], 5)
    done = dedupe(spark, bootstrap, "in", "out", tmp_path)
    assert let_through(bootstrap) == [5, 6, 7]
    assert (done.state.read, done.state.sent, done.state.unsent) == (8, 3, 5)
    assert "5 messages, deleted before" in done.summary().text()


@pytest.mark.parametrize(
    ("place", "name"), [(Journal, "done"), (StateFile, "commit")], ids=["begun", "done"]
)
def test_batch_cut_by_retention_is_decided_again(
    spark: SparkSession, bootstrap: str, tmp_path: Path, place: type, name: str
) -> None:
    """Ids 0 to 2 were sent and are deleted; doubles of 0 and 1 are left in the batch, and doubles of
    all come after it."""
    send(bootstrap, [(ident, NOW) for ident in (0, 1, 2, 3, 0, 1)])
    crash_in(place, name, spark, bootstrap, tmp_path)
    assert let_through(bootstrap) == [0, 1, 2, 3]
    delete(bootstrap, "in", 3)
    send(bootstrap, [(n, NOW) for n in range(5)], 6)
    done = dedupe(spark, bootstrap, "in", "out", tmp_path, accept_loss=True, batch=6)
    assert let_through(bootstrap) == [0, 1, 2, 3, 10]
    assert (done.state.read, done.state.sent, done.state.unsent) == (11, 5, 0)


def test_batch_whose_copies_retention_deleted_is_sent_twice_or_stops_the_run(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    send(bootstrap, [(n, NOW) for n in range(5)])
    crash_in(Journal, "done", spark, bootstrap, tmp_path)
    delete(bootstrap, "out", 3)
    send(bootstrap, [(9, NOW)], 5)
    with pytest.raises(ConnectorError, match=r"what was sent is not known: .* --accept-loss"):
        dedupe(spark, bootstrap, "in", "out", tmp_path)
    done = dedupe(spark, bootstrap, "in", "out", tmp_path, accept_loss=True)
    assert let_through(bootstrap) == [3, 4, 5]
    assert (done.state.sent, done.state.unsent) == (1, 5)


def test_range_that_was_passed_over_is_not_told(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """Also when it was planned: nothing of it was decided, so nothing was sent."""
    send(bootstrap, [(1, NOW), (2, NOW)])
    crash_in(StateFile, "decide", spark, bootstrap, tmp_path)
    send(bootstrap, [(n, NOW) for n in range(1, 6)], 2)
    delete(bootstrap, "in", 3)
    with pytest.raises(ConnectorError, match=r"offsets 0 to 2 of in .* --accept-loss"):
        dedupe(spark, bootstrap, "in", "out", tmp_path)
    done = dedupe(spark, bootstrap, "in", "out", tmp_path, accept_loss=True)
    assert let_through(bootstrap) == [3, 4, 5, 6]
    assert done.state.lost == ((0, 3),)
    assert "LOST         offsets 0 to 2" in done.summary().text()
    delete(bootstrap, "in", 7)
    assert dedupe(spark, bootstrap, "in", "out", tmp_path).state == done.state


def test_retention_under_a_batch_is_told_as_an_error_of_spark(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for before a batch is read, and moves on before Spark reads it."""
    send(bootstrap, [(n, NOW) for n in range(5)])
    whole = StateFile.plan

    def plan_and_delete(state_file: StateFile, end: int, now_ms: int) -> object:
        pending = whole(state_file, end, now_ms)
        delete(bootstrap, "in", 2)
        return pending

    monkeypatch.setattr(StateFile, "plan", plan_and_delete)
    with pytest.raises(ConnectorError, match=r"offsets 0 to 1 of in .* --accept-loss"):
        dedupe(spark, bootstrap, "in", "out", tmp_path)
    dedupe(spark, bootstrap, "in", "out", tmp_path, accept_loss=True)
    assert let_through(bootstrap) == [2, 3, 4]
