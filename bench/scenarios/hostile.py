"""One hostile client beside a well-behaved producer and consumer: their latency, the memory of the broker.

Each kind of attack has a fresh broker. `bench/load/probe.py` says what is measured.
"""

from __future__ import annotations

import os
import threading
import time

from bench.brokers import proc
from bench.load import client, hostile, probe, topics
from bench.scenario import Numbers, Run, Scenario, own

FILLED_MEGABYTES = 200
"""More than the broker keeps in memory, so that readers from the beginning read from disk."""


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
    with run.column.broker() as broker:
        topics.make(broker.port, ["probe", "hostile", hostile.EMPTY])
        records = FILLED_MEGABYTES * 1000
        client.run(client.Produce(broker.bootstrap, broker.pid, "hostile", records, 1000, "1"))
        os.sync()
        memory = _Memory(broker.pid)
        memory.start()
        seconds = run.scale.seconds
        measuring = probe.start(probe.Work(broker.port, "probe", seconds + 6))
        time.sleep(2)  # for the probe to begin
        done = None
        if kind is not None:
            done = hostile.start(hostile.Attack(broker.port, kind, "hostile", seconds)).finish()
        measured = measuring.finish()
        resident = memory.stop() / 1e6
    if measured.missing:
        raise RuntimeError(f"{measured.missing} messages did not arrive")
    numbers = {
        "acked, p99 ms": measured.acked_p99_ms,
        "acked, max ms": measured.acked_max_ms,
        "read, p99 ms": measured.read_p99_ms,
        "read, max ms": measured.read_max_ms,
        "resident MB": resident,
    }
    if done is not None:
        numbers |= {"hostile answers": done.requests, "hostile refused": done.closed}
    return numbers


def _scenario(kind: str | None) -> Scenario:
    return Scenario(
        f"hostile-{kind or 'nobody'}",
        f"A producer and a consumer beside {'nobody' if kind is None else 'hostile ' + kind}",
        lambda run: _beside(run, kind),
        [own("read, p99 ms", at_most=50), own("resident MB", at_most=400)],
        columns=("kumquat",),
    )


HOSTILE = [_scenario(kind) for kind in (None, *hostile.KINDS)]
