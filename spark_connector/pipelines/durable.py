"""Small JSON files that are whole or absent, and a lock that lives as long as Spark does.

`write_json` writes a neighbour, syncs it, renames it, and syncs the folder: after a crash, or a power
cut, the file is the old one or the new one. Every such file carries the version of its format;
one of a newer version is refused with a line that says so, never guessed at.

`locked` is held by Spark's JVM, not by Python. A driver that is killed leaves its JVM behind for
some moments, and with `local[…]` the JVM is also where tasks run and producers send. Who gets the lock
therefore knows that all of them have ended. On a cluster executors are processes of their own, and
the lock says nothing of them: see copies.py.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from spark_connector.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

LOCK_WAIT_SECONDS = 30.0
LOCK_ASK_SECONDS = 0.1
PARTIAL = ".partial"


def write_json(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync(path.parent)


def read_json(path: Path, version: int) -> dict[str, Any]:
    """What `write_json` wrote; `version` is the newest that the caller knows."""
    try:
        content = json.loads(path.read_text())
        found = int(content["version"])
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


@contextmanager
def locked(spark: SparkSession, path: Path) -> Iterator[None]:
    """Nobody else has this file's lock in the block; waits for one whose Spark is just ending."""
    jvm: Any = spark.sparkContext._jvm
    file = jvm.java.io.RandomAccessFile(str(path.absolute()), "rw")
    try:
        deadline = time.monotonic() + LOCK_WAIT_SECONDS
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise ConnectorError(f"{path.parent} is in use: another run holds {path}")
            time.sleep(LOCK_ASK_SECONDS)
        yield
    finally:
        with suppress(Py4JError, OSError):  # the JVM may be gone, and its lock with it
            file.close()


def _try_lock(file: Any) -> bool:
    try:
        return file.getChannel().tryLock() is not None
    except Py4JJavaError as error:
        if "OverlappingFileLockException" in str(error):
            return False
        raise
