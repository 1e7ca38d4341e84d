"""Dedupe against a plain model of its rule, through crashes, and with its state file in every state."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrameWriter

from kumquat.spark.errors import ConnectorError
from kumquat.spark.offsets import latest
from kumquat.spark.pipelines.common.durable import write_json
from kumquat.spark.pipelines.copies import copier as copies
from kumquat.spark.pipelines.copies import journal as copy_journal
from kumquat.spark.pipelines.copies.journal import Journal
from kumquat.spark.pipelines.dedupe import state as dedupe_state
from kumquat.spark.pipelines.dedupe import steps as dedupe_steps
from kumquat.spark.pipelines.dedupe.command import dedupe
from kumquat.spark.pipelines.dedupe.state import Rule, StateFile
from kumquat.spark.pipelines.tests.deduping import NOW, Message, let_through, make, send
from kumquat.spark.tests.command import command
from kumquat.spark.tests.messages import held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker

WINDOW = timedelta(seconds=60)
DEADLINE = 600.0
RULE = Rule("in", "out", 1000, "header", "message-id")
RUN = "dedupe.0"


@pytest.fixture
def bootstrap(kumquat: TestBroker) -> str:
    make(kumquat.bootstrap, "in", "out")
    return kumquat.bootstrap


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
    monkeypatch.setattr(dedupe_steps, "MERGE_FROM", 2)
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
        patch.setattr(StateFile, "commit", crash)
        with pytest.raises(RuntimeError, match="crash"):
            dedupe(spark, bootstrap, "in", "out", tmp_path, window=WINDOW)
    send(bootstrap, [(3, NOW), (11, NOW)], 40)
    dedupe(spark, bootstrap, "in", "out", tmp_path, window=timedelta(minutes=1))
    assert let_through(bootstrap) == [*range(10), 40, 41]


class Crash(BaseException):
    pass


def test_a_crash_between_two_files_loses_or_doubles(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start writes one file of its folder, or two, and crashes after it, or before the next."""
    send(bootstrap, [(n % 4, NOW) for n in range(12)])
    left = [0, 0]

    def write_and_crash(path: Path, content: dict[str, object]) -> None:
        left[0] -= 1
        if left == [0, 0]:
            raise Crash
        write_json(path, content)
        if left == [0, 1]:
            raise Crash

    for module in (copy_journal, dedupe_state):
        monkeypatch.setattr(module, "write_json", write_and_crash)
    monkeypatch.setattr(copies.Copier, "_wait_for_what_outlived", lambda _: None)
    for start in count():
        left[:] = [1 + start % 4 // 2, start % 2]
        try:
            done = dedupe(spark, bootstrap, "in", "out", tmp_path, batch=6)
        except Crash:
            continue
        break
    assert start > 8
    assert let_through(bootstrap) == [0, 1, 2, 3]
    assert (done.read, done.sent, done.state.unsent, done.doubled) == (12, 4, 0, 0)


def test_killed_in_the_middle_it_sends_twice_or_loses(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """The command is killed, its Spark is left behind; it continues at once, in this process."""
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


@pytest.mark.short
def test_messages_of_one_key_are_taken_for_doubles(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """Without an id they are known by their place, unless asked for: a key may rightly come often."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for n in range(5):
        producer.send("in", b"%d" % n, key=b"customer")
    producer.close()
    done = dedupe(spark, bootstrap, "in", "out", tmp_path / "1")
    assert let_through(bootstrap) == [*range(5)]
    assert "without an id  5, which have no header message-id" in done.summary().text()
    dedupe(spark, bootstrap, "in", "out", tmp_path / "2", by="key")
    assert let_through(bootstrap) == [*range(5), 0]


def test_copies_sent_twice_are_not_told(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a producer sent late, after its batch was interrupted and before it is run again."""
    send(bootstrap, [(1, NOW), (2, NOW)])

    def crash(*_: object) -> None:
        raise RuntimeError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "done", crash)
        with pytest.raises(RuntimeError, match="crash"):
            dedupe(spark, bootstrap, "in", "out", tmp_path)
    late = KafkaProducer(bootstrap_servers=bootstrap)
    late.send("out", b"0", headers=held(bootstrap, "out")[0].headers)
    late.close()
    monkeypatch.setattr(copies.Copier, "_wait_for_what_outlived", lambda _: None)
    for _ in range(2):
        done = dedupe(spark, bootstrap, "in", "out", tmp_path).summary()
        assert not done.ok
        assert ("SENT TWICE", "1 message") in done.values


def test_ids_that_another_machine_wrote_are_lost(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster whose machines do not share the folder, some of the files are not there."""
    send(bootstrap, [(n, NOW) for n in range(9)])
    whole = DataFrameWriter.parquet

    def write_elsewhere(writer: DataFrameWriter, path: str) -> None:
        whole(writer, path)
        next(Path(path.removeprefix("file://")).glob("*.parquet")).unlink()

    monkeypatch.setattr(DataFrameWriter, "parquet", write_elsewhere)
    with pytest.raises(ConnectorError, match="all of Spark's machines share"):
        dedupe(spark, bootstrap, "in", "out", tmp_path)
    assert let_through(bootstrap) == []


def test_bad_input_begins_a_run(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="same subject"):
        dedupe(spark, bootstrap, "in", "in", tmp_path / "state")
    with pytest.raises(ConnectorError, match=r"no subject nowhere .* --create"):
        dedupe(spark, bootstrap, "in", "nowhere", tmp_path / "state")
    with pytest.raises(ConnectorError, match=r"no subject nowhere .* correct the name"):
        dedupe(spark, bootstrap, "nowhere", "out", tmp_path / "state", create=True)
    with pytest.raises(ConnectorError, match="longer than nothing"):
        dedupe(spark, bootstrap, "in", "out", tmp_path / "state", window=timedelta(0))
    with pytest.raises(ConnectorError, match="at least 1 message"):
        dedupe(spark, bootstrap, "in", "out", tmp_path / "state", batch=0)
    assert not (tmp_path / "state").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConnectorError, match="cannot be a run's folder: File exists"):
        dedupe(spark, bootstrap, "in", "out", tmp_path / "file")


def test_target_that_is_asked_for_is_not_made(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    send(bootstrap, [(1, NOW), (1, NOW)])
    for _ in range(2):
        dedupe(spark, bootstrap, "in", "new", tmp_path / "state", create=True)
    assert [record.value for record in held(bootstrap, "new")] == [b"0"]


def a_batch(state_file: StateFile, name: str, top: int) -> None:
    state_file.plan(state_file.state.next + 10, top)
    folder = state_file.folder_of(name)
    folder.mkdir(parents=True)
    (folder / "part").write_bytes(b"ids")
    state_file.decide(folder, read=10, nameless=0, sent=7, top_ms=top)
    state_file.commit(7)


def test_books_that_forget_ids_too_early_or_never(tmp_path: Path) -> None:
    state_file = StateFile(tmp_path, RULE, RUN, 5)
    a_batch(state_file, "0", 10_000)
    a_batch(state_file, "1", 10_500)
    assert [each.folder for each in state_file.state.seen] == ["seen/0", "seen/1"]
    a_batch(state_file, "2", 11_000)
    assert [each.folder for each in state_file.state.seen] == ["seen/1", "seen/2"]
    assert not (tmp_path / "seen" / "0").exists()
    assert (state_file.state.next, state_file.state.read, state_file.state.sent) == (35, 30, 21)
    a_batch(state_file, "3", 10_100)
    assert state_file.state.clock_ms == 11_000
    assert StateFile(tmp_path, RULE, RUN, 99).state == state_file.state


def test_books_that_plan_another_range_after_a_crash(tmp_path: Path) -> None:
    pending = StateFile(tmp_path, RULE, RUN, 0).plan(10, 1234)
    left_over = tmp_path / "seen" / "00000000"
    left_over.mkdir(parents=True)
    again = StateFile(tmp_path, RULE, RUN, 0)
    again.clean()
    assert again.plan(99, 9999) == pending
    assert not left_over.exists()


def test_books_that_forget_what_was_decided(tmp_path: Path) -> None:
    state_file = StateFile(tmp_path, RULE, RUN, 0)
    state_file.plan(10, 1234)
    folder = state_file.folder_of("00000000")
    folder.mkdir(parents=True)
    pending = state_file.decide(folder, read=10, nameless=1, sent=7, top_ms=5)
    again = StateFile(tmp_path, RULE, RUN, 0)
    again.clean()
    assert again.plan(99, 9999) == pending
    assert folder.exists()
    again.commit(6)
    state = StateFile(tmp_path, RULE, RUN, 0).state
    assert (state.read, state.nameless, state.sent, state.unsent) == (10, 1, 6, 1)
    with pytest.raises(
        ConnectorError, match=r"is of run dedupe\.0, but its folder is of dedupe\.1"
    ):
        StateFile(tmp_path, RULE, "dedupe.1", 0)


def test_books_of_another_run_are_used(tmp_path: Path) -> None:
    StateFile(tmp_path, RULE, RUN, 0)
    with pytest.raises(ConnectorError, match="window_ms 1000, not 2000: give another folder"):
        StateFile(tmp_path, replace(RULE, window_ms=2000), RUN, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ('{"version": 3}', "newer version"),
        ('{"version": 2}', "damaged"),
        ('{"version": 1}', "older version"),
    ],
)
def test_a_state_file_that_cannot_be_read_is_begun_again(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "dedupe.json").write_text(text)
    with pytest.raises(ConnectorError, match=message) as raised:
        StateFile(tmp_path, RULE, RUN, 0)
    assert "\n" not in str(raised.value)
    assert (tmp_path / "dedupe.json").read_text() == text
