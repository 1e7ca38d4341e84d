"""Groups: members that join, leave and die, many groups, and what a commit costs.

- Joins and leaves are raw frames, so that starting a client does not slow down the members that are
  measured. A gap is the time between two messages that one member handled; there is always more to
  handle.
- A killed member had read everything and committed nothing; redelivered is when another has handled it all.
- A commit is timed by a raw socket, from the request written to the answer read: the broker's own part, and
  the loopback. The disk is asked for as many bytes in the same folder, just before and after.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from bench.brokers import proc
from bench.load import topics
from bench.load.group_requests import Passer, commit_each, ready, time_commits
from bench.load.members import Marks, MemberProcess, Result, Work
from bench.load.numbered import Writer
from bench.scenario import Numbers, Run, Scenario, own
from bench.scenarios.sharing import Sharing, configure

if TYPE_CHECKING:
    from pathlib import Path

    from bench.brokers.process import BrokerProcess

CROWD = 64
HANDLER_MS = 20.0
PASSERS_A_SECOND = 4
SESSION_MS = 6000
KILLED = 3
FRAME_BYTES = 200
RESTART_SECONDS = 300


def _joins(run: Run) -> Numbers:
    seconds = run.scale.seconds
    rate = CROWD * 1000 / HANDLER_MS
    count = int(rate * (3 * seconds + 15))
    with run.column.broker() as broker, Sharing(broker, "joins", count) as work:
        configure(broker, work.name, **{"consume.mode": "shared"})
        for process in work.members(CROWD, handler_ms=HANDLER_MS):
            process.wait_assigned()
        work.writer.write(count)
        run.say(f"{CROWD} members at work, nobody joins")
        time.sleep(2)
        _so_far(work)
        time.sleep(seconds)
        quiet = _so_far(work)
        passed = _pass_by(broker, work.name, seconds)
        run.say(f"{passed} members joined and left meanwhile")
        busy = _so_far(work)
        if not work.marks.left():
            raise RuntimeError("the members ran out of work")
    return {
        "longest gap before, ms": max(each.longest_gap for each in quiet) * 1e3,
        "joined and left": passed,
        "longest gap meanwhile, ms": max(each.longest_gap for each in busy) * 1e3,
        "messages a second before": sum(each.handled for each in quiet) / seconds,
        "messages a second meanwhile": sum(each.handled for each in busy) / seconds,
        "times that a member lost the subject": sum(each.taken for each in busy),
    }


def _so_far(work: Sharing) -> list[Result]:
    return [result for process in work.processes for result in process.so_far()]


def _pass_by(broker: BrokerProcess, name: str, seconds: float) -> int:
    """Members join and leave, one after the other, for so long; how many did."""
    end, passed = time.monotonic() + seconds, 0
    while (now := time.monotonic()) < end:
        passer = Passer(broker.port, name, name)
        passer.join()
        passer.leave()
        passed += 1
        time.sleep(max(0.0, now + 1 / PASSERS_A_SECOND - time.monotonic()))
    return passed


def _kills(run: Run) -> Numbers:
    took = []
    with run.column.broker() as broker:
        for turn in range(KILLED):
            run.say(f"kill {turn + 1} of {KILLED}")
            took.append(_kill(run, broker, f"kill-{turn}"))
    return {
        "kill to redelivery, s": max(took),
        "beyond the session, s": max(took) - SESSION_MS / 1e3,
    }


def _kill(run: Run, broker: BrokerProcess, name: str) -> float:
    count = 2000
    settings = {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "1000"}
    with Sharing(broker, name, count) as work, Marks(count) as again:
        configure(broker, name, **{"consume.mode": "shared"})
        work.writer.write(count)
        (victim,) = work.members(1, commits=False, settings=settings)
        work.marks.wait()
        heir = MemberProcess(
            Work(broker.bootstrap, name, name, again.path, gated=True, settings=settings)
        )
        work.processes.append(heir)
        heir.wait_assigned()
        began = time.monotonic()
        victim.kill()
        heir.go()
        again.wait(seconds=120)
        (result,) = heir.stop()
        work.processes.clear()
    return result.last_at - began


def _many(run: Run) -> Numbers:
    count = run.scale.groups
    numbers: Numbers = {}
    broker = run.column.broker()
    try:
        broker.start()
        topics.make(broker.port, ["subject"])
        ready(broker.port, "subject")
        before = proc.resident_bytes(broker.pid)
        run.say(f"{count:,} groups commit on one subject")
        began = time.perf_counter()
        commit_each(broker.port, [f"group-{index:06}" for index in range(count)], "subject")
        numbers["made, groups/s"] = count / (time.perf_counter() - began)
        numbers["resident, MB"] = proc.resident_bytes(broker.pid) / 1e6
        numbers["bytes a group"] = (proc.resident_bytes(broker.pid) - before) / count
        run.say("restart")
        broker.stop()
        numbers["restart, s"] = broker.start(RESTART_SECONDS)
        broker.kill()
        numbers["restart after kill -9, s"] = broker.start(RESTART_SECONDS)
        numbers["resident afterwards, MB"] = proc.resident_bytes(broker.pid) / 1e6
    finally:
        broker.__exit__()
    return numbers


def _commits(run: Run) -> Numbers:
    with run.column.broker() as broker:
        topics.make(broker.port, ["subject"])
        ready(broker.port, "subject")
        Writer(broker.bootstrap, "subject", 100).write(1000)
        os.sync()
        time_commits(broker.port, "warm", "subject", run.scale.warm_up / 5)
        disk = _time_syncs(broker.folder, run.scale.seconds / 2)
        run.say("commits one after the other")
        took = time_commits(broker.port, "timed", "subject", run.scale.seconds)
        disk += _time_syncs(broker.folder, run.scale.seconds / 2)
    return {
        "commit, p50 ms": _quantile(took, 0.5),
        "commit, p99 ms": _quantile(took, 0.99),
        "the disk's fdatasync, p50 ms": _quantile(disk, 0.5),
        "the disk's fdatasync, p99 ms": _quantile(disk, 0.99),
        "commit p99 beyond the disk's, ms": _quantile(took, 0.99) - _quantile(disk, 0.99),
    }


def _time_syncs(folder: Path, seconds: float) -> list[float]:
    """A small append and fdatasync, again and again, in the broker's own folder."""
    took = []
    path = folder / "disk-itself"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        now = time.perf_counter()
        end = now + seconds
        while now < end:
            os.write(descriptor, bytes(FRAME_BYTES))
            os.fdatasync(descriptor)
            then, now = now, time.perf_counter()
            took.append(now - then)
    finally:
        os.close(descriptor)
        path.unlink()
    return took


def _quantile(seconds: list[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[int(len(ordered) * share)] * 1e3


GROUPS = [
    Scenario(
        "group-joins",
        "64 members share a subject while others join and leave",
        _joins,
        [
            own("times that a member lost the subject", at_most=0),
            own("longest gap meanwhile, ms", at_most=1000),
        ],
        columns=("kumquat",),
    ),
    Scenario(
        "group-kill",
        "From a member's kill to redelivery, session time-out of 6 s",
        _kills,
        [own("beyond the session, s", at_most=1.0)],
        columns=("kumquat",),
    ),
    Scenario(
        "many-groups",
        "10,000 groups on one subject",
        _many,
        [
            own("restart, s", at_most=3.0),
            own("restart after kill -9, s", at_most=3.0),
            own("resident afterwards, MB", at_most=200),
        ],
        columns=("kumquat", "kafka"),
    ),
    Scenario(
        "commits",
        "Commits, one after the other",
        _commits,
        [own("commit p99 beyond the disk's, ms", at_most=1.0)],
        columns=("kumquat", "kafka"),
    ),
]
