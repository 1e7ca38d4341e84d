"""The command: what it refuses, how it ends, what it prints and where."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from kumquat.spark.cli import main, parser
from kumquat.spark.offsets import latest
from kumquat.spark.pipelines.common.summary import (
    Progress,
    Summary,
    Table,
    count,
    duration,
    size,
)
from kumquat.spark.pipelines.common.times import parse_length, parse_time, to_ms
from kumquat.spark.tests.command import command, with_shared_spark
from kumquat.testing import broker

__all__ = ["with_shared_spark"]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 600.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """One broker for all: no test here writes what another one reads."""
    with broker() as running:
        with KafkaAdminClient(bootstrap_servers=running.bootstrap) as admin:
            names = ("one", "two", "left", "right", "in", "out")
            admin.create_topics([NewTopic(name, 1, 1) for name in names])
        yield running.bootstrap


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "NAME"),
        ("paint", "invalid choice: 'paint'"),
        ("report", "name the subjects to report on"),
        ("report one --since yesterday", "'yesterday' is no time"),
        ("report one --page no/such/folder.html", "no folder for the page"),
        ("report nowhere", "no subject nowhere"),
        ("report --archive no-archive", "no archive in"),
        ("reconcile one", "needs a second side"),
        ("reconcile one nowhere", "no subject nowhere"),
        ("dedupe one two", "--state"),
        ("dedupe one one --state s", "same subject"),
        ("dedupe one two --state s --window 5", "'5' is no length of time"),
        ("archive one --to a --conf nonsense", "write spark.KEY=VALUE"),
    ],
)
def test_bad_input_is_more_than_a_line_or_starts_spark(
    arguments: str,
    message: str,
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kumquat.spark.session.spark_session", None)
    broker = ["--bootstrap", bootstrap] if arguments not in ("", "paint") else []
    assert main([*arguments.split(), *broker]) == 2
    seen = capsys.readouterr()
    assert message in seen.err
    assert len(seen.err.splitlines()) == 1
    assert seen.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        "archive one --to a",
        "replay one --to two",
        "replay one --to two --send --run r",
        "dedupe one two --state s",
        "reconcile one two",
        "report one",
    ],
)
def test_a_broker_that_is_down_is_waited_for(
    arguments: str,
    nobody: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments.split(), "--bootstrap", nobody]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert f"no broker answers at {nobody}" in message
    assert list(tmp_path.iterdir()) == []


def test_without_pyspark_it_is_a_stack_of_errors(tmp_path: Path) -> None:
    """The script comes with the broker, which needs no PySpark; so does the package."""
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "try:\n    from kumquat.spark import read_subject\n"
        "except ImportError as error:\n    print(error)\n"
        "from kumquat.spark.cli import main; sys.exit(main(['report', 'one']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    (refused,) = done.stdout.splitlines()
    assert "kumquat-gateway[spark]" in refused
    assert done.stderr == f"kumquat-spark: {refused}\n"


def send(bootstrap: str, subject: str, *keys: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for key in keys:
        producer.send(subject, b"v", key=key)
    producer.flush()
    producer.close()


@pytest.mark.usefixtures("with_shared_spark")
def test_the_exit_code_says_whether_two_sides_differ(
    bootstrap: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A difference is exit code 1. The summary is on stdout only. Stderr has the progress, and may have
    a warning of the JVM that this process's tests share, so its lines are not counted."""
    send(bootstrap, "left", b"a", b"b")
    send(bootstrap, "right", b"a")
    assert main(["reconcile", "left", "right", "--bootstrap", bootstrap]) == 1
    seen = capsys.readouterr()
    assert seen.out.startswith("reconcile left and right: they differ\n")
    assert "key b" in seen.out
    assert "reconcile: " in seen.err
    assert "they differ" not in seen.err
    assert main(["reconcile", "left", "left", "--bootstrap", bootstrap]) == 0


def test_a_reader_that_has_seen_enough_hides_the_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`kumquat-spark reconcile … | head -1` in a script that looks at the exit code."""
    differs = Summary("they differ", ok=False)
    monkeypatch.setattr("kumquat.spark.cli.run", lambda _: differs)
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        assert main(["reconcile", "more", "less"]) == 1


@pytest.mark.long
def test_ctrl_c_leaves_a_stack_of_errors(bootstrap: str, tmp_path: Path) -> None:
    send(bootstrap, "in", b"a")
    arguments = ["dedupe", "in", "out", "--follow", "--state", str(tmp_path / "state")]
    line = command(*arguments, bootstrap=bootstrap)
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        child = subprocess.Popen(line, stdout=out, stderr=err, start_new_session=True)
    try:
        deadline = time.monotonic() + SECONDS
        while latest(bootstrap, ["out"])["out"] == 0:
            assert child.poll() is None, (tmp_path / "err").read_text()
            assert time.monotonic() < deadline, (tmp_path / "err").read_text()
            time.sleep(0.02)
        os.killpg(child.pid, signal.SIGINT)  # a terminal sends it to Spark's JVM too
        assert child.wait(SECONDS) == 130, (tmp_path / "err").read_text()
    finally:
        child.kill()
        child.wait()
    *before, last = (tmp_path / "err").read_text().splitlines()
    assert last == "kumquat-spark: stopped; run it again to go on"
    assert all(line.startswith("dedupe: ") for line in before)
    assert (tmp_path / "out").read_text() == ""


def test_a_pipeline_without_a_command() -> None:
    for name in ("archive", "replay", "dedupe", "reconcile", "report"):
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([name, "--help"])
        assert ended.value.code == 0


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_fills_a_log_or_leaves_its_line_on_a_terminal() -> None:
    log, times = StringIO(), iter([0.0, 0.0, 1.0, 6.0, 6.0])
    progress = Progress(log, now=lambda: next(times))
    for line in ("one", "two", "three"):
        progress(line)
    progress.end()
    assert log.getvalue() == "one\nthree\n"
    terminal = Terminal()
    progress = Progress(terminal)
    progress("one")
    progress("two")
    progress.end()
    assert terminal.getvalue() == "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K"


def test_a_table_that_does_not_line_up() -> None:
    table = Table(["subject", "n"], [["orders", "7"], ["x", "1,200"]], "by subject")
    assert table.lines() == [
        "by subject",
        "subject      n",
        "───────  ─────",
        "orders       7",
        "x        1,200",
    ]
    assert Summary("done", [("a", "1"), ("bcd", "2")]).text() == "done\n  a    1\n  bcd  2"


def test_numbers_that_nobody_can_read() -> None:
    assert [count(1, "message"), count(1234, "message"), count(0)] == [
        "1 message",
        "1,234 messages",
        "0",
    ]
    assert [size(n) for n in (0, 999, 1000, 2_500_000)] == ["0 B", "999 B", "1.0 kB", "2.5 MB"]
    lengths = [duration(s) for s in (0.012, 4.21, 185, 7_800, 273_600, -2)]
    assert lengths == ["12 ms", "4.2 s", "3 min 5 s", "2 h 10 min", "3 d 4 h", "-2.0 s"]


def test_times_that_mean_something_else() -> None:
    now = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert parse_time("2h", now) == datetime(2026, 11, 16, 10, tzinfo=UTC)
    assert parse_time("2026-11-16T05:30") == datetime(2026, 11, 16, 5, 30, tzinfo=UTC)
    assert parse_time("2026-11-16T05:30+01:00") == datetime(2026, 11, 16, 4, 30, tzinfo=UTC)
    assert parse_length("1.5h") == timedelta(minutes=90)
    assert to_ms(datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC)) == 1999
