"""Two subjects, or a subject and its archive, with known faults put in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.archive import commits as archive_commits
from kumquat.spark.pipelines.archive.command import archive
from kumquat.spark.pipelines.common.identity import identity_text
from kumquat.spark.pipelines.common.preceding_rows import with_highest, with_previous
from kumquat.spark.pipelines.common.sources import Source
from kumquat.spark.pipelines.common.summary import Progress
from kumquat.spark.pipelines.reconcile.command import (
    HARMLESS,
    WRONG,
    Reconciliation,
    Sample,
    reconcile,
    summary,
)
from kumquat.spark.tests.messages import T0

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kumquat.spark.pipelines.archive.commits import State
    from kumquat.testing import TestBroker


@pytest.fixture
def producer(kumquat: TestBroker) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=kumquat.bootstrap)
    yield producer
    producer.close()


def send_ids(producer: KafkaProducer, subject: str, ids: Sequence[int]) -> None:
    for number in ids:
        producer.send(subject, b"v", headers=[("message-id", b"m%d" % number)])
    producer.flush()


def faults(found: Reconciliation) -> dict[str, int]:
    return {what: number for what, number in found.counts.items() if number}


@pytest.mark.short
def test_every_fault_is_found_once(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    send_ids(producer, "left", [0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9])
    send_ids(producer, "right", [0, 2, 1, 3, 4, 4, 4, 6, 7, 8, 9, 99])
    left, right = (Source(kumquat.bootstrap, [name]) for name in ("left", "right"))

    found = reconcile(spark, left, right)

    assert faults(found) == {
        "matched": 9,
        "missing": 1,
        "extra": 1,
        "doubled left": 1,
        "doubled right": 2,
        "out of order": 1,
    }
    assert found.samples["missing"] == [Sample("id m5", 6, None)]
    assert found.samples["extra"] == [Sample("id m99", None, 11)]
    assert found.samples["out of order"] == [Sample("id m2", 2, 1)]
    assert not summary(found, "left and right").ok
    assert "id m99" in summary(found, "left and right").text()


def test_source_with_duplicates_is_a_difference(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer, tmp_path: Path
) -> None:
    """Its archive has each of them, a copy may have them once: both are as they should be."""
    for subject in ("left", "once"):
        for n in [1, 2, 2, 3] if subject == "left" else [1, 2, 3]:
            headers = [("message-id", b"m%d" % n), ("kumquat-origin", b"else/%d" % n)]
            producer.send(subject, b"v", key=b"k", headers=headers)
    producer.flush()
    left = Source(kumquat.bootstrap, ["left"])
    archive(spark, kumquat.bootstrap, "left", tmp_path)
    own = reconcile(spark, left, Source("", ["left"], tmp_path))
    assert (faults(own), own.ok) == ({"matched": 4}, True)
    by_id = reconcile(spark, left, Source("", ["left"], tmp_path), by="id")
    assert (faults(by_id), by_id.ok) == ({"matched": 4}, True)
    once = reconcile(spark, left, Source(kumquat.bootstrap, ["once"]))
    assert (faults(once), once.ok) == ({"matched": 3, "doubled left": 1}, True)
    back = reconcile(spark, Source(kumquat.bootstrap, ["once"]), left)
    assert (faults(back), back.ok) == ({"matched": 3, "doubled right": 1}, False)


def test_keys_that_come_often_are_taken_for_doubles(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    for subject, keys in (("l", "abaab"), ("r", "ababbcc")):
        for key in keys:
            producer.send(subject, b"v", key=key.encode())
    producer.flush()
    left, right = (Source(kumquat.bootstrap, [name]) for name in ("l", "r"))

    found = reconcile(spark, left, right, order="key")
    assert faults(found) == {"matched": 4, "missing": 1, "extra": 2, "doubled right": 1}
    same = reconcile(spark, left, left)
    assert faults(same) == {"matched": 5}
    assert same.ok


def test_an_archive_that_is_behind_or_older_than_retention_is_called_wrong(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer, tmp_path: Path
) -> None:
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.create_topics([NewTopic("kept", 1, 1)])
        for _ in range(10):
            producer.send("kept", b"no id, no key")
        producer.flush()
        archive(spark, kumquat.bootstrap, "kept", tmp_path)
        for _ in range(3):
            producer.send("kept", b"not archived")
        producer.flush()
        admin.delete_records({TopicPartition("kept", 0): 4})

    subject = Source(kumquat.bootstrap, ["kept"])
    found = reconcile(spark, subject, Source(subjects=["kept"], archive=tmp_path))

    assert faults(found) == {"matched": 6, "expired": 4, "not archived yet": 3}
    assert found.ok


def send_plain(producer: KafkaProducer, subject: str, count: int) -> None:
    """Known by their offsets alone."""
    for _ in range(count):
        producer.send(subject, b"no id, no key")
    producer.flush()


def recreate(kumquat: TestBroker, producer: KafkaProducer, subject: str, count: int) -> None:
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.delete_topics([subject])
        admin.create_topics([NewTopic(subject, 1, 1)])
    send_plain(producer, subject, count)


def test_subject_recreated_matches_the_archive_of_the_old_one(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer, tmp_path: Path
) -> None:
    send_plain(producer, "kept", 10)
    archive(spark, kumquat.bootstrap, "kept", tmp_path)
    recreate(kumquat, producer, "kept", 10)
    subject, archived = Source(kumquat.bootstrap, ["kept"]), Source("", ["kept"], tmp_path)
    for left, right in ((subject, archived), (archived, subject)):
        with pytest.raises(ConnectorError, match=r"kept is not the subject that .* made again"):
            reconcile(spark, left, right)


@pytest.mark.parametrize("what", ["made again", "retention"])
def test_subject_that_changes_while_it_is_read(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer, what: str
) -> None:
    send_plain(producer, "left", 10)
    send_plain(producer, "right", 10)

    class Meanwhile(Progress):
        def __call__(self, line: str) -> None:
            if "comparing" not in line:
                return
            if what == "made again":
                recreate(kumquat, producer, "right", 20)
                return
            with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
                admin.delete_records({TopicPartition("right", 0): 4})

    left, right = (Source(kumquat.bootstrap, [name]) for name in ("left", "right"))
    message = {
        "made again": "right was deleted and made again while it was read",
        "retention": "retention deleted right up to 3 while it was read",
    }
    with pytest.raises(ConnectorError, match=message[what]):
        reconcile(spark, left, right, progress=Meanwhile())


def test_archive_that_grows_meanwhile_is_called_wrong(
    spark: SparkSession,
    kumquat: TestBroker,
    producer: KafkaProducer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whenever somebody looks at its commits there are new ones, made since the subject's end was
    asked for or the archive was last looked at."""
    send_plain(producer, "kept", 10)
    archive(spark, kumquat.bootstrap, "kept", tmp_path)
    grows = iter([True, True, False])

    def load(folder: Path) -> State:
        with monkeypatch.context() as patch:
            patch.setattr("kumquat.spark.pipelines.archive.command.load", archive_commits.load)
            if next(grows, False):
                send_plain(producer, "kept", 3)
                archive(spark, kumquat.bootstrap, "kept", tmp_path)
        return archive_commits.load(folder)

    monkeypatch.setattr("kumquat.spark.pipelines.archive.command.load", load)
    found = reconcile(spark, Source(kumquat.bootstrap, ["kept"]), Source("", ["kept"], tmp_path))
    assert faults(found) == {"matched": 13}


