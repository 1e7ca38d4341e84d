"""The Java client (kafka-clients 4.3.1): the stories are in java/compat, one method each.

A JVM starts slowly, so all stories that pytest selected run in one, when the first of them is asked
for; each is a test of its own here.
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

SOURCES = sorted((Path(__file__).parent.parent / "java" / "compat").glob("*.java"))
_STORY = re.compile(r"^    static void (\w+)\(Story s\)", re.MULTILINE)
STORIES = [f"{file.stem}.{name}" for file in SOURCES for name in _STORY.findall(file.read_text())]
SECONDS = 1200


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


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest,
    bootstrap: str,
    is_kafka: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    selected = [
        str(item.callspec.params["story"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == Path(__file__)
    ]
    command = [java(), *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"]
    command += [compiled(tmp_path_factory.mktemp("java")), "compat.Story", bootstrap]
    command += [str(is_kafka).lower(), *selected]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS
    )
    found = dict(results(ran.stdout))
    end = ran.stdout[-2000:]
    return {
        story: found.get(story, f"it never ended; the last output:\n{end}") for story in selected
    }


@pytest.mark.differs("where it does, the story in AdminStories.java says why")
@pytest.mark.parametrize("story", STORIES)
def test_java_client(outcomes: dict[str, str], story: str, is_kafka: bool) -> None:
    trace = outcomes[story]
    assert not trace, trace
