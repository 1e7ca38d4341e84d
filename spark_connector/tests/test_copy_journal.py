"""The journal of copies: a batch's first end of the target is the one that holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_connector.errors import ConnectorError
from spark_connector.pipelines.copy_journal import FILE, Journal

if TYPE_CHECKING:
    from pathlib import Path


def test_repeat_records_a_later_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "again", "to")
    assert journal.begin(0, "local-1", lambda: 7) == 7
    after = Journal(tmp_path, "again", "to")
    assert after.is_begun(0)
    assert after.begin(0, "local-2", lambda: 9) == 7
    assert Journal(tmp_path, "again", "to").entry.application == "local-2"


def test_done_batch_is_forgotten(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "again", "to")
    journal.begin(0, "local-1", lambda: 7)
    journal.done(3)
    journal.begin(4, "local-1", lambda: 20)
    journal.done(2)
    after = Journal(tmp_path, "again", "to")
    assert (after.entry.run, after.entry.sent) == (journal.entry.run, 5)
    assert [after.is_done(batch) for batch in (0, 3, 4, 5)] == [True, True, True, False]


def test_folder_of_another_run_is_written_to(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "again", "to")
    journal.begin(3, "local-1", lambda: 7)
    for batch in (2, 4):
        with pytest.raises(ConnectorError, match="folder of its own"):
            journal.begin(batch, "local-1", lambda: 9)
    with pytest.raises(ConnectorError, match="run into to, not elsewhere"):
        Journal(tmp_path, "again", "elsewhere")
    assert Journal(tmp_path, "again", "to").entry.end == 7


def test_two_runs_of_one_name_carry_the_same_mark(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    one, two = Journal(tmp_path / "1", "again", "to"), Journal(tmp_path / "2", "again", "to")
    assert one.entry.run != two.entry.run


def test_newer_or_damaged_journal_is_guessed_at(tmp_path: Path) -> None:
    Journal(tmp_path, "again", "to")
    path = tmp_path / FILE
    whole = path.read_text()
    for text, told in [
        (whole.replace('"version": 1', '"version": 2'), "upgrade"),
        (whole.replace('"end"', '"end of it"'), "lacks 'end'"),
        (whole[:20], "cannot be read"),
    ]:
        path.write_text(text)
        with pytest.raises(ConnectorError, match=told):
            Journal(tmp_path, "again", "to")
