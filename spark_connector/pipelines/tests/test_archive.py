"""Archives: every message once, however a run was stopped, and nothing lost in silence."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import matching
from kumquat.spark.pipelines.archive import format as archive_format
from kumquat.spark.pipelines.archive import run as archive_run
from kumquat.spark.pipelines.archive.command import archive, archive_state, read_archive
from kumquat.spark.pipelines.replay.command import replay
from kumquat.spark.pipelines.replay.plan import Selection
from kumquat.spark.tests.messages import DAY_MS, T0, held, produce

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker


def archived(spark: SparkSession, folder: Path, subject: str) -> list[Any]:
    rows = read_archive(spark, folder, [subject]).orderBy("offset").collect()
    return [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            [(each["key"], each["value"]) for each in row["headers"] or []],
        )
        for row in rows
    ]


def day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")


def in_broker(broker: TestBroker, subject: str) -> list[Any]:
    return [
        (record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for record in held(broker.bootstrap, subject)
    ]


@pytest.mark.short
def test_second_run_takes_a_message_twice_or_leaves_one_out(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    for subject in ("orders", "404"):
        produce(kumquat.bootstrap, subject, [b"%d" % n for n in range(30)] + [None, b""])
    first = archive(spark, kumquat.bootstrap, ["orders", "404"], tmp_path)
    assert (first.messages, first.batches) == (64, 1)
    produce(kumquat.bootstrap, "orders", [b"later"], T0 + 3 * DAY_MS)
    second = archive(spark, kumquat.bootstrap, ["orders", "404"], tmp_path)
    assert (second.messages, second.batches, second.leftovers) == (1, 1, 0)
    assert archive(spark, kumquat.bootstrap, ["orders", "404"], tmp_path).batches == 0
    for subject in ("orders", "404"):
        assert archived(spark, tmp_path, subject) == in_broker(kumquat, subject)
    days = sorted(path.name for path in (tmp_path / "subject=orders").iterdir())
    assert days == [f"day={day(T0)}", f"day={day(T0 + 3 * DAY_MS)}"]
    some = read_archive(spark, tmp_path, ranges={"orders": (30, 33)})
    assert [row["offset"] for row in some.orderBy("offset").collect()] == [30, 31, 32]


def test_reader_sees_files_that_no_commit_has(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(10)])
    archive(spark, kumquat.bootstrap, "orders", tmp_path)
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(10)])

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kumquat.spark.pipelines.archive.view.write_commit", crash)
        with pytest.raises(KeyboardInterrupt):
            archive(spark, kumquat.bootstrap, "orders", tmp_path)
    assert len([*tmp_path.glob("_files/subject=*/day=*/*")]) == 2
    assert len([*tmp_path.glob("subject=*/day=*/*.parquet")]) == 1
    assert len(archived(spark, tmp_path, "orders")) == 10
    (tmp_path / "subject=orders" / "mine.parquet").write_bytes(b"not of the archive")
    done = archive(spark, kumquat.bootstrap, "orders", tmp_path)
    assert (done.messages, done.leftovers) == (10, 1)
    assert archived(spark, tmp_path, "orders") == in_broker(kumquat, "orders")
    assert (tmp_path / "subject=orders" / "mine.parquet").exists()


def test_small_files_pile_up_or_compaction_changes_what_is_read(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    for _ in range(3):
        produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(5)])
        assert archive(spark, kumquat.bootstrap, "orders", tmp_path).replaced == 0
    size = 2 * max(file.bytes for file in archive_state(tmp_path).files.values()) + 2
    produce(kumquat.bootstrap, "orders", [b"next day"], T0 + DAY_MS)
    before = read_archive(spark, tmp_path, ["orders"])
    # Each of the three is below half of the wanted size, so it is two that take their place.
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path, file_bytes=size).replaced == 3
    files = sorted(archive_state(tmp_path).files.values(), key=lambda file: file.first)
    assert [file.rows for file in files[:2]] in ([7, 8], [8, 7])
    assert (files[1].first, files[1].last) == (files[0].last + 1, 14)
    assert (files[2].rows, files[2].first) == (1, 15)
    assert archived(spark, tmp_path, "orders") == in_broker(kumquat, "orders")
    plain = spark.read.parquet(str(tmp_path)).orderBy("offset").collect()
    assert [row["offset"] for row in plain] == [*range(16)]
    assert before.count() == 15


def test_archive_of_an_earlier_version_is_lost_or_counted_twice(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    """It had all files in the folders that every reader sees, also those that were replaced."""
    for _ in range(2):
        produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(5)])
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    produce(kumquat.bootstrap, "orders", [b"next day"], T0 + DAY_MS)
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path).replaced == 2
    for path in tmp_path.glob("_files/subject=*/day=*/*"):
        shown = tmp_path / f"{path.relative_to(tmp_path / '_files')}.parquet"
        path.replace(shown)
    shutil.rmtree(tmp_path / "_files")
    shutil.rmtree(tmp_path / "_replaced")
    assert spark.read.parquet(str(tmp_path)).count() == 21
    assert archived(spark, tmp_path, "orders") == in_broker(kumquat, "orders")
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path).batches == 0
    assert spark.read.parquet(str(tmp_path)).count() == 11
    assert archived(spark, tmp_path, "orders") == in_broker(kumquat, "orders")
    assert len([*tmp_path.glob("_files/subject=*/day=*/*")]) == 4


def test_first_batch_of_a_run_is_of_any_size(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is small while the messages may be large; what is archived tells how large they are."""
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(1050)])
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path).batches == 2
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(1050)])
    files = archive_state(tmp_path).files.values()
    size = sum(file.bytes for file in files) / sum(file.rows for file in files)
    monkeypatch.setattr(archive_run, "BATCH_BYTES", int(size * 1101))
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path).batches == 1


