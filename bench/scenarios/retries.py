"""Messages that wait for retry: what a million of them cost, and what one of them costs its neighbours.

Kumquat alone: Kafka has no back-off, and no retry of one message in a consumer group.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.brokers import proc
from bench.load.shares import ShareProcess
from bench.scenario import Columns, Floor, Numbers, Run, Scenario, own, share
from bench.scenarios.shares import make
from bench.scenarios.sharing import HANDLER_MS, Sharing, configure

if TYPE_CHECKING:
    from bench.brokers.process import BrokerProcess
    from bench.load.numbered import Writer

WAITING = "waiting"
LONG_MS = 600_000
"""Ten minutes: none of them is due before the scenario ends."""
CONSUMERS = 4
FRESH = 5
"""The fresh messages are a fifth of those that wait."""
AFTER_RESTART = 1000
MEMBERS = 8
FAILS = 100
ROUNDS = 2
MEGABYTE = 1e6


def _waiting(run: Run) -> Numbers:
    count = run.scale.waiting
    numbers: Numbers = {}
    broker = run.column.broker()
    try:
        broker.start()
        configs = {"retry.backoff.ms": str(LONG_MS), "retry.backoff.max.ms": str(LONG_MS)}
        writer = make(broker, WAITING, **configs)
        with ShareProcess(broker.bootstrap) as process:
            _fresh(process, writer, count // FRESH)  # warms up
            run.say("fresh messages, none waits")
            rate = _fresh(process, writer, count // FRESH)
            numbers["fresh, none waits, msg/s"] = rate
            before = proc.resident_bytes(broker.pid)
            run.say(f"{2 * count:,} messages, every other one is released")
            _read(process, writer, 2 * count, deed="half")
            more = proc.resident_bytes(broker.pid) - before
            numbers["memory more, MB"] = more / MEGABYTE
            run.say(f"fresh messages while {count:,} wait")
            numbers["fresh, all wait, msg/s"] = _fresh(process, writer, count // FRESH)
        run.say("restart")
        broker.stop()
        numbers["restart, s"] = broker.start(300)
        numbers["memory after the restart, MB"] = proc.resident_bytes(broker.pid) / MEGABYTE
        with ShareProcess(broker.bootstrap) as process:
            run.say("fresh messages after the restart")
            _fresh(process, writer, AFTER_RESTART)
    finally:
        broker.__exit__()
    return numbers


def _fresh(process: ShareProcess, writer: Writer, count: int) -> float:
    """Messages in a second. None of those that wait comes among them: it would come twice."""
    return _read(process, writer, count, deed="accept")


def _read(process: ShareProcess, writer: Writer, count: int, deed: str) -> float:
    writer.written = 0  # numbers begin anew, since members count from 0
    process.join(WAITING, WAITING, members=CONSUMERS, count=count, deed=deed)
    process.ask("pause")
    writer.write(count)
    began = time.monotonic()
    process.ask("go")
    seconds = process.wait() - began
    _, twice = process.leave()
    if twice:
        raise RuntimeError(f"{twice} messages came twice: none was due")
    return count / seconds


def _one(run: Run) -> Numbers:
    """The best of two rounds each, in turns, so that a slow minute of the machine is in both."""
    without, with_one = [], []
    with run.column.broker() as broker:
        for turn in range(ROUNDS):
            without.append(_handle(run, broker, f"good-{turn}", None))
            with_one.append(_handle(run, broker, f"bad-{turn}", FAILS))
    return {"without a retry, s": min(without), "with a retried message, s": min(with_one)}


def _handle(run: Run, broker: BrokerProcess, name: str, fails: int | None) -> float:
    count = run.scale.handled_messages
    with Sharing(broker, name, count) as work:
        configure(broker, name, **{"consume.mode": "shared"})
        for process in work.members(MEMBERS, handler_ms=HANDLER_MS, fails=fails):
            process.wait_assigned()
        began = time.monotonic()
        work.writer.write(count)
        work.marks.wait(seconds=60 + 4 * count * HANDLER_MS / 1000 / MEMBERS)
        results = work.stop()
        again = work.marks.bytes[FAILS] - 1
        run.say(f"{name}: message {FAILS} came {again} times more")
        if (fails is None) != (again == 0):
            raise RuntimeError(f"message {FAILS} came {again} times more")
    return max(result.last_at for result in results) - began


def _slower(columns: Columns) -> float:
    numbers = columns["kumquat"]
    return numbers["fresh, all wait, msg/s"] / numbers["fresh, none waits, msg/s"]


RETRIES = [
    Scenario(
        "retry-wait",
        "1,000,000 messages wait for retry",
        _waiting,
        [
            own("memory more, MB", at_most=64),
            own("restart, s", at_most=3),
            Floor("fresh delivery while they wait ÷ without", 0.9, True, _slower),
        ],
        columns=("kumquat",),
    ),
    Scenario(
        "retry-one",
        "20,000 messages of 5 ms, 8 members, one message that fails",
        _one,
        [share("with a retried message, s", "without a retry, s", at_most=1.02)],
        columns=("kumquat",),
    ),
]
