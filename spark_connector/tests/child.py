"""A pipeline in a process of its own, to be killed.

    python -m kumquat.spark.tests.child archive BOOTSTRAP FOLDER
    python -m kumquat.spark.tests.child replay BOOTSTRAP FOLDER RUN RATE
    python -m kumquat.spark.tests.child repeat BOOTSTRAP FOLDER

FOLDER has the archive in `archive`, and the runs' memory in `runs`. The archive is made of batches of
BATCH offsets, so that there are many. `Child` starts it and kills it: Python alone, which leaves its
Spark behind, or all of it at once. `repeat` copies `from` into `to` with a Spark that
repeats tasks that fail, as one on a cluster does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = Path(__file__).resolve().parents[2]
SECONDS = 600.0
BATCH = 100
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds: no time spent on making it fast."""


class Child:
    def __init__(self, *arguments: str, log: Path) -> None:
        command = [sys.executable, "-m", "kumquat.spark.tests.child", *arguments]
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                cwd=SOURCE,
                env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_START},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_when(self, seen: Callable[[], bool], what: str, *, everything: bool) -> None:
        """Kills it as soon as that is seen: everything, or Python alone, and its Spark stands still
        until `let_spark_go_on`."""
        deadline = time.monotonic() + SECONDS
        while not seen():
            ended = self._process.poll() is not None and not seen()
            assert not ended, f"ended before {what}: {self._log.read_text()}"
            assert time.monotonic() < deadline, f"never {what}: {self._log.read_text()}"
            time.sleep(0.005)
        os.killpg(self._process.pid, signal.SIGKILL if everything else signal.SIGSTOP)
        self._process.kill()
        self._process.wait()

    def let_spark_go_on(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def wait(self) -> int:
        return self._process.wait(SECONDS)


def main(pipeline: str, bootstrap: str, folder: Path, run: str = "", rate: str = "") -> None:
    from kumquat.spark.pipelines.archive import command as archive
    from kumquat.spark.pipelines.archive import run as archive_run
    from kumquat.spark.pipelines.replay.command import replay
    from kumquat.spark.pipelines.replay.plan import Selection
    from kumquat.spark.testing import small_spark

    if pipeline == "repeat":
        repeat(bootstrap, folder)
        return
    spark = small_spark()
    if pipeline == "archive":
        archive_run.FIRST_BATCH = archive_run.LARGEST_BATCH = BATCH
        archive.archive(spark, bootstrap, "orders", folder / "archive")
    else:
        chosen = Selection("orders", str(folder / "archive"))
        state = folder / "runs"
        replay(spark, bootstrap, chosen, "again", send=True, run=run, state=state, rate=float(rate))
    spark.stop()


def repeat(bootstrap: str, folder: Path) -> None:
    from kumquat.spark.pipelines.copies.copier import Copier
    from kumquat.spark.pipelines.copies.journal import Run
    from kumquat.spark.session import spark_session
    from kumquat.spark.subjects import read_subject
    from kumquat.spark.testing import SMALL

    spark = spark_session("repeat", "local[2,4]", **SMALL)
    run = Run("test", "repeat", "from", "to", "plan")
    with Copier(spark, bootstrap, folder / "run", run, watched=["from", "to"]) as copier:
        copier.send(read_subject(spark, bootstrap, "from"), 0, (0, 51))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