def test_hole_left_by_a_delayed_message_is_taken_for_loss_or_for_an_end(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    """One batch of ten, of which four are delayed: their offsets stay empty, the last one too."""
    producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap, linger_ms=60_000)
    for n in range(10):
        later = [("qmq-delay-ms", b"3600000")] if n in (3, 4, 5, 9) else []
        producer.send("orders", b"%d" % n, headers=later)
    producer.flush()
    producer.close()
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.create_topics([NewTopic("again", 1, 1)])
    done = archive(spark, kumquat.bootstrap, "orders", tmp_path / "archive")
    assert (done.messages, done.batches) == (6, 1)
    assert archive_state(tmp_path / "archive").next == {"orders": 10}
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path / "archive").batches == 0
    chosen = Selection("orders")
    sent = replay(spark, kumquat.bootstrap, chosen, "again", send=True, run="r", state=tmp_path)
    assert sent.sent == 6
    values = [record.value for record in held(kumquat.bootstrap, "again")]
    assert values == [b"0", b"1", b"2", b"6", b"7", b"8"]


def test_deleted_before_archived_goes_unnoticed(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(10)])
    archive(spark, kumquat.bootstrap, "orders", tmp_path)
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(10)])
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.delete_records({TopicPartition("orders", 0): 15})
    with pytest.raises(ConnectorError, match=r"orders: offsets 10 to 14.*--accept-loss"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    assert archive_state(tmp_path).next == {"orders": 10}
    done = archive(spark, kumquat.bootstrap, "orders", tmp_path, accept_loss=True)
    assert (done.messages, done.lost) == (5, {"orders": [(10, 15)]})
    assert "offsets 10 to 14" in done.summary().text()
    assert [row[0] for row in archived(spark, tmp_path, "orders")] == [*range(10), *range(15, 20)]


def test_subject_recreated_is_taken_for_the_old_one(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(10)])
    archive(spark, kumquat.bootstrap, "orders", tmp_path)
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.delete_topics(["orders"])
        admin.create_topics([NewTopic("orders", 1, 1)])
    with pytest.raises(ConnectorError, match="made again"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(20)])
    with pytest.raises(ConnectorError, match="made again"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)


def test_pattern_is_taken_for_a_name(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    for subject in ("shop-a", "shop-b", "other", "__internal"):
        produce(kumquat.bootstrap, subject, [b"1"])
    done = archive(spark, kumquat.bootstrap, ["shop-*", "shop-a"], tmp_path)
    assert (done.subjects, done.messages) == (["shop-a", "shop-b"], 2)
    with pytest.raises(
        ConnectorError, match=r"no subject on .* matches ship-\*: there are .*other"
    ):
        archive(spark, kumquat.bootstrap, "ship-*", tmp_path)
    assert matching(kumquat.bootstrap, ["*"]) == ["other", "shop-a", "shop-b"]


def test_bad_input_is_one_line_and_leaves_nothing(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    with pytest.raises(ConnectorError, match="no subject nowhere"):
        archive(spark, kumquat.bootstrap, "nowhere", folder)
    with pytest.raises(ConnectorError, match="start it"):
        archive(spark, "127.0.0.1:1", "orders", folder)
    with pytest.raises(ConnectorError, match="no archive in"):
        read_archive(spark, folder)
    with pytest.raises(ConnectorError, match="mount"):
        archive(spark, kumquat.bootstrap, "orders", "s3://bucket/archive")
    taken = tmp_path / "file"
    taken.write_text("of somebody")
    for inside in (taken, taken / "archive"):
        with pytest.raises(ConnectorError, match="file is no folder"):
            archive(spark, kumquat.bootstrap, "orders", inside)
    assert not folder.exists()


def test_archive_of_a_newer_version_is_changed_or_misread(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    produce(kumquat.bootstrap, "orders", [b"1"])
    archive(spark, kumquat.bootstrap, "orders", tmp_path)
    commit = max((tmp_path / archive_format.COMMITS).glob("*.json"))
    commit.write_text(json.dumps(json.loads(commit.read_text()) | {"version": 2}))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConnectorError, match=r"newer version.*upgrade"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    with pytest.raises(ConnectorError, match=r"newer version.*upgrade"):
        read_archive(spark, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
