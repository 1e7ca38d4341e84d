"""Which process may still be sending, and whether it is known to have ended.

With `local[…]` all that sends lives in Spark's JVM. Its name and number tell nothing for sure: a new
SparkContext in the same JVM has another name, and numbers come again. So a sender is known by four
things that no other process shares, all from Linux' /proc: this boot, the space of numbers (a container
has its own), the number, and the tick at which it started.

"Not known" is always possible: a cluster, another machine, another container, no /proc. Then the
answer is that it has not ended, and who asks has to wait.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat, counted after the name, which may have blanks in it."""


@dataclass(frozen=True)
class Sender:
    boot: str
    space: str
    pid: int
    started: int


def sender_of(spark: SparkSession) -> Sender | None:
    """What sends for this Spark; None: not one process of this machine."""
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
    """Ended, and waits for its parent to look. A process whose first thread alone has ended looks
    the same, but has others."""
    return _stat(pid)[_STATE] in "ZX" and len([*Path(f"/proc/{pid}/task").iterdir()]) <= 1
