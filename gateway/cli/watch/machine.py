"""What `kumquat doctor` checks of this machine: limits, disk, syncs, clock, memory, versions.

A check reads what the kernel tells, and never changes anything, apart from a temporary file of some hundred
KiB in the data folder: `sync_times` writes it to find out how long an fdatasync takes, since each round of
acks=all waits for one. What cannot be read (a container, another system) is `unknown`, never an error.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from kumquat.gateway.cli.tables import size
from kumquat.gateway.cli.watch.findings import BAD, OK, UNKNOWN, WARN, Finding, graded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GIB, MIB = 1 << 30, 1 << 20
SYNCS, BLOCK = 200, bytes(4096)
LONGEST_SECONDS = 10.0
"""Of a slow disk fewer syncs are measured."""
LIBRARIES = ("trio", "construct", "sqlalchemy", "crc32c", "hypercorn", "starlette", "kafka-python")
STEP_MS = 50
UNSYNCHRONISED = 0x40
IN_MEMORY = {"tmpfs", "ramfs"}
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"}


def machine(folder: Path) -> Iterator[Finding]:
    """All checks, in the order in which they are shown."""
    yield kernel()
    yield versions()
    yield open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield from memory(_meminfo())
    yield overcommit()
    yield disk_space(folder)
    wall, steady = time.time(), time.monotonic()
    yield file_system(folder)
    yield syncs(folder)
    yield steps((time.time() - wall) - (time.monotonic() - steady))
    yield synchronised()


def kernel() -> Finding:
    found = f"{platform.system()} {platform.release()}, {platform.machine()}"
    advice = "the broker is made for Linux: elsewhere fdatasync may not reach the disk"
    return graded("system", found, advice, bad=platform.system() != "Linux")


def versions() -> Finding:
    found = [f"Python {platform.python_version()}"]
    missing = []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    advice = f"not installed: {', '.join(missing)}; install kumquat-gateway again"
    return graded("versions", ", ".join(found), advice, bad=bool(missing))


def open_files(soft: int, hard: int) -> Finding:
    most = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    enough = soft == resource.RLIM_INFINITY
    advice = "each client takes one: ulimit -n 65536, or LimitNOFILE=65536 in the service's unit"
    return graded(
        "open files",
        f"{most} (at most {hard:,})" if hard > 0 else most,
        advice,
        bad=not enough and soft < 1024,
        warn=not enough and soft < 16_384,
    )


def _meminfo() -> dict[str, int]:
    """/proc/meminfo in bytes."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def memory(info: dict[str, int]) -> Iterator[Finding]:
    if "MemAvailable" not in info:
        yield Finding("memory", UNKNOWN, "there is no /proc/meminfo")
        return
    free, limit = info["MemAvailable"], _cgroup_limit()
    found = f"{size(free)} of {size(info['MemTotal'])} available"
    if limit is not None and limit < info["MemTotal"]:
        found += f"; this cgroup may use {size(limit)}"
    advice = "the broker needs some hundred MiB beside the page cache: give it a larger machine"
    yield graded("memory", found, advice, bad=free < 256 * MIB, warn=free < GIB)
    used = info.get("SwapTotal", 0) - info.get("SwapFree", 0)
    advice = "a broker that is swapped out is late: vm.swappiness=1, or MemorySwapMax=0 for it"
    yield graded("swap", f"{size(used)} in use", advice, warn=used > 256 * MIB)


def _cgroup_limit() -> int | None:
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def overcommit() -> Finding:
    try:
        mode = Path("/proc/sys/vm/overcommit_memory").read_text().strip()
    except OSError:
        return Finding("overcommit", UNKNOWN, "there is no /proc/sys/vm")
    advice = "with 2 a burst may fail for want of memory that is free: vm.overcommit_memory=0"
    return graded("overcommit", f"vm.overcommit_memory={mode}", advice, warn=mode == "2")


def disk_space(folder: Path) -> Finding:
    try:
        total, _, free = shutil.disk_usage(folder)
    except OSError as error:
        return Finding("disk space", BAD, f"{folder}: {error.strerror}", "say --data FOLDER")
    found = f"{size(free)} of {size(total)} free in {folder}"
    advice = (
        "retention frees whole segments: lower log.retention.ms or log.total.bytes, or add disk"
    )
    return graded(
        "disk space", found, advice, bad=free < GIB, warn=free < min(10 * GIB, total // 10)
    )


def file_system(folder: Path) -> Finding:
    kind = _mounted(folder)
    if kind is None:
        return Finding("file system", UNKNOWN, "there is no /proc/mounts")
    advice = (
        "it is in memory: all is lost when the machine stops"
        if kind in IN_MEMORY
        else "over a network a sync may say too much: use a disk of this machine"
    )
    return graded("file system", kind, advice, warn=kind in IN_MEMORY | NETWORK)


def _mounted(folder: Path) -> str | None:
    """The type of the file system that a folder is on."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return None
    real, best, kind = folder.resolve(), -1, "unknown"
    for line in lines:
        _, point, name, *_ = line.split()
        place = Path(point.replace("\\040", " "))
        if real.is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), name
    return kind


def sync_times(folder: Path) -> list[float]:
    """How long small writes take until they are on disk, in ms, sorted. Raises OSError."""
    taken = []
    until = time.monotonic() + LONGEST_SECONDS
    with tempfile.TemporaryFile(dir=folder, prefix="kumquat-doctor-") as file:
        for _ in range(SYNCS):
            begin = time.perf_counter()
            os.write(file.fileno(), BLOCK)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - begin) * 1000)
            if time.monotonic() > until:
                break
    return sorted(taken)


def syncs(folder: Path) -> Finding:
    try:
        return judge_syncs(sync_times(folder))
    except OSError as error:
        advice = f"the broker cannot write there either: check who owns {folder}"
        return Finding("sync", BAD, f"cannot write to {folder}: {error.strerror}", advice)


def judge_syncs(taken: Sequence[float]) -> Finding:
    middle, slow = taken[len(taken) // 2], taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    found = f"fdatasync takes {middle:.2f} ms (p99 {slow:.2f} ms, of {len(taken)})"
    advice = "acks=all waits for it: use a disk with a write cache that survives power loss"
    return graded("sync", found, advice, bad=middle > 100, warn=middle > 20 or slow > 100)


def steps(seconds: float) -> Finding:
    """The wall clock against the steady one."""
    found = f"moved {seconds * 1000:+.0f} ms against the steady clock while this ran"
    advice = "somebody sets it: messages for later keep their time, but timestamps jump"
    return graded("clock", found, advice, warn=abs(seconds) * 1000 > STEP_MS)


class _Timex(ctypes.Structure):
    """The beginning of struct timex; the kernel fills 208 bytes."""

    _fields_ = (
        ("modes", ctypes.c_int),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def synchronised() -> Finding:
    """Whether something keeps the clock right: systemd or the kernel knows."""
    advice = "run chrony or systemd-timesyncd: --at and qmq-deliver-at mean this clock"
    if Path("/run/systemd/timesync/synchronized").exists():
        return Finding("clock sync", OK, "synchronised (systemd-timesyncd)")
    try:
        answer = _Timex()
        if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(answer)) < 0:
            return Finding("clock sync", UNKNOWN, "the kernel does not tell (a container?)")
    except (OSError, AttributeError):
        return Finding("clock sync", UNKNOWN, "this system does not tell")
    if answer.status & UNSYNCHRONISED:
        return Finding("clock sync", WARN, "nothing synchronises it", advice)
    return Finding("clock sync", OK, f"synchronised (within {answer.maxerror / 1000:.0f} ms)")
