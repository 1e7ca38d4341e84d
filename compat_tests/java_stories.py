"""Stories with the Java client: found in java/compat, compiled, and run in one JVM, which starts slowly.

A test file takes the stories of some classes, each a test of its own, and runs those that pytest selected
when the first of them is asked for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.brokers.jars import SetupError, client_jars, java
from compat_tests.members.fixture import JVM

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = sorted((Path(__file__).parent / "java" / "compat").glob("*.java"))
_STORY = re.compile(r"^    static void (\w+)\(Story s\)", re.MULTILINE)
SECONDS = 1200


def stories() -> list[str]:
    """All of them, as Class.story."""
    return [f"{file.stem}.{name}" for file in SOURCES for name in _STORY.findall(file.read_text())]


def compiled(folder: Path) -> str:
    """Compiles the stories; gives the class path that runs them."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise SetupError("a JDK of Java 17 or newer is needed: no `javac` on the PATH")
    jars = ":".join(map(str, client_jars()))
    command = [compiler, "-Xlint:-options", "-d", str(folder), "-cp", jars, *map(str, SOURCES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return f"{folder}:{jars}"


def results(output: str) -> Iterator[tuple[str, str]]:
    """(story, "") for each that passed, (story, stack trace) for each that did not."""
    for found in re.finditer(r"^PASS (\S+)$|^FAIL (\S+)\n(.*?)^END$", output, re.M | re.S):
        passed, failed, trace = found.groups()
        yield (passed, "") if passed else (failed, trace)


def outcomes(
    request: pytest.FixtureRequest, test_file: str, bootstrap: str, is_kafka: bool, folder: Path
) -> dict[str, str]:
    """What became of each story that pytest selected in this test file: "" or a stack trace."""
    selected = [
        str(item.callspec.params["story"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == Path(test_file)
    ]
    command = [java(), *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"]
    command += [compiled(folder), "compat.Story", bootstrap]
    command += [str(is_kafka).lower(), *selected]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS
    )
    found = dict(results(ran.stdout))
    end = ran.stdout[-2000:]
    return {
        story: found.get(story, f"it never ended; the last output:\n{end}") for story in selected
    }
