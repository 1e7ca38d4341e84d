"""Archive and replay killed with -9 and given again: every message once, in order.

The killed ones are processes with a Spark of their own. The one that continues runs in this process,
at once: when only Python was killed, the Spark that it left behind is still there then.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.archive.command import archive, archive_state, read_archive
from kumquat.spark.pipelines.replay.command import Replayed, replay
from kumquat.spark.pipelines.replay.plan import Selection
from kumquat.spark.tests.child import BATCH, Child
from kumquat.spark.tests.messages import held, produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker

MESSAGES = 1500
RATE = 150


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that was left behind ends when it ends: on a busy machine that may take long."""
    monkeypatch.setattr("kumquat.spark.pipelines.common.durable.LOCK_WAIT_SECONDS", 600)


@pytest.fixture
def orders(kumquat: TestBroker) -> str:
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(MESSAGES)])
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.create_topics([NewTopic("again", 1, 1)])
    return kumquat.bootstrap


def names(folder: Path) -> list[str]:
    """What is below the folder, while others move and delete it."""
    return [name for _, _, files in os.walk(folder) for name in files]


def test_archive_killed_between_data_and_commit_loses_or_doubles(
    spark: SparkSession, orders: str, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"

    def second_batch_is_written() -> bool:
        written = any(name.endswith(".parquet") for name in names(folder / "_staging"))
        commits = [name for name in names(folder / "_commits") if name.endswith(".json")]
        return written and len(commits) > 1  # the first one has no messages

    with Child("archive", orders, str(tmp_path), log=tmp_path / "log") as child:
        child.kill_when(second_batch_is_written, "a batch was on disk", everything=True)
    assert archive_state(folder).next["orders"] >= BATCH
    archive(spark, orders, "orders", folder)
    offsets = [row["offset"] for row in read_archive(spark, folder).orderBy("offset").collect()]
    assert offsets == [*range(MESSAGES)]
    assert not any(folder.glob("_staging/*"))


@pytest.mark.parametrize("everything", [False, True], ids=["python", "all"])
def test_replay_killed_while_sending_sends_twice(
    spark: SparkSession,
    orders: str,
    tmp_path: Path,
    everything: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive(spark, orders, "orders", tmp_path / "archive")
    arguments = ("replay", orders, str(tmp_path), "run", str(RATE))
    consumer = KafkaConsumer(bootstrap_servers=orders)
    place = TopicPartition("again", 0)

    def half_is_sent() -> bool:
        return bool(consumer.end_offsets([place])[place] > MESSAGES // 2)

    def go_on() -> Replayed:
        chosen = Selection("orders", str(tmp_path / "archive"))
        return replay(spark, orders, chosen, "again", send=True, run="run", state=tmp_path / "runs")

    with Child(*arguments, log=tmp_path / "log") as child, contextlib.closing(consumer):
        child.kill_when(half_is_sent, "half was sent", everything=everything)
        if not everything:
            # Spark is there, and may send at any time: nobody may go on yet.
            with monkeypatch.context() as patch:
                patch.setattr("kumquat.spark.pipelines.common.durable.LOCK_WAIT_SECONDS", 0)
                with pytest.raises(ConnectorError, match="in use"):
                    go_on()
            child.let_spark_go_on()
        done = go_on()
    assert done.doubled == 0
    assert done.sent + done.before == MESSAGES
    values = [int(record.value) for record in held(orders, "again")]
    assert values == [*range(MESSAGES)]


@pytest.mark.long
def test_task_that_spark_repeats_sends_twice(kumquat: TestBroker, tmp_path: Path) -> None:
    """The first attempt sends some copies and then fails on one that the target refuses."""
    produce(kumquat.bootstrap, "from", [b"%d" % n for n in range(50)] + [b"x" * 20_000])
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        small = {"max.message.bytes": "10000"}
        admin.create_topics([NewTopic("to", 1, 1, topic_configs=small)])
    log = tmp_path / "log"
    with Child("repeat", kumquat.bootstrap, str(tmp_path), log=log) as child:
        assert child.wait() == 1
    assert "ConnectorError: a task failed and Spark repeated it" in log.read_text()
    values = [record.value for record in held(kumquat.bootstrap, "to")]
    assert values
    assert len(values) == len(set(values))
