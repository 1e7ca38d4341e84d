"""Each pipeline as its command, to the end, and what stops it on the way: the broker, the disk, SIGTERM.

The command runs in this process with the Spark that all tests share; that it starts and ends one of its
own is the business of test_cli.py.
"""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from kumquat.spark.cli import main
from kumquat.spark.offsets import latest
from kumquat.spark.subjects import read_subject
from kumquat.spark.testing import SMALL
from kumquat.spark.tests.command import with_shared_spark
from kumquat.spark.tests.messages import held, produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kumquat.testing import TestBroker

__all__ = ["with_shared_spark"]

pytestmark = pytest.mark.usefixtures("with_shared_spark")
SECONDS = 300.0
ROW = "kumquat.test.row"
SLOW = "java_method('java.lang.Thread', 'sleep', 100L) is not null"
TOLD = f"java_method('java.lang.System', 'setProperty', '{ROW}', 'seen') is not null"
"""Rows leave a mark in the JVM, for a test that wants to step in when some have come."""
POLL_MS = 6000
"""Instead of the minutes that Spark and Kafka wait for a broker."""


class Command:
    """`kumquat-spark` in a folder of its own, which is a person's current one."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys

    def __call__(self, line: str) -> tuple[int, str, list[str]]:
        """Its exit code, what it said, and its complaints: all on stderr that is no progress."""
        code = main([*line.split(), "--bootstrap", self._bootstrap])
        seen = self._capsys.readouterr()
        progress = f"{line.split()[0]}: "
        return code, seen.out, [x for x in seen.err.splitlines() if not x.startswith(progress)]


@pytest.fixture
def run(
    kumquat: TestBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(kumquat.bootstrap, capsys)


def create(kumquat: TestBroker, *names: str) -> None:
    with KafkaAdminClient(bootstrap_servers=kumquat.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in names])


@pytest.mark.short
def test_a_pipeline_that_only_works_as_a_function(
    run: Command, kumquat: TestBroker, tmp_path: Path
) -> None:
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(12)])
    create(kumquat, "again")

    def done(line: str) -> str:
        code, out, complaints = run(line)
        assert (code, complaints) == (0, []), line
        return out

    assert "12 messages" in done("archive orders --to kept")
    chosen = "replay orders --to again --archive kept --header n=7 --since 10d --rate 50"
    assert "1 message" in done(chosen)
    assert latest(kumquat.bootstrap, ["again"]) == {"again": 0}
    done(f"{chosen} --send --run seven")
    assert [record.value for record in held(kumquat.bootstrap, "again")] == [b"7"]
    assert "orders" in done("report --archive kept --page of-archive.html")
    assert "12 messages" in (tmp_path / "of-archive.html").read_text()


def test_broker_that_dies_under_a_pipeline_is_a_stack_of_errors(
    run: Command,
    spark: SparkSession,
    kumquat: TestBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's tasks are in the middle of reading: rows are slow, and fetches small."""
    for n in range(60):
        produce(kumquat.bootstrap, "orders", [b"%d" % n])
    options: dict[str, Any] = {
        "kafkaConsumer.pollTimeoutMs": POLL_MS,
        "kafka.default.api.timeout.ms": POLL_MS,
        "kafka.request.timeout.ms": POLL_MS,
        "kafka.max.partition.fetch.bytes": 200,
    }

    def slowly(*given: Any, **more: Any) -> DataFrame:
        return read_subject(*given, **(more | options)).where(SLOW).where(TOLD)

    def kill() -> None:
        while not ended.is_set() and jvm.getProperty(ROW) is None:
            ended.wait(0.02)
        kumquat.kill()

    context: Any = spark.sparkContext
    jvm = context._jvm.java.lang.System
    jvm.clearProperty(ROW)
    context.setLogLevel("OFF")  # as the command has it
    monkeypatch.setattr("kumquat.spark.pipelines.common.sources.read_subject", slowly)
    ended = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        code, out, complaints = run("report orders")
    finally:
        ended.set()
        killer.join()
        context.setLogLevel(SMALL["spark.log.level"])
    assert (code, out, len(complaints)) == (2, "", 1), complaints
    assert "the broker does not answer: see that it runs" in complaints[0]
    assert jvm.getProperty(ROW) == "seen"
    assert list(tmp_path.iterdir()) == []


def test_sigterm_leaves_a_stack_of_errors_or_tasks_that_send(
    run: Command, kumquat: TestBroker, tmp_path: Path
) -> None:
    """In the middle of a batch: the target has some of the copies, and not all."""
    produce(kumquat.bootstrap, "orders", [b"%d" % n for n in range(200)])
    create(kumquat, "again")
    ended = threading.Event()
    sent = partial(latest, kumquat.bootstrap, ["again"])

    def terminate() -> None:
        while not ended.is_set() and sent()["again"] == 0:
            ended.wait(0.05)
        if not ended.is_set():
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sender = threading.Thread(target=terminate)
    sender.start()
    try:
        code, out, complaints = run("replay orders --to again --send --run r --rate 10")
    finally:
        ended.set()
        sender.join(SECONDS)
        signal.signal(signal.SIGTERM, before)
    assert (code, out) == (143, ""), complaints
    assert complaints == ["kumquat-spark: stopped; run it again to go on"]
    assert 0 < sent()["again"] < 200
    assert sent() == sent()


def test_disk_that_says_no_is_a_stack_of_errors(
    run: Command, kumquat: TestBroker, tmp_path: Path
) -> None:
    """Found out before Spark starts or after: one line, with the place and the reason."""
    produce(kumquat.bootstrap, "kept", [b"1"])
    create(kumquat, "two")
    (tmp_path / "file").write_text("mine")
    for line in (
        "archive kept --to file",
        "archive kept --to file/below",
        "dedupe kept two --state file",
        "replay kept --to two --send --run r --state file",
        "report kept --page file/page.html",
    ):
        code, out, complaints = run(line)
        assert (code, out, len(complaints)) == (2, "", 1), line
        assert "file" in complaints[0], line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"