def test_copies_are_as_old_as_the_run_that_made_them(
    spark: SparkSession, kumquat: TestBroker, producer: KafkaProducer
) -> None:
    for n in range(10):
        name = [("message-id", b"m%d" % n)]
        producer.send("left", b"v", headers=name, timestamp_ms=T0 + n)
        copied = [*name, ("kumquat-original-ms", b"%d" % (T0 + n))]
        producer.send("right", b"v", headers=copied)
    producer.send("right", b"v", headers=[("kumquat-original-ms", b"a while ago")])
    producer.flush()
    begin = datetime.fromtimestamp(T0 / 1000, UTC)
    since, until = begin + timedelta(milliseconds=4), begin + timedelta(milliseconds=7)
    left = Source(kumquat.bootstrap, ["left"], None, since, until)
    assert faults(reconcile(spark, left, replace(left, subjects=["right"]))) == {"matched": 3}


def test_several_subjects_are_compared_as_one(spark: SparkSession, tmp_path: Path) -> None:
    for subjects in ([], ["one", "two"]):
        side = Source("127.0.0.1:1", subjects)
        with pytest.raises(ConnectorError, match="each side is one subject"):
            reconcile(spark, side, side)


def test_a_second_side_that_is_not_there(spark: SparkSession, kumquat: TestBroker) -> None:
    side = Source(kumquat.bootstrap, ["nowhere"])
    with pytest.raises(ConnectorError, match="no subject nowhere"):
        reconcile(spark, side, side)
    with pytest.raises(ConnectorError, match="not by 'luck'"):
        reconcile(spark, side, side, by="luck")


def test_neighbours_are_lost_between_ranges(spark: SparkSession) -> None:
    """Offsets on both sides of the borders of ranges, and ranges without any."""
    width = 1 << 16
    offsets = [0, 1, width - 1, width, width + 7, 5 * width, 5 * width + 1]
    values = [3, 9, 2, 4, 1, 8, 12]
    rows = spark.createDataFrame(list(zip(offsets, values, strict=True)), "o long, v long")
    before = with_previous(rows, "o", "v", "previous").orderBy("o").collect()
    assert [row["previous"] for row in before] == [None, *values[:-1]]
    highest = with_highest(rows, "o", "v", "highest").orderBy("o").collect()
    assert [row["highest"] for row in highest] == [3, 9, 9, 9, 9, 9, 12]


def test_an_identity_that_is_no_text() -> None:
    assert identity_text(b"korder") == "key order"
    assert identity_text(b"i\xff\x00") == "id 0xff00"
    assert identity_text(b"i") == "id 0x"


def test_a_verdict_that_the_summary_leaves_out() -> None:
    nothing = dict.fromkeys((*WRONG, *HARMLESS), 0)
    for what in WRONG:
        assert not summary(Reconciliation(nothing | {what: 1}, {}), "a and b").ok
    assert "expired" in summary(Reconciliation(nothing | {"expired": 2}, {}), "a and b").text()
