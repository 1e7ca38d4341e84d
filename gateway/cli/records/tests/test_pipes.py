"""A pipe that breaks, Ctrl-C, a terminal: noise, a wrong exit code, records that are lost or late."""

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


def fill(running: TestBroker, topic: str, count: int) -> None:
    stdin = b"".join(b"%d\n" % n for n in range(count))
    assert run("produce", topic, "-b", running.bootstrap, stdin=stdin).code == 0


def test_a_reader_that_has_seen_enough_is_an_error(running: TestBroker, topic: str) -> None:
    fill(running, topic, 5000)
    command = [sys.executable, "-m", "kumquat", "consume", topic, "-b", running.bootstrap]
    pipe = f"set -o pipefail; {shlex.join(command)} | head -n 2"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0\n1\n", b"")


def test_ctrl_c_is_noisy_or_loses_what_was_read(running: TestBroker, topic: str) -> None:
    fill(running, topic, 5)
    member = ("-g", topic, "-b", running.bootstrap)
    process = start("consume", topic, *member)
    assert process.stdout is not None
    for n in range(5):
        assert process.stdout.readline() == b"%d\n" % n
    assert run("produce", topic, "-b", running.bootstrap, stdin=b"5\n").code == 0
    assert process.stdout.readline() == b"5\n"  # so the others are done with
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, err) == (130, b"", b"")
    again = run("consume", topic, "-e", *member)
    assert again in ((0, b"", ""), (0, b"5\n", ""))


def test_a_line_waits_for_the_end_of_stdin(running: TestBroker, topic: str) -> None:
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


def test_a_value_controls_the_terminal(running: TestBroker, topic: str) -> None:
    at = ("-b", running.bootstrap)
    assert run("produce", topic, *at, stdin=b"\x1b[2Jv\n").code == 0
    assert b"\x1b" not in at_terminal("consume", topic, "-e", *at)
    assert run("consume", topic, "-e", *at).out == b"\x1b[2Jv\n"


def test_colours_are_in_a_pipe_or_in_spite_of_no_color(running: TestBroker, topic: str) -> None:
    at = ("-b", running.bootstrap)
    assert run("topics", "create", topic, *at).code == 0
    coloured = at_terminal("topics", "list", *at)
    assert b"\x1b[1m" in coloured
    assert topic.encode() in coloured
    grey = at_terminal("topics", "list", *at, NO_COLOR="1", TERM="dumb")
    assert b"\x1b" not in grey
    assert topic.encode() in grey
    assert b"\x1b" not in run("topics", "list", *at).out


@pytest.mark.long
def test_a_broker_that_dies_is_waited_for_to_the_end_of_time() -> None:
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
