"""What goes on under an archive while it is made: retention, subjects made again, disks that are not
shared, commits that are lost. Nothing of it may cost a message in silence."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.archive import run as archive_run
from kumquat.spark.pipelines.archive import writer as archive_writer
from kumquat.spark.pipelines.archive.command import archive, archive_state, read_archive
from kumquat.spark.pipelines.archive.format import COMMITS
from kumquat.spark.pipelines.common import durable
from kumquat.spark.tests.messages import T0, produce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker

RUN = "kumquat.spark.pipelines.archive.run"


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def create(broker: TestBroker, subject: str) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(subject, 1, 1)])


def delete_up_to(broker: TestBroker, subject: str, offset: int) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(subject, 0): offset})


def recreate(broker: TestBroker, subject: str, count: int) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([subject])
        admin.create_topics([NewTopic(subject, 1, 1)])
    produce(broker.bootstrap, subject, [b"of another"] * count)


def offsets(spark: SparkSession, folder: Path, subject: str) -> list[int]:
    rows = read_archive(spark, folder, [subject]).orderBy("offset").collect()
    return [row["offset"] for row in rows]


def on_batch(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Around the writing of the files of one batch, counted from 1."""
    real, batches = archive_writer.write_files, iter(range(1, 1000))

    def write_files(*arguments: object) -> object:
        here = next(batches) == number
        if here:
            before()
        files = real(*arguments)  # type: ignore[arg-type]
        if here:
            after()
        return files

    monkeypatch.setattr(f"{RUN}.write_files", write_files)


