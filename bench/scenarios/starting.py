"""Starting on an empty folder, until the first Metadata answer."""

from __future__ import annotations

from statistics import median

from bench.brokers import proc
from bench.scenario import Numbers, Run, Scenario, own

_TIMES = 3


def _start(run: Run) -> Numbers:
    seconds, resident, files = [], [], []
    for _ in range(_TIMES):
        broker = run.column.broker()
        try:
            run.say("starting on an empty folder")
            seconds.append(broker.start())
            resident.append(proc.resident_bytes(broker.pid) / 1e6)
            files.append(proc.open_files(broker.pid))
        finally:
            broker.__exit__()
    return {
        "first answer, s": median(seconds),
        "resident, MB": median(resident),
        "open files": median(files),
    }


STARTING = [
    Scenario(
        "start",
        "Start on an empty folder to first Metadata answer",
        _start,
        [own("first answer, s", at_most=1.0), own("resident, MB", at_most=100)],
        columns=("kumquat", "kafka"),
    )
]
