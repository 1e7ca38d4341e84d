"""Which process may still be sending, and whether it is known to have ended.

With `local[…]` everything that sends is in Spark's JVM. The name of the application and the process id do
not identify it: a new SparkContext in the same JVM has another name, and process ids are reused. So a
sender is identified by four values together, all from Linux' /proc: the boot id, the pid namespace (a
container has its own), the pid, and the tick at which it started.

Sometimes it cannot be known: on a cluster, another machine, in another container, without /proc. Then the
answer is that it has not ended, and the caller has to wait.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat, counted after the name, which may contain spaces."""


@dataclass(frozen=True)
class Sender:
    boot: str
    space: str
    pid: int
    started: int


def sender_of(spark: SparkSession) -> Sender | None:
    """The process that sends for this Spark; None: it is not one process of this machine."""
    java: Any = spark.sparkContext._jsc
    if not java.sc().isLocal():
        return None
    jvm: Any = spark.sparkContext._jvm
    return process(int(jvm.java.lang.ProcessHandle.current().pid()))


def process(pid: int) -> Sender | None:
    try:
        return Sender(*_here(), pid, int(_stat(pid)[_STARTED]))
    except OSError:
        return None


def has_ended(sender: Sender | None) -> bool:
    """True only if it is known for sure."""
    try:
        if sender is None or (sender.boot, sender.space) != _here():
            return False
        os.kill(sender.pid, 0)  # the one question that also hidden processes answer
        return _stat(sender.pid)[_STARTED] != str(sender.started) or _is_zombie(sender.pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False


def _here() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return boot, str(Path("/proc/self/ns/pid").readlink())


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _is_zombie(pid: int) -> bool:
    """Ended, and its parent has not waited for it yet. A process of which only the first thread has ended
    looks the same, but has other threads."""
    return _stat(pid)[_STATE] in "ZX" and len([*Path(f"/proc/{pid}/task").iterdir()]) <= 1
