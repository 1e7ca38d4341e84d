"""What counts in an archive's folder, with a crash at any step of writing it. No Spark: the data files
are made by hand, so that thousands of courses can be tried."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spark_connector.errors import ConnectorError
from spark_connector.pipelines import archive_format
from spark_connector.pipelines.archive_compaction import FEWEST, to_compact
from spark_connector.pipelines.archive_format import (
    COMMITS,
    KEEP_REMOVED_MS,
    ArchiveFile,
    Commit,
    State,
    load,
    remove_leftovers,
    write_commit,
)

DAY = "subject=orders/day=2026-11-16"


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts what changes the disk, and crashes before or after a chosen step."""

    def __init__(self, crash_at: int) -> None:
        self.left = crash_at

    def wrap(self, target: type, name: str) -> mock._patch[object]:
        real = getattr(target, name)

        def step(*arguments: object, **options: object) -> object:
            self.left -= 1
            if self.left == 0:
                raise Crash
            result = real(*arguments, **options)
            self.left -= 1
            if self.left == 0:
                raise Crash
            return result

        return mock.patch.object(target, name, step)


class Archive(RuleBasedStateMachine):
    """`truth` is what must be read: the offsets of whole commits, each once."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kumquat-archive-"))
        (self.folder / COMMITS).mkdir()
        self.truth: list[int] = []
        self.now = 0

    @initialize()
    def open(self) -> None:
        self.state = load(self.folder)

    @rule(rows=st.integers(0, 5), crash_at=st.integers(1, 12))
    def archive(self, rows: int, crash_at: int) -> None:
        start = self.state.next.get("orders", 0)
        number = self.state.number + 1
        files = [self.write(number, 0, [*range(start, start + rows)])] if rows else []
        # Offsets have holes: the range is wider than its rows.
        commit = Commit(number, self.now, {"orders": (start, start + rows + 2)}, {}, files)
        self.commit(commit, crash_at, [*self.truth, *range(start, start + rows)])

    @rule(crash_at=st.integers(1, 12))
    def compact(self, crash_at: int) -> None:
        old = list(self.state.files.values())
        if len(old) < 2:
            return
        number = self.state.number + 1
        rows = sorted(row for file in old for row in self.rows(file.path))
        new = self.write(number, 0, rows)
        removed = [file.path for file in old]
        self.commit(Commit(number, self.now, add=[new], remove=removed), crash_at, self.truth)

    @rule(later=st.sampled_from([0, KEEP_REMOVED_MS // 2, KEEP_REMOVED_MS]))
    def run_anew(self, later: int) -> None:
        self.now += later
        self.state = load(self.folder)
        remove_leftovers(self.folder, self.state, self.now)
        on_disk = {p.relative_to(self.folder).as_posix() for p in self.folder.glob("*/*/*.parquet")}
        assert on_disk == {*self.state.files, *self.state.removed}

    @invariant()
    def every_message_is_read_once(self) -> None:
        state = load(self.folder)
        assert sorted(row for path in state.files for row in self.rows(path)) == self.truth

    @invariant()
    def commits_are_put_together(self) -> None:
        commits = [*(self.folder / COMMITS).glob("*.json")]
        assert len(commits) <= archive_format.SNAPSHOT_EVERY + 1

    def commit(self, commit: Commit, crash_at: int, after: list[int]) -> None:
        steps = Steps(crash_at)
        try:
            with steps.wrap(Path, "replace"), steps.wrap(Path, "unlink"):
                write_commit(self.folder, self.state, commit)
        except Crash:
            self.run_anew(0)
            # The rename decides, and nothing else.
            if self.state.number < commit.number:
                return
        self.truth = after

    def write(self, number: int, index: int, rows: list[int]) -> ArchiveFile:
        path = f"{DAY}/{number:020}-{index:04}.parquet"
        (self.folder / DAY).mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(json.dumps(rows))
        return ArchiveFile(path, len(rows), 100, min(rows), max(rows))

    def rows(self, path: str) -> list[int]:
        return [int(row) for row in json.loads((self.folder / path).read_text())]

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


@pytest.fixture(autouse=True)
def _few_commits_to_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_format, "SNAPSHOT_EVERY", 3)
    # kill -9 keeps what was written: a sync would only cost time here.
    monkeypatch.setattr("os.fsync", lambda _: None)


TestArchive = Archive.TestCase
TestArchive.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, derandomize=True
)


def test_missing_commit_is_skipped(tmp_path: Path) -> None:
    (tmp_path / COMMITS).mkdir()
    state = State()
    for number in range(2):
        write_commit(tmp_path, state, Commit(number, 0, {"orders": (number, number + 1)}))
    (tmp_path / COMMITS / f"{0:020}.json").unlink()
    with pytest.raises(ConnectorError, match="commit 0 of the archive is missing"):
        load(tmp_path)


def test_gap_or_overlap_of_ranges_is_committed(tmp_path: Path) -> None:
    (tmp_path / COMMITS).mkdir()
    state = State()
    write_commit(tmp_path, state, Commit(0, 0, {"orders": (5, 10)}))
    for start in (9, 11):
        with pytest.raises(ConnectorError, match="goes on with orders"):
            write_commit(tmp_path, state, Commit(1, 0, {"orders": (start, 20)}))
    lost = {"orders": [(10, 15)]}
    write_commit(tmp_path, state, Commit(1, 0, {"orders": (15, 20)}, lost))
    assert load(tmp_path) == state
    assert (state.begin, state.next, state.lost) == ({"orders": 5}, {"orders": 20}, lost)


def test_damaged_commit_is_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / COMMITS).mkdir()
    write_commit(tmp_path, State(), Commit(0, 0, {"orders": (5, 10)}))
    path = tmp_path / COMMITS / f"{0:020}.json"
    whole = path.read_text()
    for text in ("", whole[:50], "[]", '{"version": 1}', whole.replace("add", "adds")):
        path.write_text(text)
        with pytest.raises(ConnectorError, match="restore it from a backup"):
            load(tmp_path)


def test_compaction_of_files_that_are_large_or_still_few() -> None:
    def file(day: int, first: int, size: int = 10) -> ArchiveFile:
        return ArchiveFile(f"subject=orders/day=2026-11-{day}/{first}", 5, size, first, first + 4)

    today = [file(16, n) for n in range(FEWEST - 1)]
    assert to_compact(today, 100) == []
    assert to_compact([*today, file(16, 90, 50)], 100) == []
    assert to_compact([*today, file(16, 90)], 100) == [[*today, file(16, 90)]]
    over = [file(15, 3), file(15, 1)]
    assert to_compact([*over, *today], 100) == [[file(15, 1), file(15, 3)]]
    assert to_compact([over[0], file(15, 9, 50), *today], 100) == []
