"""What is in an archive's folder, and which files count: names, places, and the form of a commit.

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
deleted, so the folder and the time to open it do not grow with the number of runs: see commits.py.

The format's version is in every commit. A newer one is refused. A change that old readers cannot
follow raises VERSION; commits.py must then read both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = 1
COMMITS = "_commits"
FILES = "_files"
STAGING = "_staging"
REPLACED = "_replaced"
LOCK = "_lock"
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


def stored(folder: Path, path: str) -> Path:
    """Where a run puts the file of this name. It has no suffix there, so that a reader that looks for
    *.parquet in every folder does not find it twice."""
    return folder / FILES / path.removesuffix(_SUFFIX)


def found(folder: Path, path: str) -> Path:
    place = stored(folder, path)
    return place if place.exists() else folder / path


def is_data(name: str) -> bool:
    """Only what a run of ours can have written: other files are left alone."""
    return _DATA.fullmatch(name) is not None


def shown_files(folder: Path) -> Iterator[Path]:
    """What readers see that do not know of commits."""
    for path in folder.glob("subject=*/day=*/*.parquet"):
        if is_data(path.name):
            yield path


def stored_files(folder: Path) -> set[str]:
    files = folder / FILES
    names = (
        path.relative_to(files).as_posix() + _SUFFIX for path in files.glob("subject=*/day=*/*")
    )
    return {name for name in names if is_data(name.rpartition("/")[2])}
