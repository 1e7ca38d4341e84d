"""What counts in an archive's folder, with a crash at any step of writing it. No Spark: the data files
are made by hand, so that thousands of courses can be tried."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.archive import commits as archive_commits
from kumquat.spark.pipelines.archive import view as archive_view
from kumquat.spark.pipelines.archive.commits import (
    KEEP_REMOVED_MS,
    Commit,
    State,
    leftovers,
    load,
    remove_replaced,
    write_commit,
)
from kumquat.spark.pipelines.archive.compaction import FEWEST, to_compact
from kumquat.spark.pipelines.archive.format import (
    COMMITS,
    FILES,
    REPLACED,
    ArchiveFile,
    found,
    stored,
)
from kumquat.spark.pipelines.archive.view import can_swap, commit_and_show, show_all

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = "subject=orders/day=2026-11-16"


def data_file(number: int) -> str:
    return f"{DAY}/{number:020}-{secrets.token_hex(4)}-0000.parquet"


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts what changes the disk, looks at it before and after each, and crashes at a chosen one."""

    def __init__(self, crash_at: int, look: Callable[[], None]) -> None:
        self.left = crash_at
        self.look = look

    def __enter__(self) -> None:
        self.patches = ExitStack()
        for target, name in [
            (os, "link"),
            (Path, "replace"),
            (Path, "rename"),
            (Path, "unlink"),
            (Path, "rmdir"),
            (archive_view, "swap"),
        ]:
            self.patches.enter_context(self.wrap(target, name))

    def __exit__(self, *_: object) -> None:
        self.patches.close()

    def wrap(self, target: object, name: str) -> mock._patch[object]:
        real = getattr(target, name)

        def step(*arguments: object, **options: object) -> object:
            self.count()
            result = real(*arguments, **options)
            self.count()
            return result

        return mock.patch.object(target, name, step)

    def count(self) -> None:
        self.look()
        self.left -= 1
        if self.left == 0:
            raise Crash


