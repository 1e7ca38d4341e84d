"""Archive and replay killed with -9 and given again: every message once, in order.

The killed ones are processes with a Spark of their own. The one that goes on runs at once, in this
process: when only Python was killed, the Spark that it left behind is still sending then.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from spark_connector.pipelines.archive import archive, archive_state, read_archive
from spark_connector.pipelines.replay import replay
from spark_connector.pipelines.replay_plan import Selection
from spark_connector.tests.child import BATCH, Child
from spark_connector.tests.messages import held, produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from gateway.testing import TestBroker

MESSAGES = 1500
RATE = 150


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
    child = Child("archive", orders, str(tmp_path), log=tmp_path / "log")

    def second_batch_is_written() -> bool:
        written = any(name.endswith(".parquet") for name in names(folder / "_staging"))
        return written and any(name.endswith(".json") for name in names(folder / "_commits"))

    child.kill_when(second_batch_is_written, "the second batch was on disk")
    assert archive_state(folder).next["orders"] >= BATCH
    archive(spark, orders, "orders", folder)
    offsets = [row["offset"] for row in read_archive(spark, folder).orderBy("offset").collect()]
    assert offsets == [*range(MESSAGES)]
    assert not any(folder.glob("_staging/*"))


@pytest.mark.parametrize("everything", [False, True], ids=["python", "all"])
def test_replay_killed_while_sending_sends_twice(
    spark: SparkSession, orders: str, tmp_path: Path, everything: bool
) -> None:
    archive(spark, orders, "orders", tmp_path / "archive")
    child = Child("replay", orders, str(tmp_path), "run", str(RATE), log=tmp_path / "log")

    with contextlib.closing(KafkaConsumer(bootstrap_servers=orders)) as consumer:
        place = TopicPartition("again", 0)

        def half_is_sent() -> bool:
            return bool(consumer.end_offsets([place])[place] > MESSAGES // 2)

        child.kill_when(half_is_sent, "half was sent", everything=everything)
    chosen = Selection("orders", str(tmp_path / "archive"))
    done = replay(spark, orders, chosen, "again", send=True, run="run", state=tmp_path / "runs")
    assert done.doubled == 0
    assert done.sent + done.before == MESSAGES
    values = [int(record.value) for record in held(orders, "again")]
    assert values == [*range(MESSAGES)]


def test_task_that_spark_repeats_sends_twice(kumquat: TestBroker, tmp_path: Path) -> None:
    """The first attempt sends some copies and then fails on one that the target refuses."""
    produce(kumquat.bootstrap, "from", [b"%d" % n for n in range(50)] + [b"x" * 20_000])
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        small = {"max.message.bytes": "10000"}
        admin.create_topics([NewTopic("to", 1, 1, topic_configs=small)])
    log = tmp_path / "log"
    assert Child("repeat", kumquat.bootstrap, str(tmp_path), log=log).wait() == 1
    assert "ConnectorError: a task failed and Spark repeated it" in log.read_text()
    values = [record.value for record in held(kumquat.bootstrap, "to")]
    assert values
    assert len(values) == len(set(values))
