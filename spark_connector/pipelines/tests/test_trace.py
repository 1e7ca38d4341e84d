"""Traces of a history that is written by hand: every figure is one that can be counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from kumquat.spark.cli import main
from kumquat.spark.pipelines.archive.command import archive
from kumquat.spark.pipelines.common.sources import Source
from kumquat.spark.pipelines.trace.command import HISTORY, life, trace
from kumquat.spark.pipelines.trace.facts import Waits, life_summary, trace_summary
from kumquat.spark.tests.command import with_shared_spark
from kumquat.spark.tests.messages import T0, produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker

__all__ = ["with_shared_spark"]

COPY = "history-copy"
"""Nobody but the broker writes the history itself."""


def write(kumquat: TestBroker, *events: dict[str, Any] | bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap)
    for event in events:
        if isinstance(event, bytes):
            producer.send(COPY, event)
        else:
            full = {"subject": "orders", **event, "at": T0 + event["at"]}
            producer.send(COPY, json.dumps(full).encode(), key=b"orders", timestamp_ms=full["at"])
    producer.flush()
    producer.close()


def event(at: int, name: str, *runs: tuple[int, int], **more: object) -> dict[str, Any]:
    return {"at": at, "event": name, "ranges": [list(run) for run in runs], **more}


BILLING = {"group": "billing", "member": "m-1", "client": "c-1"}
SLOW = {"group": "billing", "member": "m-2", "client": "c-2"}
LIFE = (
    event(0, "produced", (0, 10), producer="p", address="127.0.0.1:1"),
    event(100, "pulled", (0, 4), **BILLING, attempt=1),
    event(200, "pulled", (4, 1), (6, 2), **SLOW, attempt=1),
    event(110, "acked", (0, 3), **BILLING),
    event(300, "retried", (3, 1), **BILLING, attempt=2, due=T0 + 1300, reason="busy"),
    event(1300, "pulled", (3, 1), **SLOW, attempt=2),
    event(2300, "acked", (3, 1), (4, 1), **SLOW),
    event(400, "died", (6, 1), group="billing", reason="rejected", text="no", attempts=1),
    event(500, "acked", (0, 5), group="audit", member="a-1", client="reader"),
)


@pytest.mark.short
def test_figures_of_a_trace_that_do_not_add_up(spark: SparkSession, kumquat: TestBroker) -> None:
    other = event(5, "produced", (0, 99)) | {"subject": "others"}
    missed = event(6, "missed", count=7)
    write(kumquat, *LIFE, other, missed, b"no JSON", b'{"at": "soon"}', b"[1]")
    found = trace(spark, Source(kumquat.bootstrap, [COPY]), "orders")

    assert (found.stored, found.missed) == (10, 7)
    audit, billing = found.groups
    assert (audit.group, audit.acked, audit.open, audit.most_attempts) == ("audit", 5, 0, None)
    assert audit.first_delivery is None
    assert audit.handling is None
    assert audit.done == Waits(5, 500, 500, 500)
    assert (billing.acked, billing.open, billing.again, billing.dead) == (5, 1, 1, 1)
    assert billing.most_attempts == 2
    assert billing.first_delivery == Waits(7, 100, 200, 200)
    assert billing.handling == Waits(5, 10, 2100, 2100)
    slow, quick = found.members
    assert (slow.member, slow.client, slow.handling) == ("m-2", "c-2", Waits(2, 1000, 2100, 2100))
    assert (quick.member, quick.handling) == ("m-1", Waits(3, 10, 10, 10))
    text = trace_summary(found, 1).text()
    assert "7 events did not fit" in text
    assert "m-2" in text
    assert "m-1" not in text

    only = trace(spark, Source(kumquat.bootstrap, [COPY]), "orders", group="audit")
    assert [group.group for group in only.groups] == ["audit"]


def test_the_life_of_one_message_has_events_of_another(
    spark: SparkSession, kumquat: TestBroker
) -> None:
    write(kumquat, *LIFE)
    found = life(spark, Source(kumquat.bootstrap, [COPY]), "orders", 3)
    names = [each["event"] for each in found.events]
    assert names == ["produced", "pulled", "retried", "acked", "pulled", "acked"]
    text = life_summary(found).text()
    assert "attempt 2" in text
    assert "reason busy" in text
    nothing = life_summary(life(spark, Source(kumquat.bootstrap, [COPY]), "orders", 99))
    assert "nothing is recorded" in nothing.text()


@pytest.mark.usefixtures("with_shared_spark")
def test_a_history_that_only_the_archive_has_left(
    spark: SparkSession,
    kumquat: TestBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(kumquat, *LIFE)
    folder = tmp_path / "archive"
    archive(spark, kumquat.bootstrap, COPY, folder)
    line = ["trace", "orders", "--archive", str(folder), "--bootstrap", kumquat.bootstrap]
    assert main([*line, "--history", COPY]) == 0
    assert "billing" in capsys.readouterr().out
    assert main([*line, "--history", COPY, "--offset", "6"]) == 0
    assert "rejected" in capsys.readouterr().out
    assert main(line) == 2
    assert "has no history: archive it" in capsys.readouterr().err
    assert main([*line, "--history", COPY, "--offset", "6", "--group", "billing"]) == 2
    assert "leave out --group" in capsys.readouterr().err


def test_the_history_as_the_broker_writes_it_cannot_be_read_or_archived(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 1, 1, topic_configs={"history": "all"})])
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(40)])
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=kumquat.bootstrap,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    seen = 0
    while seen < 40:
        seen += sum(map(len, consumer.poll(1000).values()))
    consumer.commit()
    consumer.close()
    _wait_until_told(kumquat, "acked")

    archive(spark, kumquat.bootstrap, HISTORY, tmp_path / "archive")
    for source in (
        Source(kumquat.bootstrap, [HISTORY]),
        Source(subjects=[HISTORY], archive=tmp_path / "archive"),
    ):
        found = trace(spark, source, "orders")
        (billing,) = found.groups
        assert (found.stored, billing.acked, billing.open) == (40, 40, 0)
        events = life(spark, source, "orders", 17).events
        assert [event["event"] for event in events] == ["produced", "acked"]


def _wait_until_told(kumquat: TestBroker, event: str) -> None:
    """The broker writes what happened a moment later."""
    consumer = KafkaConsumer(bootstrap_servers=kumquat.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(HISTORY, 0)])
    told: list[str] = []
    while event not in told:
        records = consumer.poll(1000).get(TopicPartition(HISTORY, 0), [])
        told += [json.loads(record.value)["event"] for record in records]
    consumer.close()
