"""The journal of copies: a batch's first end of the target is the one that holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.copies.journal import FILE, Journal, Run
from kumquat.spark.pipelines.copies.senders import Sender

if TYPE_CHECKING:
    from pathlib import Path

RUN = Run("replay", "again", "from", "to", "plan")
IDS = {"from": "1", "to": "2"}
ONE, TWO = Sender("b", "s", 1, 10), Sender("b", "s", 2, 20)


def opened(folder: Path) -> Journal:
    return Journal(folder, RUN, IDS)


def planned(folder: Path) -> Journal:
    """A journal whose run has written its own file."""
    journal = opened(folder)
    (folder / "plan").touch()
    return journal


def test_repeat_records_a_later_end(tmp_path: Path) -> None:
    journal = planned(tmp_path)
    assert journal.begin(0, (0, 5), ONE, lambda: 7) == 7
    after = opened(tmp_path)
    assert after.is_begun(0, (0, 5))
    assert after.begin(0, (0, 5), TWO, lambda: 9) == 7
    assert opened(tmp_path).entry.sender == TWO


def test_done_batch_is_forgotten(tmp_path: Path) -> None:
    journal = planned(tmp_path)
    journal.begin(0, (0, 5), ONE, lambda: 7)
    journal.done(3)
    journal.begin(1, (5, 9), ONE, lambda: 20)
    journal.done(2, 1)
    after = opened(tmp_path)
    assert after.entry == journal.entry
    assert (after.entry.copies, after.entry.sent, after.entry.doubled) == (2, 5, 1)
    assert after.is_done(1, (5, 9))
    assert not after.is_done(2, (9, 12))


def test_batch_number_alone_means_done(tmp_path: Path) -> None:
    journal = planned(tmp_path)
    journal.begin(0, (0, 5), ONE, lambda: 7)
    with pytest.raises(ConnectorError, match="folder of its own"):
        journal.begin(0, (0, 6), ONE, lambda: 7)
    journal.done(3)
    with pytest.raises(ConnectorError, match="folder of its own"):
        journal.is_done(0, (0, 6))
    for batch, range_ in [(0, None), (0, (0, 6)), (2, None), (2, (0, 5))]:
        with pytest.raises(ConnectorError, match="restore both from one backup"):
            journal.check_next(batch, range_)
    journal.check_next(0, (0, 5))
    journal.check_next(1, None)
    journal.check_next(1, (5, 9))
    journal.begin(1, (5, 9), ONE, lambda: 7)
    journal.check_next(1, (5, 9))
    for batch, range_ in [(0, (0, 5)), (1, None), (2, None)]:
        with pytest.raises(ConnectorError, match="restore both from one backup"):
            journal.check_next(batch, range_)


def test_folder_of_another_run_is_written_to(tmp_path: Path) -> None:
    journal = planned(tmp_path)
    journal.begin(0, (0, 5), ONE, lambda: 7)
    before = (tmp_path / FILE).read_text()
    for batch in (1, 2):
        with pytest.raises(ConnectorError, match="folder of its own"):
            journal.begin(batch, (5, 9), ONE, lambda: 9)
    for other, message in [
        (replace(RUN, kind="dedupe"), "kind replay, not dedupe"),
        (replace(RUN, name="first"), "name again, not first"),
        (replace(RUN, source="elsewhere"), "source from, not elsewhere"),
        (replace(RUN, target="elsewhere"), "target to, not elsewhere"),
    ]:
        with pytest.raises(ConnectorError, match=message):
            Journal(tmp_path, other, IDS)
    with pytest.raises(ConnectorError, match=r"from is not the subject .* made again"):
        Journal(tmp_path, RUN, {"from": "3", "to": "2"})
    assert (tmp_path / FILE).read_text() == before


def test_journal_counts_without_the_file_of_its_run(tmp_path: Path) -> None:
    (tmp_path / "plan").touch()
    with pytest.raises(ConnectorError, match="plan is there without"):
        opened(tmp_path)
    assert not (tmp_path / FILE).exists()
    (tmp_path / "plan").unlink()
    opened(tmp_path)
    opened(tmp_path).begin(0, (0, 5), ONE, lambda: 7)
    with pytest.raises(ConnectorError, match=r"there is no .*plan: restore it"):
        opened(tmp_path)


def test_two_runs_of_one_name_carry_the_same_mark(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    assert opened(tmp_path / "1").entry.run != opened(tmp_path / "2").entry.run


def test_newer_older_or_damaged_journal_is_guessed_at(tmp_path: Path) -> None:
    planned(tmp_path)
    path = tmp_path / FILE
    whole = path.read_text()
    for text, message in [
        (whole.replace('"version": 2', '"version": 3'), "upgrade"),
        (whole.replace('"version": 2', '"version": 1'), "older version"),
        (whole.replace('"end"', '"end of it"'), "damaged .KeyError.'end'"),
        (whole[:20], "cannot be read"),
    ]:
        path.write_text(text)
        with pytest.raises(ConnectorError, match=message):
            opened(tmp_path)