def test_second_of_two_new_subjects_loses_to_retention_in_silence(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["first", "second"]
    for subject in both:
        produce(kumquat.bootstrap, subject, numbers(10))
    monkeypatch.setattr(archive_run, "FIRST_BATCH", 10)
    on_batch(monkeypatch, 1, after=lambda: delete_up_to(kumquat, "second", 4))
    with pytest.raises(ConnectorError, match=r"second: offsets 0 to 3.*--accept-loss"):
        archive(spark, kumquat.bootstrap, both, tmp_path)
    delete_up_to(kumquat, "second", 10)  # all of it
    done = archive(spark, kumquat.bootstrap, both, tmp_path, accept_loss=True)
    assert done.lost == {"second": [(0, 10)]}
    assert offsets(spark, tmp_path, "first") == [*range(10)]


def test_subject_that_was_empty_at_first_loses_to_retention_in_silence(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    create(kumquat, "orders")
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path).batches == 0
    produce(kumquat.bootstrap, "orders", numbers(10))
    delete_up_to(kumquat, "orders", 10)
    with pytest.raises(ConnectorError, match=r"orders: offsets 0 to 9.*--accept-loss"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)


def test_retention_that_passes_a_batch_as_it_is_read_is_not_told_as_such(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(kumquat.bootstrap, "orders", numbers(10))
    on_batch(monkeypatch, 1, before=lambda: delete_up_to(kumquat, "orders", 4))
    with pytest.raises(ConnectorError, match=r"orders: offsets 0 to 3.*--accept-loss"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    on_batch(monkeypatch, 1, before=lambda: delete_up_to(kumquat, "orders", 6))
    done = archive(spark, kumquat.bootstrap, "orders", tmp_path, accept_loss=True)
    assert done.lost == {"orders": [(0, 6)]}
    assert offsets(spark, tmp_path, "orders") == [*range(6, 10)]
    assert not [*tmp_path.glob("_staging/*")]


def test_subject_recreated_in_the_middle_of_a_run_is_put_behind_the_old_one(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(kumquat.bootstrap, "orders", numbers(10))
    monkeypatch.setattr(archive_run, "FIRST_BATCH", 5)
    on_batch(monkeypatch, 2, before=lambda: recreate(kumquat, "orders", 20))
    with pytest.raises(ConnectorError, match=r"orders is not the subject .* up to 5.* made again"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    assert archive_state(tmp_path).next == {"orders": 5}
    values = [row["value"] for row in read_archive(spark, tmp_path).orderBy("offset").collect()]
    assert values == numbers(5)


def test_run_that_waited_for_another_calls_the_subject_recreated(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(kumquat.bootstrap, "orders", numbers(5))

    @contextmanager
    def locked(spark: SparkSession, path: Path) -> Iterator[None]:
        """The other one gets it first."""
        monkeypatch.setattr("kumquat.spark.pipelines.archive.command.locked", durable.locked)
        produce(kumquat.bootstrap, "orders", numbers(5))
        assert archive(spark, kumquat.bootstrap, "orders", tmp_path).messages == 10
        with durable.locked(spark, path):
            yield

    monkeypatch.setattr("kumquat.spark.pipelines.archive.command.locked", locked)
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path).messages == 0


def test_broker_that_lost_its_newest_messages_goes_unnoticed(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restore of an older backup: it would give the same offsets to others."""
    produce(kumquat.bootstrap, "orders", numbers(10))
    archive(spark, kumquat.bootstrap, "orders", tmp_path)
    monkeypatch.setattr(f"{RUN}.latest", lambda *_: {"orders": 7})
    with pytest.raises(ConnectorError, match="orders ends at 7, but the archive has it up to 10"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)


def test_broker_that_dies_in_a_run_leaves_half_a_batch(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(kumquat.bootstrap, "orders", numbers(10))
    with monkeypatch.context() as patch:
        patch.setattr(archive_run, "FIRST_BATCH", 5)
        on_batch(patch, 2, after=kumquat.kill)
        with pytest.raises(ConnectorError, match=r"no broker answers at .*: start it"):
            archive(spark, kumquat.bootstrap, "orders", tmp_path)
    assert archive_state(tmp_path).next == {"orders": 5}
    kumquat.start()
    done = archive(spark, kumquat.bootstrap, "orders", tmp_path)
    assert (done.messages, done.leftovers, done.kept) == (5, 1, 0)
    assert offsets(spark, tmp_path, "orders") == [*range(10)]


def test_files_on_disks_that_the_driver_does_not_see_are_committed_as_written(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What executors wrote on disks of their own is not where the driver looks: all, or a part."""
    both = ["orders", "payments"]
    for subject in both:
        produce(kumquat.bootstrap, subject, numbers(10))
    real, seen = archive_writer._facts, 0

    def facts(spark: SparkSession, staging: Path) -> object:
        for folder in sorted(staging.glob("subject=*"))[seen:]:
            shutil.rmtree(folder)
        return real(spark, staging)

    monkeypatch.setattr(archive_writer, "_facts", facts)
    with pytest.raises(ConnectorError, match=r"wrote 20 messages, but 0 of them are in .*machines"):
        archive(spark, kumquat.bootstrap, both, tmp_path)
    seen = 1
    with pytest.raises(
        ConnectorError, match=r"wrote 20 messages, but 10 of them are in .*machines"
    ):
        archive(spark, kumquat.bootstrap, both, tmp_path)
    assert archive_state(tmp_path).next == {"orders": 0, "payments": 0}


def test_folder_with_a_name_of_signs_or_another_default_file_system(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a [b] {c,d} 100% *?#" / "archive"
    monkeypatch.setitem(archive_writer._SETTINGS, "fs.defaultFS", "hdfs://127.0.0.1:1")
    produce(kumquat.bootstrap, "orders", numbers(5))
    archive(spark, kumquat.bootstrap, "orders", folder)
    produce(kumquat.bootstrap, "orders", numbers(5))
    produce(kumquat.bootstrap, "orders", [b"next day"], T0 + 86_400_000)
    assert archive(spark, kumquat.bootstrap, "orders", folder).replaced == 2
    assert offsets(spark, folder, "orders") == [*range(11)]


def test_files_of_lost_commits_are_deleted_as_left_over(
    spark: SparkSession, kumquat: TestBroker, tmp_path: Path
) -> None:
    """The newest commit is lost, which looks like an interrupted run; or all of them are."""
    for _ in range(2):
        produce(kumquat.bootstrap, "orders", numbers(5))
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    files = sorted(tmp_path.glob("_files/subject=*/day=*/*"))
    commits = sorted((tmp_path / COMMITS).iterdir())
    delete_up_to(kumquat, "orders", 8)
    kept = commits[-1].read_text()
    commits[-1].unlink()
    with pytest.raises(ConnectorError, match=r"offsets 5 to 7.*whose commit is lost"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    assert sorted(tmp_path.glob("_files/subject=*/day=*/*")) == files
    commits[-1].write_text(kept)
    assert archive(spark, kumquat.bootstrap, "orders", tmp_path).batches == 0
    assert offsets(spark, tmp_path, "orders") == [*range(10)]

    commits[-1].unlink()
    done = archive(spark, kumquat.bootstrap, "orders", tmp_path, accept_loss=True)
    assert (done.lost, done.leftovers, done.kept) == ({"orders": [(5, 8)]}, 0, 1)
    assert "1 file of an interrupted run" in done.summary().text()
    assert files[-1].exists()

    shutil.rmtree(tmp_path / COMMITS)
    with pytest.raises(ConnectorError, match=r"files of commit 2, but .* restore _commits"):
        archive(spark, kumquat.bootstrap, "orders", tmp_path)
    assert all(file.exists() for file in files)
