"""`kumquat doctor`: a machine or a broker that is ill and called well, or advice that is missing."""

from __future__ import annotations

import json
import resource
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kumquat.gateway.cli.tests.terminal import run
from kumquat.gateway.cli.watch import machine
from kumquat.gateway.cli.watch import running as checks
from kumquat.gateway.cli.watch.findings import BAD, OK, UNKNOWN, WARN, Finding, told
from kumquat.gateway.cli.watch.tests.answers import answering
from kumquat.version import version

if TYPE_CHECKING:
    from kumquat.gateway.testing.broker import TestBroker

GIB = 1 << 30


def by_name(answer: Any) -> dict[str, dict[str, str]]:
    return {check["check"]: check for check in answer["checks"]}


def test_a_broker_that_is_well_is_called_ill(
    running: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CONNECT_MS", 60_000)  # this machine may be busy
    monkeypatch.setattr(checks, "ASK_SECONDS", 60.0)
    where = ("--bootstrap", running.bootstrap, "--admin", running.admin)
    done = run("doctor", *where, "--json")
    found = by_name(json.loads(done.out))
    for name in ("broker", "admin", "version", "logs", "reads", "delays"):
        assert found[name]["state"] == OK, found[name]
    assert str(running.directory) in found["disk space"]["found"]
    assert found["version"]["found"] == f"this command {version()}, broker {version()}"
    assert "fdatasync takes" in found["sync"]["found"]
    assert list(running.directory.glob("kumquat-doctor-*")) == []
    shown = run("doctor", *where)
    assert shown.err == ""
    assert "ok   broker:" in shown.text


def test_a_broker_that_is_not_there_is_called_well(tmp_path: Path) -> None:
    nowhere = ("-b", "127.0.0.1:1", "--admin", "http://127.0.0.1:1", "--data", str(tmp_path))
    done = run("doctor", *nowhere, "--json")
    assert done.code == 1
    alone = run("doctor", "--machine", "--data", str(tmp_path), "--json")
    assert "broker" not in by_name(json.loads(alone.out))
    shown = run("doctor", *nowhere)
    assert (shown.code, shown.err) == (1, "")
    assert "bad  broker:        no broker at 127.0.0.1:1: Connection refused" in shown.text
    assert "the port is free: start the broker" in shown.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_port_that_something_else_has_is_called_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CONNECT_MS", 300)
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = checks.kafka(f"127.0.0.1:{server.getsockname()[1]}")
    assert found.state == BAD
    assert "something else has that port" in found.advice


def statistics(**changed: Any) -> dict[str, Any]:
    log = {"fenced": False, "corrupt_reads": 0, "failed_reads": 0}
    delay = {"failing": None, "pending": 0, "lateness": {"p99": 0}}
    return {
        "log": {**log, **changed.get("log", {})},
        "groups": {"fenced": changed.get("groups", False)},
        "delay": {**delay, **changed.get("delay", {})},
        "dead_letters": {"failing": changed.get("failing", [])},
        "loop": {"p99": changed.get("lag", 0), "max": 0},
    }


@pytest.mark.parametrize(
    ("changed", "check", "state"),
    [
        ({}, "logs", OK),
        ({"log": {"fenced": True}}, "logs", BAD),
        ({"groups": True}, "logs", BAD),
        ({"log": {"corrupt_reads": 2}}, "reads", WARN),
        ({"delay": {"failing": "no disk"}}, "delays", BAD),
        ({"delay": {"lateness": {"p99": 5000}}}, "delays", WARN),
        ({"failing": [{"group": "g", "subject": "t", "reason": "full"}]}, "dead letters", WARN),
        ({"lag": 500_000}, "event loop", WARN),
    ],
)
def test_a_broker_in_trouble_is_called_well(changed: Any, check: str, state: str) -> None:
    (found,) = [each for each in checks.well(statistics(**changed)) if each.check == check]
    assert (found.state, bool(found.advice)) == (state, state != OK)


def test_a_broker_of_another_version_is_called_well() -> None:
    assert checks.same_version("0.0.1").state == WARN
    assert checks.same_version(None).state == UNKNOWN
    other = {"version": "0.0.1", **statistics()}
    ready = (503, {"status": "the disk is nearly full"})
    with answering({"/statistics": (200, other), "/health/ready": ready}) as fake:
        found = {each.check: each for each in checks.running("127.0.0.1:1", fake.url)}
    assert found["version"].state == WARN
    assert (found["health"].state, found["health"].found) == (BAD, "the disk is nearly full")
    with answering({"/statistics": (503, {"error": "E", "message": "starting"})}) as fake:
        *_, last = checks.running("127.0.0.1:1", fake.url)
    assert (last.check, last.state, "starting" in last.found) == ("admin", BAD, True)


def test_a_machine_that_is_too_small_is_called_well(tmp_path: Path) -> None:
    unlimited = resource.RLIM_INFINITY
    limits = [machine.open_files(soft, unlimited).state for soft in (unlimited, 65536, 4096, 256)]
    assert limits == [OK, OK, WARN, BAD]
    plenty = {"MemAvailable": 8 * GIB, "MemTotal": 16 * GIB, "SwapTotal": GIB, "SwapFree": GIB}
    assert [each.state for each in machine.memory(plenty)] == [OK, OK]
    little = {**plenty, "MemAvailable": GIB // 8, "SwapFree": 0}
    assert [each.state for each in machine.memory(little)] == [BAD, WARN]
    assert [each.state for each in machine.memory({})] == [UNKNOWN]
    assert machine.disk_space(tmp_path / "none").state == BAD
    assert machine.syncs(tmp_path / "none").state == BAD


def test_a_slow_disk_is_called_fast() -> None:
    assert machine.judge_syncs([1.0] * 200).state == OK
    assert machine.judge_syncs([1.0] * 190 + [500.0] * 10).state == WARN
    assert machine.judge_syncs([30.0] * 200).state == WARN
    assert machine.judge_syncs([300.0] * 50).state == BAD


def test_a_clock_that_jumps_is_called_steady() -> None:
    assert machine.steps(0.001).state == OK
    assert machine.steps(-3.0).state == WARN
    assert machine.synchronised().state in (OK, WARN, UNKNOWN)


def test_each_check_of_this_machine_ends_and_advises(tmp_path: Path) -> None:
    found = list(machine.machine(tmp_path))
    names = [each.check for each in found]
    assert {"system", "open files", "memory", "disk space", "sync", "clock", "clock sync"} <= set(
        names
    )
    assert len(names) == len(set(names))
    assert all(each.advice for each in found if each.state in (WARN, BAD))
    assert list(tmp_path.iterdir()) == []


def test_json_says_ok_for_what_is_bad() -> None:
    assert told([Finding("a", OK, "x"), Finding("b", WARN, "y", "z")])["ok"] is True
    assert told([Finding("a", BAD, "x", "y")])["ok"] is False
