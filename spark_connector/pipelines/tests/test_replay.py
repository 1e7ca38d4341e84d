"""Replays: what was asked for and nothing else, once, in order."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.archive.command import archive
from kumquat.spark.pipelines.copies.copier import ORIGIN, ORIGINAL_MS, Copier
from kumquat.spark.pipelines.replay.command import replay
from kumquat.spark.pipelines.replay.plan import Selection
from kumquat.spark.tests.messages import T0, held, produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker

MESSAGES = 30


@pytest.fixture
def orders(kumquat: TestBroker) -> str:
    """A broker with `orders`, and an empty `again`."""
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(MESSAGES)])
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.create_topics([NewTopic("again", 1, 1)])
    return kumquat.bootstrap


def values(bootstrap: str) -> list[int]:
    return [int(record.value) for record in held(bootstrap, "again")]


def test_dry_run_sends_or_counts_what_does_not_match(spark: SparkSession, orders: str) -> None:
    chosen = Selection("orders", since_ms=T0 + 5, until_ms=T0 + 20, headers=("n", "none"))
    done = replay(spark, orders, chosen, "again")
    assert done.found.messages == len([n for n in range(5, 20) if n % 3])
    assert (done.found.start, done.found.end) == (5, 20)
    assert (done.found.first_ms, done.found.last_ms) == (T0 + 5, T0 + 19)
    one = replay(spark, orders, Selection("orders", keys=("k7", "k9"), headers=("n=7",)), "again")
    assert (one.found.messages, one.found.start) == (1, 7)
    none = replay(spark, orders, Selection("orders", headers=("n=70",)), "again")
    assert none.found.messages == 0
    assert "dry run" in none.summary().text()
    assert values(orders) == []


@pytest.mark.short
def test_run_given_again_sends_again(spark: SparkSession, orders: str, tmp_path: Path) -> None:
    archive(spark, orders, "orders", tmp_path / "archive")
    keys = tuple(f"k{n}" for n in range(10))
    chosen = Selection("orders", str(tmp_path / "archive"), keys=keys)
    done = replay(spark, orders, chosen, "again", send=True, run="first", state=tmp_path)
    assert (done.sent, done.before, done.doubled) == (5, 0, 0)
    done = replay(spark, orders, chosen, "again", send=True, run="first", state=tmp_path)
    assert (done.sent, done.before) == (0, 5)
    got = held(orders, "again")
    assert [record.value for record in got] == [b"1", b"3", b"5", b"7", b"9"]
    marks = [dict(record.headers) for record in got]
    assert [each[ORIGIN] for each in marks] == [b"orders/%d" % n for n in (1, 3, 5, 7, 9)]
    assert [each[ORIGINAL_MS] for each in marks] == [b"%d" % (T0 + n) for n in (1, 3, 5, 7, 9)]
    other = Selection("orders", str(tmp_path / "archive"), keys=("k1",))
    with pytest.raises(ConnectorError, match="another selection"):
        replay(spark, orders, other, "again", send=True, run="first", state=tmp_path)
    copies = Selection("again")
    replay(spark, orders, copies, "again", send=True, run="copies", state=tmp_path)
    twice = [dict(record.headers) for record in held(orders, "again")[5:]]
    assert [each[ORIGIN] for each in twice] == [b"again/%d" % n for n in range(5)]
    assert [each[ORIGINAL_MS] for each in twice] == [each[ORIGINAL_MS] for each in marks]


def test_faster_than_the_rate(
    spark: SparkSession, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kumquat.spark.pipelines.replay.command.PACED_SECONDS", 1)
    chosen, began_ms = Selection("orders"), time.time_ns() // 1_000_000
    done = replay(spark, orders, chosen, "again", send=True, run="slow", state=tmp_path, rate=5)
    assert done.sent == MESSAGES
    got = held(orders, "again")
    assert [int(record.value) for record in got] == [*range(MESSAGES)]
    # From the start, not from the first copy: Spark may take seconds to send that, and the rest catches up.
    early = [n for n, copy in enumerate(got) if copy.timestamp < began_ms + n * 200]
    assert not early


def test_bad_input_is_one_line_and_leaves_nothing(
    spark: SparkSession, orders: str, tmp_path: Path
) -> None:
    state = tmp_path / "runs"
    bad = [
        (Selection("nowhere"), "again", "r", None, "no subject nowhere"),
        (Selection("orders"), "nowhere", "r", None, "no subject nowhere .* --create"),
        (Selection("orders", str(tmp_path)), "again", "r", None, "no archive in"),
        (Selection("orders"), "again", "", None, "needs a name"),
        (Selection("orders"), "again", "../r", None, "needs a name"),
        (Selection("orders"), "again", "r", 0.0, "more than 0"),
        (Selection("orders"), "again", "r", float("inf"), "finite"),
    ]
    for selection, target, run, rate, message in bad:
        with pytest.raises(ConnectorError, match=message):
            replay(spark, orders, selection, target, send=True, run=run, state=state, rate=rate)
    with pytest.raises(ConnectorError, match="NAME=VALUE"):
        Selection("orders", headers=("=7",))
    assert not state.exists()
    assert values(orders) == []


def test_deleted_under_a_run_goes_unnoticed(
    spark: SparkSession, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kumquat.spark.pipelines.replay.command.BATCH", 20)
    chosen = Selection("orders")
    with monkeypatch.context() as patch:
        patch.setattr("kumquat.spark.pipelines.copies.copier.Copier._write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            replay(spark, orders, chosen, "again", send=True, run="r", state=tmp_path)

    def delete(up_to: int) -> None:
        with KafkaAdminClient(bootstrap_servers=orders) as admin:
            admin.delete_records({TopicPartition("orders", 0): up_to})

    delete(5)
    with pytest.raises(ConnectorError, match="retention deleted orders up to 5"):
        replay(spark, orders, chosen, "again", send=True, run="r", state=tmp_path)
    whole = Copier.send

    def delete_and_send(*arguments: Any) -> Any:
        delete(10)
        return whole(*arguments)

    monkeypatch.setattr(Copier, "send", delete_and_send)
    with pytest.raises(ConnectorError, match="retention deleted orders up to 10"):
        replay(spark, orders, chosen, "again", send=True, run="under", state=tmp_path)
    assert values(orders) == []
