"""What is in an archive's folder, and which files count.

    subject=orders/day=2026-11-16/00000000000000000007-5f0c9e1b-0000.parquet   messages of a UTC day
    _files/subject=orders/day=2026-11-16/00000000000000000007-5f0c9e1b-0000    the same file (a hard link)
    _commits/00000000000000000007.json            what commit 7 added and removed
    _commits/00000000000000000007.snapshot.json   all that holds after commit 7
    _staging/5f0c9e1b/…                            being written by a run
    _replaced/1794808845375-5f0c9e1b/…             a day's folder as it was before a compaction
    _lock                                         held by the run under way

A file of messages counts when the newest commit says so, and not before: a run writes its files
under _staging, moves them to _files, syncs them, and only then writes the commit, which appears
in one step and never replaces another. The folders `subject=…` show to all other readers what
counts (archive/view.py).

A file that is in no commit is left over from a crash; or its commit is lost, and then it must not be
deleted. To tell these apart, every file is named after its commit:

| number of the file | named by the commits | then |
|---|---|---|
| any | yes, but it is not there | files are lost: no run begins |
| up to the newest commit's | as replaced | deleted after KEEP_REMOVED_MS |
| up to the newest commit's and one more | no | a leftover: deleted once all it holds is archived |
| above that | no | commits are lost: no run begins |

The first commit of a subject says where its archive begins, before there is a file of it: from then on a
run notices everything that retention deletes, and knows that files without any commit are no leftovers.

    {"version": 1, "number": 7, "at_ms": 1794808845375,
     "ranges": {"orders": [1000, 2000]}, "lost": {"orders": [[900, 1000]]},
     "add": [{"path": "subject=orders/…", "rows": 998, "bytes": 51234, "first": 1000, "last": 1999}],
     "remove": [], "ids": {"orders": "b1c9…"}}

A range is half open and begins where the archive of that subject ended: at the end of the range before,
or of what was lost (deleted by retention before it was archived). `rows` may be fewer than the range is
wide, since offsets have holes. `ids` distinguishes a subject from another one of the same name that was
made later. A compaction has no ranges: it adds files that hold the rows of those it removes. A removed
file stays in _files for KEEP_REMOVED_MS, for readers that chose it before.

Archives of earlier versions have no _files until the next run: `found` looks in both places.

Every SNAPSHOT_EVERY commits the state is written as a snapshot, and the commits that it covers are
deleted, so the folder and the time to open it do not grow with the number of runs. The state changes only
in `State.apply`, when it is loaded and when it is written.

The format's version is in every commit. A newer one is refused. A change that old readers cannot
follow raises VERSION; `_commit_of` and `_snapshot_of` then read both.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kumquat.spark.errors import ConnectorError
from kumquat.spark.pipelines.common.durable import (
    PARTIAL,
    read_json,
    sync,
    write_json,
    write_new_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = 1
COMMITS = "_commits"
FILES = "_files"
STAGING = "_staging"
REPLACED = "_replaced"
LOCK = "_lock"
SNAPSHOT_EVERY = 32
KEEP_REMOVED_MS = 3_600_000
LOAD_ATTEMPTS = 5
_COMMIT = re.compile(r"([0-9]{20})\.json")
_SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot\.json")
_SUFFIX = ".parquet"
_DATA = re.compile(r"[0-9]{20}-(?:[0-9a-f]{8}-)?[0-9]{4,}\.parquet")
"""The oldest archives have files without the token in the middle."""

Range = tuple[int, int]


@dataclass(frozen=True)
class ArchiveFile:
    path: str
    """Below the archive's folder."""
    rows: int
    bytes: int
    first: int
    last: int

    @property
    def subject(self) -> str:
        return self.path.split("/")[0].removeprefix("subject=")

    @property
    def day(self) -> str:
        return self.path.split("/")[1].removeprefix("day=")


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
                f"commit {commit.number} of the archive goes on with {subject} at {start}, but the "
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


def stored(folder: Path, path: str) -> Path:
    """Where a run puts the file of this name. It has no suffix there, so that a reader that looks for
    *.parquet in every folder does not find it twice."""
    return folder / FILES / path.removesuffix(_SUFFIX)


def found(folder: Path, path: str) -> Path:
    place = stored(folder, path)
    return place if place.exists() else folder / path


def leftovers(folder: Path, state: State) -> list[str]:
    """The files that no commit has. A ConnectorError when commits or files are lost.
    The caller must hold the lock."""
    there = {path.relative_to(folder).as_posix() for path in shown_files(folder)}
    there |= _stored_files(folder)
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


def is_data(name: str) -> bool:
    """Only what a run of ours can have written: other files are left alone."""
    return _DATA.fullmatch(name) is not None


def shown_files(folder: Path) -> Iterator[Path]:
    """What readers see that do not know of commits."""
    for path in folder.glob("subject=*/day=*/*.parquet"):
        if is_data(path.name):
            yield path


def _stored_files(folder: Path) -> set[str]:
    files = folder / FILES
    names = (
        path.relative_to(files).as_posix() + _SUFFIX for path in files.glob("subject=*/day=*/*")
    )
    return {name for name in names if is_data(name.rpartition("/")[2])}


def _range(pair: Any) -> Range:
    start, end = pair
    return int(start), int(end)
