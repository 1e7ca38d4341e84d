"""A run's folder, whose files are not of one run, or whose subjects are not those it began with."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.archive.command import archive
from kumquat.spark.pipelines.copies import copier as copies
from kumquat.spark.pipelines.copies.journal import FILE as JOURNAL
from kumquat.spark.pipelines.dedupe.command import dedupe
from kumquat.spark.pipelines.dedupe.state import FILE as STATE
from kumquat.spark.pipelines.replay.command import replay
from kumquat.spark.pipelines.replay.plan import FILE as PLAN
from kumquat.spark.pipelines.replay.plan import Selection
from kumquat.spark.pipelines.tests.deduping import NOW, let_through, make, recreate, send

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kumquat.testing import TestBroker


@pytest.fixture
def bootstrap(kumquat: TestBroker) -> str:
    """Five messages in `in`, and an empty `out`."""
    make(kumquat.bootstrap, "in", "out")
    send(kumquat.bootstrap, [(n, NOW) for n in range(5)])
    return kumquat.bootstrap


def break_off(run: Callable[[], None]) -> None:
    """When its first batch has begun, and has sent nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies.Copier, "_write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run()


def test_dedupe_takes_the_folder_of_a_replay_for_its_own(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    """The replay has done batch 0, which is not dedupe's batch 0."""
    chosen = Selection("in", keys=("none has this",))
    replay(spark, bootstrap, chosen, "out", send=True, run="dedupe", state=tmp_path)
    folder = tmp_path / "dedupe"
    with pytest.raises(ConnectorError, match="kind replay, not dedupe: give each run a folder"):
        dedupe(spark, bootstrap, "in", "out", folder)
    assert not (folder / STATE).exists()
    assert let_through(bootstrap) == []


def test_older_or_missing_file_of_a_dedupe_loses_messages(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    def run() -> None:
        dedupe(spark, bootstrap, "in", "out", tmp_path)

    run()
    older = {name: (tmp_path / name).read_text() for name in (STATE, JOURNAL)}
    send(bootstrap, [(n, NOW) for n in range(5, 9)], 5)
    run()
    newer = {name: (tmp_path / name).read_text() for name in (STATE, JOURNAL)}
    send(bootstrap, [(9, NOW)], 9)
    for name in (STATE, JOURNAL):
        (tmp_path / name).write_text(older[name])
        with pytest.raises(ConnectorError, match="restore both from one backup"):
            run()
        (tmp_path / name).unlink()
        with pytest.raises(ConnectorError, match="restore it from a backup, or begin a new run"):
            run()
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_text(newer[name])
    (tmp_path / STATE).write_text(newer[STATE].replace('"run": "dedupe.', '"run": "dedupe.0'))
    with pytest.raises(ConnectorError, match="restore the folder as a whole"):
        run()
    (tmp_path / STATE).write_text(newer[STATE])
    run()
    assert let_through(bootstrap) == [*range(10)]


def test_replay_without_its_plan_skips_other_messages(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    def run(name: str) -> None:
        replay(spark, bootstrap, Selection("in"), "out", send=True, run=name, state=tmp_path)

    run("r")
    plan = (tmp_path / "r" / PLAN).read_text()
    (tmp_path / "r" / PLAN).unlink()
    with pytest.raises(ConnectorError, match=r"no .*plan.json: restore it"):
        run("r")
    (tmp_path / "r" / PLAN).write_text(plan.replace('"run": "r.', '"run": "r.0'))
    with pytest.raises(ConnectorError, match="restore the folder as a whole"):
        run("r")
    shutil.copytree(tmp_path / "r", tmp_path / "another")
    with pytest.raises(ConnectorError, match="name r, not another"):
        run("another")
    assert let_through(bootstrap) == [*range(5)]


@pytest.mark.parametrize("name", ["in", "out"])
def test_dedupe_takes_a_subject_recreated_for_the_old_one(
    spark: SparkSession, bootstrap: str, tmp_path: Path, name: str
) -> None:
    dedupe(spark, bootstrap, "in", "out", tmp_path)
    recreate(bootstrap, name)
    if name == "in":
        send(bootstrap, [(n, NOW) for n in range(50, 58)])
    before = let_through(bootstrap)
    with pytest.raises(ConnectorError, match=f"{name} is not the subject .* made again"):
        dedupe(spark, bootstrap, "in", "out", tmp_path)
    assert let_through(bootstrap) == before


@pytest.mark.parametrize("name", ["in", "out"])
def test_replay_takes_a_subject_recreated_for_the_old_one(
    spark: SparkSession, bootstrap: str, tmp_path: Path, name: str
) -> None:
    def run() -> None:
        replay(spark, bootstrap, Selection("in"), "out", send=True, run="r", state=tmp_path)

    break_off(run)
    recreate(bootstrap, name)
    send(bootstrap, [(n, NOW) for n in range(50, 58)])
    with pytest.raises(ConnectorError, match=f"{name} is not the subject .* made again"):
        run()
    assert let_through(bootstrap) == []


def test_subject_recreated_in_the_middle_of_a_batch_is_sent_from(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was decided what to send, before it is read to be sent."""
    whole = copies.Copier.send

    def again_and_send(*arguments: object) -> object:
        recreate(bootstrap, "in")
        send(bootstrap, [(n, NOW) for n in range(50, 58)])
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(copies.Copier, "send", again_and_send)
    with pytest.raises(ConnectorError, match=r"in is not the subject .* made again"):
        dedupe(spark, bootstrap, "in", "out", tmp_path)
    assert let_through(bootstrap) == []


def test_replay_takes_an_archive_recreated_for_the_old_one(
    spark: SparkSession, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> None:
        chosen = Selection("in", str(tmp_path / "archive"))
        replay(spark, bootstrap, chosen, "out", send=True, run="r", state=tmp_path)

    archive(spark, bootstrap, "in", tmp_path / "archive")
    break_off(run)
    recreate(bootstrap, "in")
    send(bootstrap, [(n, NOW) for n in range(50, 54)])
    (tmp_path / "archive").rename(tmp_path / "before")
    archive(spark, bootstrap, "in", tmp_path / "archive")
    with pytest.raises(ConnectorError, match="holds another in than this run began with"):
        run()
    shutil.rmtree(tmp_path / "archive")
    (tmp_path / "before").rename(tmp_path / "archive")
    monkeypatch.setattr(copies.Copier, "_wait_for_what_outlived", lambda _: None)
    run()
    assert let_through(bootstrap) == [*range(5)]
