"""A pipe that breaks, a signal, a terminal: no noise, the right exit code, no record is lost or late."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kumquat.gateway.cli.tests.terminal import DEADLINE, run, start
from kumquat.gateway.testing.broker import broker

if TYPE_CHECKING:
    from kumquat.gateway.testing.broker import TestBroker


SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def fill(running: TestBroker, topic: str, count: int) -> None:
    stdin = b"".join(b"%d\n" % n for n in range(count))
    assert run("produce", topic, "-b", running.bootstrap, stdin=stdin).code == 0


def test_a_reader_that_has_seen_enough_is_no_error(running: TestBroker, topic: str) -> None:
    fill(running, topic, 5000)
    command = [sys.executable, "-m", "kumquat", "consume", topic, "-b", running.bootstrap]
    pipe = f"set -o pipefail; {shlex.join(command)} | head -n 2"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n1\n", b"")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_ends_consume_in_silence_and_commits_what_was_written(
    running: TestBroker, topic: str, number: signal.Signals, code: int
) -> None:
    fill(running, topic, 5)
    member = ("-g", topic, "-b", running.bootstrap)
    process = start("consume", topic, *member)
    assert process.stdout is not None
    for n in range(5):
        assert process.stdout.readline() == b"%d\n" % n
    process.send_signal(number)
    assert process.communicate(timeout=DEADLINE) == (b"", b"")
    assert process.returncode == code
    assert run("consume", topic, "-e", *member) == (0, b"", "")


def test_where_sigint_is_ignored_it_stays_so_and_sigterm_ends_consume(
    running: TestBroker, topic: str
) -> None:
    """As in the background of a shell without job control."""
    fill(running, topic, 1)
    member = ("-g", topic, "-b", running.bootstrap)
    process = start("consume", topic, *member, ignoring="INT")
    assert process.stdout is not None
    assert process.stdout.readline() == b"0\n"
    process.send_signal(signal.SIGINT)
    fill(running, topic, 1)
    assert process.stdout.readline() == b"0\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=DEADLINE) == (b"", b"")
    assert process.returncode == 143
    assert run("consume", topic, "-e", *member) == (0, b"", "")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_ends_produce_which_says_what_was_written(
    running: TestBroker, topic: str, number: signal.Signals, code: int
) -> None:
    process = start("produce", topic, "-b", running.bootstrap)
    assert process.stdin is not None
    process.stdin.write(b"first\nsecond\nhalf a li")
    process.stdin.flush()
    read = ("consume", topic, "-b", running.bootstrap)
    while run(*read, "-e").out != b"first\nsecond\n":
        pass  # the topic is not there yet, or it is empty
    process.send_signal(number)
    assert process.stderr is not None
    assert (process.wait(DEADLINE), process.stderr.read()) == (code, b"2 records written\n")
    process.communicate()
    assert run(*read, "-e").out == b"first\nsecond\n"


def test_a_line_is_written_before_the_end_of_stdin(running: TestBroker, topic: str) -> None:
    assert run("topics", "create", topic, "-b", running.bootstrap).code == 0
    reading = start("consume", topic, "-c", "2", "-b", running.bootstrap)
    writing = start("produce", topic, "-b", running.bootstrap)
    assert writing.stdin is not None
    assert reading.stdout is not None
    for line in (b"first\n", b"second\n"):
        writing.stdin.write(line)
        writing.stdin.flush()
        assert reading.stdout.readline() == line
    assert reading.wait(DEADLINE) == 0
    assert writing.communicate(timeout=DEADLINE) == (b"", b"2 records written\n")
    reading.communicate()


def at_terminal(*arguments: str, **environ: str) -> bytes:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kumquat", *arguments],
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm", **environ},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # Linux: the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(ours)
    assert process.wait(DEADLINE) == 0
    return shown


def test_a_value_does_not_control_the_terminal(running: TestBroker, topic: str) -> None:
    at = ("-b", running.bootstrap)
    assert run("produce", topic, *at, stdin=b"\x1b[2Jv\n").code == 0
    assert b"\x1b" not in at_terminal("consume", topic, "-e", *at)
    assert run("consume", topic, "-e", *at).out == b"\x1b[2Jv\n"


def test_colours_are_at_a_terminal_alone_and_not_with_no_color(running: TestBroker) -> None:
    topic = "colours"  # in 80 columns, as wide as a dumb terminal is, a longer name is folded
    at = ("-b", running.bootstrap)
    assert run("topics", "create", topic, *at).code == 0
    coloured = at_terminal("topics", "list", *at)
    assert b"\x1b[1m" in coloured
    assert topic.encode() in coloured
    grey = at_terminal("topics", "list", *at, NO_COLOR="1", TERM="dumb")
    assert b"\x1b" not in grey
    assert topic.encode() in grey
    assert b"\x1b" not in run("topics", "list", *at).out


def redirected(running: TestBroker, topic: str, where: str) -> tuple[int, bytes]:
    """The exit code of `consume` as a member, and what is on stderr."""
    command = [sys.executable, "-m", "kumquat", "consume", topic, "-e", "-g", topic]
    line = f"{shlex.join([*command, '-b', running.bootstrap])} {where}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stderr


def test_what_cannot_be_written_is_one_line_and_not_committed(
    running: TestBroker, topic: str
) -> None:
    fill(running, topic, 2)
    full = (1, b"kumquat: stopped: No space left on device\n")
    assert redirected(running, topic, ">/dev/full") == full
    again = run("consume", topic, "-e", "-g", topic, "-b", running.bootstrap)
    assert again == (0, b"0\n1\n", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_closed_stream_is_as_dev_null(running: TestBroker, topic: str, closed: str) -> None:
    fill(running, topic, 2)
    assert redirected(running, topic, closed) == (0, b"")


@pytest.mark.long
def test_a_broker_that_dies_is_not_waited_for_to_the_end_of_time() -> None:
    """In a script with -e nobody presses Ctrl-C."""
    with broker() as dying:
        line = b"x" * 1000 + b"\n"
        assert run("produce", "t", "-b", dying.bootstrap, stdin=line * 20_000).code == 0
        process = start("consume", "t", "-e", "-b", dying.bootstrap)
        assert process.stdout is not None
        assert process.stdout.readline() == line
        dying.kill()
        out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 2
        assert err.startswith(b"kumquat: no broker at")
        assert len(out) < 20_000 * len(line)
