"""Dedupe against a plain model of its rule, through crashes, and with its books in every state."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from spark_connector.errors import ConnectorError
from spark_connector.offsets import latest
from spark_connector.pipelines import dedupe as pipeline
from spark_connector.pipelines.dedupe import dedupe
from spark_connector.pipelines.dedupe_books import Books, Rule
from spark_connector.tests.command import command
from spark_connector.tests.messages import held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from gateway.testing import TestBroker

WINDOW = timedelta(seconds=60)
NOW = int(time.time() * 1000)
DEADLINE = 600.0
RULE = Rule("in", "out", 1000, "id", "message-id")

Message = tuple[int, int]
"""Its id and its time in ms."""


@pytest.fixture
def bootstrap(kumquat: TestBroker) -> str:
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in ("in", "out")])
    return kumquat.bootstrap


def send(bootstrap: str, messages: Sequence[Message], first: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number, (ident, ms) in enumerate(messages, first):
        headers = [("message-id", b"m%d" % ident)]
        producer.send("in", b"%d" % number, headers=headers, timestamp_ms=ms)
    producer.flush()
    producer.close()


def let_through(bootstrap: str) -> list[int]:
    return [int(record.value) for record in held(bootstrap, "out")]


def model(messages: Sequence[Message], window_ms: int) -> list[int]:
    clock, last, kept = 0, dict[int, int](), []
    for number, (ident, ms) in enumerate(messages):
        clock = max(clock, ms)
        if ident not in last or clock - last[ident] >= window_ms:
            last[ident] = clock
            kept.append(number)
    return kept


def test_an_id_comes_twice_within_the_window_or_never_again_after_it(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times run on by two seconds, some lie behind; ids come again within the window and after."""
    draw = random.Random(7)
    messages = [
        (draw.randrange(25), NOW - 900_000 + n * 2000 - draw.choice([0, 0, 1500, 90_000]))
        for n in range(240)
    ]
    monkeypatch.setattr(pipeline, "MERGE_FROM", 2)
    send(bootstrap, messages[:170])
    first = dedupe(spark, bootstrap, "in", "out", tmp_path, window=WINDOW, batch=100)
    send(bootstrap, messages[170:], 170)
    done = dedupe(spark, bootstrap, "in", "out", tmp_path, window=WINDOW, batch=100)

    expected = model(messages, 60_000)
    assert let_through(bootstrap) == expected
    assert 25 < len(expected) < 200
    assert (first.read, done.read, done.sent, done.batches) == (170, 240, len(expected), 3)
    assert len(list((tmp_path / "seen").iterdir())) == 1
    assert f"{240 - len(expected)}, whose id came before" in done.summary().text()
    again = dedupe(spark, bootstrap, "in", "out", tmp_path, window=WINDOW)
    assert (again.read, again.sent) == (done.read, done.sent)


def test_a_crash_after_sending_sends_the_batch_again(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [(n % 10, NOW - 90_000 + n) for n in range(40)]
    send(bootstrap, messages)

    def crash(*_: object) -> None:
        raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(Books, "commit", crash)
        with pytest.raises(RuntimeError, match="crash"):
            dedupe(spark, bootstrap, "in", "out", tmp_path, window=WINDOW)
    send(bootstrap, [(3, NOW), (11, NOW)], 40)
    dedupe(spark, bootstrap, "in", "out", tmp_path, window=timedelta(minutes=1))
    assert let_through(bootstrap) == [*range(10), 40, 41]


def test_killed_in_the_middle_it_sends_twice_or_loses(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """The command is killed, its Spark is left behind; it goes on at once, in this process."""
    messages = [(n // 2, NOW - 60_000 + n) for n in range(3000)]
    send(bootstrap, messages)
    arguments = ["dedupe", "in", "out", "--by", "header", "--batch", "300"]
    line = command(*arguments, "--state", str(tmp_path / "state"), bootstrap=bootstrap)
    with (tmp_path / "log").open("wb") as log:
        child = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + DEADLINE
    try:
        while latest(bootstrap, ["out"])["out"] < 200:  # in the second batch
            assert child.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.005)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    dedupe(spark, bootstrap, "in", "out", tmp_path / "state", by="header")
    assert let_through(bootstrap) == [*range(0, 3000, 2)]


def test_what_retention_deleted_is_passed_over_in_silence(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    send(bootstrap, [(1, NOW)])
    dedupe(spark, bootstrap, "in", "out", tmp_path)
    send(bootstrap, [(n, NOW) for n in range(1, 6)], 1)
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({TopicPartition("in", 0): 3})
    with pytest.raises(ConnectorError, match=r"offsets 1 to 2 of in .* --accept-loss"):
        dedupe(spark, bootstrap, "in", "out", tmp_path)
    dedupe(spark, bootstrap, "in", "out", tmp_path, accept_loss=True)
    assert let_through(bootstrap) == [0, 3, 4, 5]


def test_bad_input_begins_a_run(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="same subject"):
        dedupe(spark, bootstrap, "in", "in", tmp_path / "state")
    with pytest.raises(ConnectorError, match="no subject nowhere"):
        dedupe(spark, bootstrap, "in", "nowhere", tmp_path / "state")
    with pytest.raises(ConnectorError, match="longer than nothing"):
        dedupe(spark, bootstrap, "in", "out", tmp_path / "state", window=timedelta(0))
    with pytest.raises(ConnectorError, match="at least 1 message"):
        dedupe(spark, bootstrap, "in", "out", tmp_path / "state", batch=0)
    assert not (tmp_path / "state").exists()


def a_batch(books: Books, name: str, top: int) -> None:
    books.plan(books.page.next + 10, top)
    folder = books.folder_of(name)
    folder.mkdir(parents=True)
    (folder / "part").write_bytes(b"ids")
    books.commit(10, 7, folder, top)


def test_books_that_forget_ids_too_early_or_never(tmp_path: Path) -> None:
    books = Books(tmp_path, RULE, 5)
    a_batch(books, "0", 10_000)
    a_batch(books, "1", 10_500)
    assert [each.folder for each in books.page.seen] == ["seen/0", "seen/1"]
    a_batch(books, "2", 11_000)
    assert [each.folder for each in books.page.seen] == ["seen/1", "seen/2"]
    assert not (tmp_path / "seen" / "0").exists()
    assert (books.page.next, books.page.read, books.page.sent) == (35, 30, 21)
    a_batch(books, "3", 10_100)
    assert books.page.clock_ms == 11_000
    assert Books(tmp_path, RULE, 99).page == books.page


def test_books_that_plan_another_range_after_a_crash(tmp_path: Path) -> None:
    pending = Books(tmp_path, RULE, 0).plan(10, 1234)
    left_over = tmp_path / "seen" / "00000000"
    left_over.mkdir(parents=True)
    again = Books(tmp_path, RULE, 0)
    assert again.plan(99, 9999) == pending
    assert not left_over.exists()


def test_books_of_another_run_are_used(tmp_path: Path) -> None:
    Books(tmp_path, RULE, 0)
    with pytest.raises(ConnectorError, match="window_ms 1000, not 2000: give another folder"):
        Books(tmp_path, Rule("in", "out", 2000, "id", "message-id"), 0)


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "cannot be read"), ('{"version": 2}', "newer version"), ('{"version": 1}', "lacks")],
)
def test_books_that_cannot_be_read_are_begun_anew(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "dedupe.json").write_text(text)
    with pytest.raises(ConnectorError, match=told) as raised:
        Books(tmp_path, RULE, 0)
    assert "\n" not in str(raised.value)
    assert (tmp_path / "dedupe.json").read_text() == text
