"""One hostile client beside a well-behaved producer and consumer: their latency, the memory of the broker,
and the longest step of its event loop.

Each kind of attack has a fresh broker. `bench/load/probe.py` says what is measured. A step counts by the
processor time that it took (`loop.trace.ms`): how long it waited for a processor says nothing about the
broker. What is shorter than TRACED_MS is not traced.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import TYPE_CHECKING

from bench.brokers import proc
from bench.load import client, hostile, probe, topics
from bench.scenario import Numbers, Run, Scenario, own

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILLED_MEGABYTES = 200
"""More than the broker keeps in memory, so that readers from the beginning read from disk."""
TRACED_MS = 5
LONGEST_STEP_MS = 20
STEP = "longest step, CPU ms"
_STEP = re.compile(r"a step of (.*) took .* ms \((.*) ms of processor time\)(.*)")


class _Memory(threading.Thread):
    """The most that a process has been seen to have resident."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._done = threading.Event()
        self.most = 0

    def run(self) -> None:
        while not self._done.wait(0.02):
            self.most = max(self.most, proc.resident_bytes(self._pid))

    def stop(self) -> int:
        self._done.set()
        self.join()
        return self.most


def _beside(run: Run, kind: str | None) -> Numbers:
    with run.column.broker({"loop.trace.ms": str(TRACED_MS)}) as broker:
        topics.make(broker.port, ["probe", "hostile", hostile.EMPTY])
        records = FILLED_MEGABYTES * 1000
        client.run(client.Produce(broker.bootstrap, broker.pid, "hostile", records, 1000, "1"))
        os.sync()
        memory = _Memory(broker.pid)
        memory.start()
        seconds = run.scale.seconds
        done = None
        if kind in hostile.RESTARTED:
            done = hostile.start(hostile.Attack(broker.port, kind, "hostile", seconds)).finish()
            memory.stop()
            broker.kill()
            broker.start()
            memory = _Memory(broker.pid)
            memory.start()
        measuring = probe.start(probe.Work(broker.port, "probe", seconds + 6))
        time.sleep(2)  # for the probe to begin
        if kind is not None and done is None:
            done = hostile.start(hostile.Attack(broker.port, kind, "hostile", seconds)).finish()
        measured = measuring.finish()
        resident = memory.stop() / 1e6
        step = longest_step(broker.output, run.say)
    if measured.missing:
        raise RuntimeError(f"{measured.missing} messages did not arrive")
    numbers = {
        "acked, p99 ms": measured.acked_p99_ms,
        "acked, max ms": measured.acked_max_ms,
        "read, p99 ms": measured.read_p99_ms,
        "read, max ms": measured.read_max_ms,
        "resident MB": resident,
        STEP: step,
    }
    if done is not None:
        numbers |= {"hostile answers": done.requests, "hostile refused": done.closed}
    return numbers


def longest_step(output: Path, say: Callable[[str], None]) -> float:
    """Of the traced steps in a broker's log, ms of processor time. Those that are too long are told."""
    longest = 0.0
    for task, took, where in _STEP.findall(output.read_text(errors="replace")):
        longest = max(longest, float(took))
        if float(took) > LONGEST_STEP_MS:
            say(f"a step of {task} took {took} ms of processor time{where}")
    return longest


def _scenario(kind: str | None) -> Scenario:
    return Scenario(
        f"hostile-{kind or 'nobody'}",
        f"A producer and a consumer beside {'nobody' if kind is None else 'hostile ' + kind}",
        lambda run: _beside(run, kind),
        [
            own("read, p99 ms", at_most=50),
            own("resident MB", at_most=400),
            own(STEP, at_most=LONGEST_STEP_MS),
        ],
        columns=("kumquat",),
    )


HOSTILE = [_scenario(kind) for kind in (None, *hostile.KINDS)]