class Archive(RuleBasedStateMachine):
    """`truth` is what must be read: the offsets of whole commits, each once. By `read_archive`, which
    goes by the commits, and by any other reader, which goes by what the folders show."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kumquat-archive-"))
        (self.folder / COMMITS).mkdir()
        self.truth: list[int] = []
        self.now = 0

    @initialize()
    def open(self) -> None:
        self.state = load(self.folder)

    @rule(rows=st.integers(0, 5), crash_at=st.integers(1, 24))
    def archive(self, rows: int, crash_at: int) -> None:
        start = self.state.next.get("orders", 0)
        number = self.state.number + 1
        files = [self.write(number, [*range(start, start + rows)])] if rows else []
        # Offsets have holes: the range is wider than its rows.
        commit = Commit(number, self.now, {"orders": (start, start + rows + 2)}, {}, files)
        self.commit(commit, crash_at, [*self.truth, *range(start, start + rows)])

    @rule(crash_at=st.integers(1, 24))
    def compact(self, crash_at: int) -> None:
        old = list(self.state.files.values())
        if len(old) < 2:
            return
        number = self.state.number + 1
        rows = sorted(row for file in old for row in self.rows(file.path))
        new = self.write(number, rows)
        removed = [file.path for file in old]
        self.commit(Commit(number, self.now, add=[new], remove=removed), crash_at, self.truth)

    @rule(later=st.sampled_from([0, KEEP_REMOVED_MS // 2, KEEP_REMOVED_MS]))
    def run_again(self, later: int) -> None:
        self.now += later
        self.state = load(self.folder)
        left = leftovers(self.folder, self.state)
        show_all(self.folder, self.state, self.now)
        remove_replaced(self.folder, self.state, self.now)
        assert self.on_disk() == {*self.state.files, *self.state.removed, *left}
        assert (self.folder / DAY / "mine.txt").exists() or not self.truth

    @rule(swaps=st.booleans())
    def was_written_by_an_earlier_version(self, swaps: bool) -> None:
        """Which had one name for each file, in the folders that all see, also of the replaced ones."""
        for path in self.on_disk():
            if not (self.folder / path).exists():
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                stored(self.folder, path).rename(self.folder / path)
        for name in (FILES, REPLACED):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self.every_message_is_read_once_by_its_commit()
        with (
            nullcontext() if swaps else mock.patch.object(archive_view, "swap", side_effect=OSError)
        ):
            self.run_again(0)

    @rule(count=st.integers(1, 3))
    def newest_commits_are_lost(self, count: int) -> None:
        """For a while, as when an older backup was put back by mistake. No run takes the files for
        needless, unless it is one commit, which looks like a crash."""
        commits = sorted((self.folder / COMMITS).glob("*.json"))[-count:]
        contents = [path.read_bytes() for path in commits]
        before = self.on_disk()
        for path in commits:
            path.unlink()
        state = load(self.folder)
        named = {*self.state.files, *self.state.removed} - {*state.files, *state.removed}
        try:
            left = leftovers(self.folder, state)
        except ConnectorError:
            assert state.number < self.state.number
        else:
            assert named <= {*left}
            assert {int(Path(name).name[:20]) for name in named} <= {state.number + 1}
        assert self.on_disk() == before
        for path, content in zip(commits, contents, strict=True):
            path.write_bytes(content)

    @invariant()
    def every_message_is_read_once_by_its_commit(self) -> None:
        state = load(self.folder)
        assert sorted(row for path in state.files for row in self.rows(path)) == self.truth

    @invariant()
    def every_message_is_read_once_by_others(self) -> None:
        assert self.seen_by_others() == self.truth

    @invariant()
    def commits_are_put_together(self) -> None:
        commits = [*(self.folder / COMMITS).glob("*.json")]
        assert len(commits) <= archive_commits.SNAPSHOT_EVERY + 1

    def commit(self, commit: Commit, crash_at: int, after: list[int]) -> None:
        before = self.truth

        def look() -> None:
            assert self.seen_by_others() in (before, after)

        try:
            with Steps(crash_at, look):
                commit_and_show(self.folder, self.state, commit)
        except Crash:
            look()
            self.run_again(0)
            # That the commit has its name decides, and nothing else.
            if self.state.number < commit.number:
                return
        self.truth = after

    def write(self, number: int, rows: list[int]) -> ArchiveFile:
        path = data_file(number)
        place = stored(self.folder, path)
        for folder in (place.parent, self.folder / DAY):
            folder.mkdir(parents=True, exist_ok=True)
        (self.folder / DAY / "mine.txt").write_text("of somebody")
        place.write_text(json.dumps(rows))
        return ArchiveFile(path, len(rows), 100, min(rows), max(rows))

    def rows(self, path: str) -> list[int]:
        return [int(row) for row in json.loads(found(self.folder, path).read_text())]

    def seen_by_others(self) -> list[int]:
        files = self.folder.glob("**/*.parquet")
        shown = [
            path for path in files if not path.relative_to(self.folder).as_posix().startswith("_")
        ]
        return sorted(int(row) for path in shown for row in json.loads(path.read_text()))

    def on_disk(self) -> set[str]:
        shown = self.folder.glob("subject=*/*/*.parquet")
        files = (self.folder / FILES).glob("subject=*/*/*")
        stored = {f"{path.relative_to(self.folder / FILES).as_posix()}.parquet" for path in files}
        return {path.relative_to(self.folder).as_posix() for path in shown} | stored

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


@pytest.fixture(autouse=True)
def _few_commits_to_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_commits, "SNAPSHOT_EVERY", 3)
    # kill -9 keeps what was written: a sync would only cost time here.
    monkeypatch.setattr("os.fsync", lambda _: None)


TestArchive = Archive.TestCase
TestArchive.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, derandomize=True
)


@pytest.mark.parametrize("crash_at", range(1, 25))
def test_compaction_that_ends_between_the_swap_and_a_foreign_file(crash_at: int) -> None:
    """The next run brings the file back, and does not wait until the old folder may go."""
    machine = Archive()
    try:
        machine.open()
        machine.archive(rows=1, crash_at=24)
        machine.archive(rows=1, crash_at=24)
        machine.compact(crash_at=crash_at)
        assert (machine.folder / DAY / "mine.txt").exists()
    finally:
        machine.teardown()


def test_reader_in_the_middle_of_listing_a_day_misses_files(tmp_path: Path) -> None:
    """It has opened the folder, and has got a part of the names, when the files are put together."""
    state = make_archive(tmp_path, 5)
    show_all(tmp_path, state, 0)
    names = sorted(Path(path).name for path in state.files)
    whole = ArchiveFile(data_file(6), 5, 100, 0, 4)
    stored(tmp_path, whole.path).write_text("all messages")
    with os.scandir(tmp_path / DAY) as listing:
        got = [next(listing).name]
        commit_and_show(tmp_path, state, Commit(6, 0, add=[whole], remove=[*state.files]))
        show_all(tmp_path, state, archive_view.KEEP_LISTED_MS - 1)
        got += [entry.name for entry in listing]
    assert sorted(got) == names
    assert [path.name for path in (tmp_path / DAY).iterdir()] == [Path(whole.path).name]
    show_all(tmp_path, state, archive_view.KEEP_LISTED_MS)
    assert not any((tmp_path / REPLACED).iterdir())


def test_file_system_without_links_or_swaps_shows_what_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make_archive(tmp_path, 2)
    monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError))
    assert can_swap(tmp_path)
    monkeypatch.setattr(archive_view, "swap", mock.Mock(side_effect=OSError))
    assert not can_swap(tmp_path)
    show_all(tmp_path, state, 0)
    for path in state.files:
        assert stored(tmp_path, path).read_text() == (tmp_path / path).read_text() == "a message"


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
        with pytest.raises(ConnectorError, match="continues orders"):
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


def make_archive(folder: Path, commits: int) -> State:
    """A first commit, as every archive has, then some with a file of one message."""
    (folder / COMMITS).mkdir()
    (folder / DAY).mkdir(parents=True)
    state = State()
    write_commit(folder, state, Commit(0, 0, {"orders": (0, 0)}, ids={"orders": "a"}))
    for number in range(1, commits + 1):
        file = ArchiveFile(data_file(number), 1, 100, number - 1, number - 1)
        (folder / file.path).write_text("a message")
        write_commit(folder, state, Commit(number, 0, {"orders": (number - 1, number)}, {}, [file]))
    return state


@pytest.mark.parametrize("left", [-1, 0, 1, 2])
def test_run_begins_on_commits_that_lack_the_newest(tmp_path: Path, left: int) -> None:
    """An older _commits was put back, or none at all: four have files, two or more are lost."""
    with mock.patch.object(archive_commits, "SNAPSHOT_EVERY", 100):
        make_archive(tmp_path, 4)
    for number in range(left + 1, 5):
        (tmp_path / COMMITS / f"{number:020}.json").unlink()
    with pytest.raises(ConnectorError, match=r"has files of commit 4, but .* restore _commits"):
        leftovers(tmp_path, load(tmp_path))


def test_run_begins_on_files_that_are_lost(tmp_path: Path) -> None:
    state = make_archive(tmp_path, 4)
    lost = sorted(state.files)[1]
    (tmp_path / lost).unlink()
    with pytest.raises(ConnectorError, match=rf"lacks {lost}, and of all its 4 files 1: restore"):
        leftovers(tmp_path, load(tmp_path))


def test_files_without_a_token_are_called_lost(tmp_path: Path) -> None:
    """The names that the first archives had."""
    state = make_archive(tmp_path, 0)
    file = ArchiveFile(f"{DAY}/{1:020}-0000.parquet", 1, 100, 0, 0)
    (tmp_path / file.path).write_text("a message")
    assert leftovers(tmp_path, state) == [file.path]
    write_commit(tmp_path, state, Commit(1, 0, {"orders": (0, 1)}, {}, [file]))
    assert leftovers(tmp_path, load(tmp_path)) == []


def test_replaced_file_is_told_as_left_by_a_run_that_broke_off(tmp_path: Path) -> None:
    state = make_archive(tmp_path, 2)
    whole = ArchiveFile(data_file(3), 2, 100, 0, 1)
    (tmp_path / whole.path).write_text("both messages")
    old = [*state.files]
    write_commit(tmp_path, state, Commit(3, 1000, add=[whole], remove=old))
    for now, there in ((1000, True), (1000 + KEEP_REMOVED_MS, False)):
        state = load(tmp_path)
        assert leftovers(tmp_path, state) == []
        show_all(tmp_path, state, now)
        remove_replaced(tmp_path, state, now)
        assert [stored(tmp_path, path).exists() for path in old] == [there, there]
    assert leftovers(tmp_path, load(tmp_path)) == []


def test_reader_that_meets_a_run_summing_up_is_told_to_restore_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that it has just found is deleted before it is read."""
    state = make_archive(tmp_path, 1)
    real = Path.read_text

    def read_text(path: Path) -> str:
        monkeypatch.setattr(Path, "read_text", real)
        write_commit(tmp_path, state, Commit(2, 0, {"orders": (1, 5)}))
        return real(path)

    monkeypatch.setattr(Path, "read_text", read_text)
    assert load(tmp_path) == state
    assert not (tmp_path / COMMITS / f"{0:020}.json").exists()


