"""Small JSON files that are whole or absent, and a lock that lives as long as Spark does.

`write_json` writes a file beside it, syncs that, renames it, and syncs the folder: after a crash, or a
power cut, the file is the old one or the new one. Every such file carries the version of its format; a
newer version is refused with a line that says so. `write_new_json` is for files that are written once: it
never replaces an existing one.

`swap` lets two folders change places in one step, where the system can.

`locked` is held by Spark's JVM, not by Python. A driver that is killed leaves its JVM behind for
some moments, and with `local[…]` the JVM is also where tasks run and producers send. So a run that gets the
lock knows that all of them have ended. On a cluster executors are processes of their own, and
the lock says nothing about them: see copies/copier.py.

Java's locks are the system's, and those belong to the process: when it closes the file once, its lock is
gone, even if it has the file open elsewhere. So only the run that has the file's name in `_mine` opens
it; this keeps the runs of one process apart.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from kumquat.spark.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

LOCK_WAIT_SECONDS = 30.0
LOCK_ASK_SECONDS = 0.1
PARTIAL = ".partial"
_HERE = -100
_EXCHANGE = 2
"""Of the systems' headers: AT_FDCWD; RENAME_EXCHANGE on Linux, RENAME_SWAP on macOS."""
_mine: set[str] = set()
_guard = threading.Lock()


def write_json(path: Path, content: dict[str, Any]) -> None:
    _write_partial(path, content).replace(path)
    sync(path.parent)


def write_new_json(path: Path, content: dict[str, Any]) -> None:
    """As `write_json`, but a ConnectorError when the file is there already."""
    partial = _write_partial(path, content)
    try:
        os.link(partial, path)
    except FileExistsError:
        partial.unlink()
        raise _not_new(path) from None
    except OSError:  # no links on this file system
        if path.exists():
            partial.unlink()
            raise _not_new(path) from None
        partial.replace(path)
    else:
        partial.unlink()
    sync(path.parent)


def _write_partial(path: Path, content: dict[str, Any]) -> Path:
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    return partial


def _not_new(path: Path) -> ConnectorError:
    return ConnectorError(
        f"{path} is there already: another run writes to this folder; run this again when it has ended"
    )


def read_json(path: Path, version: int) -> dict[str, Any]:
    """What `write_json` wrote; `version` is the newest that the caller knows. A file that is not
    there is a FileNotFoundError."""
    try:
        content = json.loads(path.read_text())
        found = int(content["version"])
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConnectorError(f"{path} cannot be read: restore it from a backup ({error})") from None
    if found > version:
        raise ConnectorError(
            f"{path} was written by a newer version (format {found}, known here: {version}): "
            "upgrade Kumquat's spark_connector"
        )
    return dict(content)


def sync(path: Path) -> None:
    """Returns when what this file holds, or which files this folder has, survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def swap(one: Path, other: Path) -> None:
    """Each gets the other's name, and at no moment is one of the names missing. An OSError where the
    system or the file system cannot do that; then nothing has changed."""
    names = os.fsencode(one), os.fsencode(other)
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):  # Linux
        failed = libc.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE)
    elif hasattr(libc, "renamex_np"):  # macOS
        failed = libc.renamex_np(*names, _EXCHANGE)
    else:
        raise OSError(errno.ENOSYS, "two folders cannot be swapped on this system")
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(one), None, str(other))


@contextmanager
def locked(spark: SparkSession, path: Path) -> Iterator[None]:
    """Holds this file's lock in the block; waits for another holder whose Spark is just ending."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    name = os.path.realpath(path)
    _wait_until(lambda: _claim(name), deadline, path)
    try:
        jvm: Any = spark.sparkContext._jvm
        file = jvm.java.io.RandomAccessFile(name, "rw")
        try:
            _wait_until(lambda: _try_lock(file), deadline, path)
            yield
        finally:
            with suppress(Py4JError, OSError):  # the JVM may be gone, and its lock with it
                file.close()
    finally:
        with _guard:
            _mine.discard(name)


def _wait_until(done: Callable[[], bool], deadline: float, path: Path) -> None:
    while not done():
        if time.monotonic() > deadline:
            raise ConnectorError(f"{path.parent} is in use: another run holds {path}")
        time.sleep(LOCK_ASK_SECONDS)


def _claim(name: str) -> bool:
    with _guard:
        if name in _mine:
            return False
        _mine.add(name)
        return True


def _try_lock(file: Any) -> bool:
    try:
        return file.getChannel().tryLock() is not None
    except Py4JJavaError as error:
        if "OverlappingFileLockException" in str(error):
            return False
        raise
