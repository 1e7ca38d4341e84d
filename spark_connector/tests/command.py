"""`kumquat-spark` as a test starts it: in a process of its own, with a small and silent Spark."""

from __future__ import annotations

import sys

from spark_connector.testing import SMALL


def command(*arguments: str, bootstrap: str) -> list[str]:
    line = [sys.executable, "-m", "spark_connector.cli", *arguments, "--bootstrap", bootstrap]
    for name, value in SMALL.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        line += ["--conf", f"{name}={text}"]
    return [*line, "--conf", "spark.log.level=OFF"]
