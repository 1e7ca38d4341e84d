"""`kumquat top`: wrong rates, a group that is behind and not shown, a view that ends with the broker."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

from kumquat.gateway.cli.tests.terminal import DEADLINE, run
from kumquat.gateway.cli.watch.picture import sections
from kumquat.gateway.cli.watch.readings import Reading, compare
from kumquat.gateway.testing.broker import broker

if TYPE_CHECKING:
    from kumquat.gateway.testing.broker import TestBroker

NOW = 1_700_000_000_000


def statistics(**changed: int) -> dict[str, Any]:
    return {
        "log": {
            "subjects": 2,
            "bytes_stored": changed.get("stored", 0),
            "bytes_unsynced": 10,
            "syncs": changed.get("syncs", 0),
            "fenced": bool(changed.get("fenced")),
        },
        "delay": {
            "pending": 3,
            "overdue": 1,
            "delivered": 0,
            "lateness": {"p99": 5, "max": 9},
        },
        "groups": {"fenced": False},
        "sharing": {"messages": changed.get("handed", 0)},
        "dead_letters": {"written": 0, "waiting": 0},
        "loop": {"p99": 1500, "max": 9000, "buckets_ms": {"1": changed.get("quick", 0), "5": 7}},
    }


def group(name: str, lag: int, end: int, since: int | None = None) -> dict[str, Any]:
    holding = {"member": "m", "subject": "t", "messages": 5, "since": since, "attempts": 2}
    return {
        "group": name,
        "state": "Stable",
        "members": 1,
        "lag": lag,
        **dict.fromkeys(("in_flight", "waiting", "doomed"), 0),
        "subjects": [{"subject": "t", "high_watermark": end, "lag": lag}],
        "holdings": [holding],
    }


def reading(at: float, end: int, groups: list[dict[str, Any]], **changed: int) -> Reading:
    return Reading(at, NOW, statistics(**changed), groups, groups, {"t": end, "u": 7})


def test_rates_and_lags_are_wrong() -> None:
    before = reading(10.0, 100, [group("slow", 50, 100), group("fast", 0, 100)])
    after = reading(
        12.0,
        300,
        [group("fast", 0, 300), group("slow", 230, 300, NOW - 5000)],
        stored=2048,
        syncs=8,
        handed=40,
        quick=1000,
    )
    view = compare(before, after)
    assert view.seconds == 2.0
    assert (view.broker["in_messages"], view.broker["in_bytes"]) == (100.0, 1024.0)
    assert (view.broker["lag"], view.broker["syncs"], view.broker["handed_out"]) == (230, 4.0, 20.0)
    assert view.broker["loop_now_ms"] == "1"
    slow, fast = view.groups
    assert (slow["group"], slow["lag"], slow["done"], slow["left"]) == ("slow", 230, 10.0, 23.0)
    assert (fast["group"], fast["done"], fast["left"]) == ("fast", 100.0, None)
    assert view.broker["out_messages"] == 110.0
    assert [topic["topic"] for topic in view.topics] == ["t", "u"]
    (member,) = view.members
    assert (member["group"], member["held_ms"], member["messages"]) == ("slow", 5000, 5)
    head, tables = sections(view)
    assert head[0] == "in   100 messages/s, 1.0 KiB/s; done 110/s, handed out 20/s; lag 230"
    assert tables[0][0] == "Groups, furthest behind first"
    assert tables[0][1][1][:6] == ["slow", "Stable", "1", "230", "10.0", "23.0 s"]
    assert "5.0 s" in tables[1][1][1]


def test_a_restart_of_the_broker_is_a_rate_below_nothing() -> None:
    before = reading(10.0, 100, [group("g", 0, 100)], stored=5000, syncs=9)
    after = reading(12.0, 100, [group("g", 100, 100)], stored=0, syncs=0, fenced=1)
    view = compare(before, after)
    assert (view.broker["in_bytes"], view.broker["syncs"]) == (0.0, 0.0)
    assert view.groups[0]["done"] == 0.0
    head, _ = sections(view)
    assert head[-1].startswith("FENCED: ")


def test_once_shows_other_numbers_than_the_broker_has(running: TestBroker, topic: str) -> None:
    at = ("--bootstrap", running.bootstrap)
    assert run("produce", topic, *at, stdin=b"x\n" * 30).code == 0
    assert run("consume", topic, "-c", "10", "-g", topic, *at).code == 0
    where = (*at, "--admin", running.admin, "--once", "--interval", "0.1")
    view = run("top", *where, "--json").json
    (found,) = [each for each in view["groups"] if each["group"] == topic]
    assert (found["lag"], found["done"], found["members"]) == (20, 0.0, 0)
    assert view["broker"]["lag"] >= 20
    done = run("top", *where)
    assert (done.code, done.err) == (0, "")
    assert "Groups, furthest behind first" in done.text
    assert [topic, "Empty", "0", "20", "0.0", "-", "0", "0", "0"] in [
        line.split() for line in done.text.splitlines()
    ]


def test_top_without_a_broker_is_not_one_line() -> None:
    nowhere = ("-b", "127.0.0.1:1", "--admin", "http://127.0.0.1:1")
    assert "no broker at 127.0.0.1:1" in run("top", "--once", *nowhere).wrong
    assert "--interval: 0.0 is not in the range" in run("top", "--interval", "0").wrong


def test_the_view_ends_with_the_broker_or_does_not_end_with_q() -> None:
    with broker() as b:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "kumquat", "top", "--interval", "0.2"]
        command += ["-b", b.bootstrap, "--admin", b.admin]
        process = subprocess.Popen(
            command,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"},
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
        )
        os.close(theirs)
        read_until(ours, b"messages/s")
        b.stop()
        read_until(ours, b"no admin endpoint at")
        os.write(ours, b"xq")
        read_until(ours, b"")
        assert process.wait(DEADLINE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        os.close(ours)


def test_sigterm_ends_the_view_and_leaves_the_terminal_as_it_was(running: TestBroker) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "kumquat", "top", "--interval", "0.2"]
    process = subprocess.Popen(
        [*command, "-b", running.bootstrap, "--admin", running.admin],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    read_until(ours, b"messages/s")
    process.terminate()
    read_until(ours, b"\x1b[?1049l")  # the screen that was there before
    assert process.wait(DEADLINE) == 143
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


def read_until(terminal: int, text: bytes) -> None:
    """Until a terminal shows this; no text: until nobody writes to it any more."""
    shown = b""
    while not text or text not in shown:
        assert select.select([terminal], [], [], DEADLINE)[0], shown
        try:
            data = os.read(terminal, 4096)
        except OSError:
            data = b""
        if not data:
            assert not text, shown
            return
        shown += data


def test_json_is_not_a_line_a_look(running: TestBroker) -> None:
    where = ("-b", running.bootstrap, "--admin", running.admin)
    command = [sys.executable, "-m", "kumquat", "top", "--json", "--interval", "0.1", *where]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    first, second = json.loads(process.stdout.readline()), json.loads(process.stdout.readline())
    assert first["broker"].keys() == second["broker"].keys()
    process.stdout.close()
    assert process.stderr is not None
    assert (process.wait(DEADLINE), process.stderr.read()) == (0, b"")
    process.stderr.close()
