"""The commits of an archive: its log, and the state that follows from it. The format is in format.py.

A commit is written once and never changed. The state changes only in `State.apply`, when commits are
loaded and when one is written. Every SNAPSHOT_EVERY commits the state is written as a snapshot, and the
commits that it covers are deleted.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.archive.format import (
    COMMITS,
    VERSION,
    ArchiveFile,
    Range,
    shown_files,
    stored,
    stored_files,
)
from kumquat.spark.pipelines.common.durable import (
    PARTIAL,
    read_json,
    sync,
    write_json,
    write_new_json,
)

if TYPE_CHECKING:
    from pathlib import Path

SNAPSHOT_EVERY = 32
KEEP_REMOVED_MS = 3_600_000
LOAD_ATTEMPTS = 5
_COMMIT = re.compile(r"([0-9]{20})\.json")
_SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot\.json")


@dataclass(frozen=True)
class Commit:
    number: int
    at_ms: int
    ranges: dict[str, Range] = field(default_factory=dict)
    lost: dict[str, list[Range]] = field(default_factory=dict)
    add: list[ArchiveFile] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)


@dataclass
class State:
    """What holds after commit `number`."""

    number: int = -1
    begin: dict[str, int] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)
    files: dict[str, ArchiveFile] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    """Files that a compaction replaced, and when."""
    lost: dict[str, list[Range]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    summed_up: int = -1
    """The commit up to which there is a snapshot."""

    def apply(self, commit: Commit) -> None:
        if commit.number != self.number + 1:
            raise ConnectorError(
                f"commit {self.number + 1} of the archive is missing (there is {commit.number}): "
                "restore it from a backup"
            )
        for subject, ranges in commit.lost.items():
            for lost in ranges:
                self._advance(commit, subject, lost)
                self.lost.setdefault(subject, []).append(lost)
        for subject, range_ in commit.ranges.items():
            self._advance(commit, subject, range_)
        if unknown := [path for path in commit.remove if path not in self.files]:
            raise ConnectorError(
                f"commit {commit.number} of the archive removes {unknown[0]}, which no commit before "
                "it added: restore it from a backup"
            )
        for path in commit.remove:
            del self.files[path]
            self.removed[path] = commit.at_ms
        self.files |= {file.path: file for file in commit.add}
        self.ids |= commit.ids
        self.number = commit.number

    def _advance(self, commit: Commit, subject: str, range_: Range) -> None:
        start, end = range_
        begun = self.begin.setdefault(subject, start)
        if start != self.next.get(subject, begun) or end < start:
            raise ConnectorError(
                f"commit {commit.number} of the archive continues {subject} at {start}, but the "
                f"commits before it end at {self.next.get(subject)}: restore it from a backup"
            )
        self.next[subject] = end

    def not_archived(self, subject: str) -> list[tuple[int, int | None]]:
        """The offsets that no file has: what was lost, and all that is still to come."""
        return [*self.lost.get(subject, ()), (self.next.get(subject, 0), None)]


def load(folder: Path) -> State:
    """The state after the newest commit. Needs no lock: it reads again when the run under way has
    just replaced commits by a snapshot."""
    for _ in range(LOAD_ATTEMPTS):
        names = _names(folder)
        try:
            return _load(folder, names)
        except (FileNotFoundError, ConnectorError):
            if _names(folder) == names:
                raise
    raise ConnectorError(f"{folder} was changed as often as it was read: run this again")


def exists(folder: Path) -> bool:
    return (folder / COMMITS).is_dir()


def write_commit(folder: Path, state: State, commit: Commit) -> None:
    """Returns when the commit is durable; what it adds must be synced before. From time to time it also
    writes a snapshot."""
    content = {"version": VERSION, **asdict(commit)}
    trial = State(number=state.number, begin=dict(state.begin), next=dict(state.next))
    trial.files = dict(state.files)
    trial.apply(commit)
    path = folder / COMMITS / f"{commit.number:020}.json"
    if any(name[:20] >= path.name[:20] for name in _names(folder) if _counts(name)):
        # Even with the lock: a run that finds commits which it did not write must not continue.
        raise ConnectorError(
            f"{folder} has got commits of another run: run this again when it ended"
        )
    write_new_json(path, content)
    state.apply(commit)
    _sum_up(folder, state)


def leftovers(folder: Path, state: State) -> list[str]:
    """The files that no commit has. A ConnectorError when commits or files are lost.
    The caller must hold the lock."""
    there = {path.relative_to(folder).as_posix() for path in shown_files(folder)}
    there |= stored_files(folder)
    newest = max((int(name.rpartition("/")[2][:20]) for name in there), default=-1)
    if newest > state.number + 1:
        has = f"its newest commit is {state.number}" if state.number >= 0 else "it has no commits"
        raise ConnectorError(
            f"{folder} has files of commit {newest}, but {has}: restore {COMMITS} from a backup "
            "(or move those files away, to archive again what they hold)"
        )
    if lost := sorted(state.files.keys() - there):
        raise ConnectorError(
            f"{folder} lacks {lost[0]}, and of all its {len(state.files):,} files {len(lost):,}: "
            "restore them from a backup"
        )
    return sorted(there - state.files.keys() - state.removed.keys())


def remove_replaced(folder: Path, state: State, now_ms: int) -> None:
    """Deletes what no reader can still be reading. The caller must hold the lock."""
    over = [path for path, at in state.removed.items() if now_ms - at >= KEEP_REMOVED_MS]
    for path in over:
        stored(folder, path).unlink(missing_ok=True)
        del state.removed[path]
    for partial in (folder / COMMITS).glob(f"*{PARTIAL}"):
        partial.unlink()
    _sum_up(folder, state)
    _delete_summed_up(folder)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / COMMITS).iterdir()) if exists(folder) else []


def _counts(name: str) -> bool:
    return bool(_COMMIT.fullmatch(name) or _SNAPSHOT.fullmatch(name))


def _load(folder: Path, names: list[str]) -> State:
    snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
    commits = [name for name in names if _COMMIT.fullmatch(name)]
    state = _snapshot_of(folder / COMMITS / snapshots[-1]) if snapshots else State()
    for name in commits:
        if int(name[:20]) > state.number:
            state.apply(_commit_of(folder / COMMITS / name))
    return state


def _commit_of(path: Path) -> Commit:
    content = read_json(path, VERSION)
    try:
        return Commit(
            int(content["number"]),
            int(content["at_ms"]),
            {subject: _range(pair) for subject, pair in content["ranges"].items()},
            {subject: [*map(_range, pairs)] for subject, pairs in content["lost"].items()},
            [ArchiveFile(**file) for file in content["add"]],
            list(content["remove"]),
            dict(content["ids"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConnectorError(f"{path} is damaged: restore it from a backup ({error!r})") from None


def _sum_up(folder: Path, state: State) -> None:
    if state.number - state.summed_up < SNAPSHOT_EVERY:
        return
    content = {
        "version": VERSION,
        "number": state.number,
        "begin": state.begin,
        "next": state.next,
        "files": [asdict(file) for file in state.files.values()],
        "removed": state.removed,
        "lost": state.lost,
        "ids": state.ids,
    }
    write_json(folder / COMMITS / f"{state.number:020}.snapshot.json", content)
    state.summed_up = state.number
    _delete_summed_up(folder)


def _snapshot_of(path: Path) -> State:
    content = read_json(path, VERSION)
    try:
        return State(
            int(content["number"]),
            dict(content["begin"]),
            dict(content["next"]),
            {file["path"]: ArchiveFile(**file) for file in content["files"]},
            dict(content["removed"]),
            {subject: [*map(_range, pairs)] for subject, pairs in content["lost"].items()},
            dict(content["ids"]),
            int(content["number"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConnectorError(f"{path} is damaged: restore it from a backup ({error!r})") from None


def _delete_summed_up(folder: Path) -> None:
    commits, names = folder / COMMITS, _names(folder)
    snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
    if not snapshots:
        return
    newest = snapshots[-1]
    old = [name for name in names if _COMMIT.fullmatch(name) and name[:20] <= newest[:20]]
    for name in old + snapshots[:-1]:
        (commits / name).unlink()
    sync(commits)


def _range(pair: Any) -> Range:
    start, end = pair
    return int(start), int(end)