def test_listing_from_before_and_after_is_taken_for_a_missing_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is not listed at one moment: it may lack the snapshot and what it replaced."""
    state = make_archive(tmp_path, 3)
    real = Path.iterdir

    def iterdir(folder: Path) -> object:
        monkeypatch.setattr(Path, "iterdir", real)
        return iter([folder / f"{3:020}.json"])

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert load(tmp_path) == state
    assert Path.iterdir is real


@pytest.mark.parametrize("commits", [0, 1], ids=["a commit", "a snapshot"])
def test_second_writer_takes_the_place_of_a_commit(tmp_path: Path, commits: int) -> None:
    state = make_archive(tmp_path, commits)
    other, number = load(tmp_path), commits + 1
    write_commit(tmp_path, state, Commit(number, 0, {"orders": (commits, 5)}))
    with pytest.raises(ConnectorError, match="another run"):
        write_commit(tmp_path, other, Commit(number, 0, {"orders": (commits, 3)}))
    assert load(tmp_path) == state


def file(day: str, first: int, size: int = 10) -> ArchiveFile:
    return ArchiveFile(f"subject=orders/day={day}/{first}", 5, size, first, first + 4)


def test_compaction_of_files_that_are_large_or_still_few() -> None:
    today = [file("2026-11-16", n) for n in range(10, 10 + FEWEST - 1)]
    assert to_compact(today, 100, "2026-11-16") == []
    assert to_compact(today, 100, "2026-11-17") == []
    large, small = file("2026-11-16", 90, 50), file("2026-11-16", 90)
    assert to_compact([*today, large], 100, "2026-11-16") == []
    assert to_compact([*today, small], 100, "2026-11-16") == [[*today, small]]
    over = [file("2026-11-15", 3), file("2026-11-15", 1)]
    assert to_compact([*over, *today], 100, "2026-11-16") == [over[::-1]]
    assert to_compact([over[0], file("2026-11-15", 9, 50), *today], 100, "2026-11-16") == []


def test_message_with_a_time_ahead_has_today_written_again_by_every_run() -> None:
    today = [file("2026-11-16", 100), file("2026-11-16", 200)]
    for ahead in (file("2099-01-01", 0), file("2099-01-01", 300)):
        assert to_compact([ahead, *today], 100, "2026-11-16") == []
    late = file("2026-11-15", 300)
    assert to_compact([*today, late], 100, "2026-11-16") == []
