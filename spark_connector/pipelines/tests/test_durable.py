"""Files that are whole or absent, and a lock that nobody loses."""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

import pytest

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.common.durable import PARTIAL, locked, read_json, write_new_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def free(path: Path) -> bool:
    """Whether a process other than Spark's gets the lock: this one."""
    with path.open("rb+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_second_run_that_gives_up_takes_the_lock_of_the_first_with_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kumquat.spark.pipelines.common.durable.LOCK_WAIT_SECONDS", 0)
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    path = tmp_path / "lock"
    with locked(spark, path):
        assert not free(path)
        for other in (path, tmp_path / "link" / "lock"):
            with pytest.raises(ConnectorError, match="in use"), locked(spark, other):
                pass
            assert not free(path)
    assert free(path)
    with locked(spark, path):
        assert not free(path)


def test_lock_of_another_process_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    with path.open("wb") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        waits = []

        def let_go(seconds: float) -> None:
            waits.append(seconds)
            fcntl.lockf(file, fcntl.LOCK_UN)

        monkeypatch.setattr("time.sleep", let_go)
        with locked(spark, path):
            assert waits


def test_file_that_is_gone_is_called_damaged(tmp_path: Path) -> None:
    """Who lists files and then reads them must tell the two apart."""
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "gone.json", 1)


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_new_file_is_written_over_another(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not links:  # as some mounted storage
        monkeypatch.setattr("os.link", refuse)
    path = tmp_path / "7.json"
    write_new_json(path, {"version": 1, "of": "the first"})
    with pytest.raises(ConnectorError, match=r"7\.json is there already: another run"):
        write_new_json(path, {"version": 1, "of": "the second"})
    assert read_json(path, 1)["of"] == "the first"
    assert not [*tmp_path.glob(f"*{PARTIAL}")]
