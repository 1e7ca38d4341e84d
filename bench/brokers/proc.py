"""What the kernel knows of a broker: readings from /proc, in seconds, bytes and counts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads since the process began."""
    # The command name is in parentheses and may hold spaces: count from the last one.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@dataclass(frozen=True)
class Io:
    read_calls_bytes: int
    """Through read(2) and similar calls, from the page cache too."""
    read_disk_bytes: int
    """Fetched from the disk for this process."""


def io(pid: int) -> Io:
    values = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return Io(int(values["rchar"]), int(values["read_bytes"]))
