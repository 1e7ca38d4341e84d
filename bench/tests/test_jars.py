"""A download that ends half-way, or a machine without Java, leaves nothing that looks finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.brokers import jars

if TYPE_CHECKING:
    from pathlib import Path

WANTED = ("org.example", "thing", "1.0")


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `java` on the PATH that runs what a test writes into it; the cache is a folder of the test."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(jars, "CACHE", tmp_path / "cache")
    return program


def script(program: Path, body: str) -> None:
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def folder_of(partial_copy: str) -> str:
    """Shell: the folder that Ivy has to fill, from the pattern in its last argument."""
    return f'for last; do :; done; folder=$(dirname "$last"); {partial_copy}'


def test_a_download_that_ends_half_way_is_no_download(fake_java: Path) -> None:
    script(fake_java, folder_of('touch "$folder/dependency-2.0.jar"; exit 1'))
    with pytest.raises(jars.SetupError, match=r"cannot download thing 1\.0"):
        jars.resolve("thing", WANTED)
    with pytest.raises(jars.SetupError):
        jars.resolve("thing", WANTED)
    script(fake_java, folder_of('touch "$folder/thing-1.0.jar"'))
    assert [path.name for path in jars.resolve("thing", WANTED)] == ["thing-1.0.jar"]


def test_a_download_that_succeeds_without_the_jar_is_no_download(fake_java: Path) -> None:
    script(fake_java, folder_of('touch "$folder/dependency-2.0.jar"'))
    with pytest.raises(jars.SetupError):
        jars.resolve("thing", WANTED)


def test_what_is_there_is_not_downloaded_again(fake_java: Path) -> None:
    script(fake_java, folder_of('touch "$folder/thing-1.0.jar"'))
    jars.resolve("thing", WANTED)
    fake_java.unlink()
    assert [path.name for path in jars.resolve("thing", WANTED)] == ["thing-1.0.jar"]


def test_a_machine_without_java_is_told_so_in_one_line(
    fake_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake_java.parent))
    with pytest.raises(jars.SetupError) as refused:
        jars.resolve("thing", WANTED)
    assert "Java 17" in str(refused.value)
    assert "\n" not in str(refused.value)
