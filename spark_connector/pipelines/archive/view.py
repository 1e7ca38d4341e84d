"""The folders `subject=…/day=…` that any Parquet reader may read, at any moment.

Spark, Arrow, DuckDB and others list a folder and read what they find; they do not know of commits. So
these folders hold what the newest commit says: each archived message once.

- Every file of messages has two names for the same data: `_files/…` is where a run puts it and where
  `read_archive` reads it, `subject=…/day=…/….parquet` is what others see. It gets the second name
  after its commit, so a file that no commit has is never seen. (Where the file system has no hard
  links it is copied.)
- When a compaction replaces files, a folder of the day with the new set is made beside it, and the two
  are swapped in one step. A reader that lists the folder finds the old set or the new one, never a part
  of both. The old folder stays as it is for KEEP_LISTED_MS, since a reader may be in the middle of
  listing it.
- A reader that has listed the old set and opens its files after the swap does not find them. It fails with
  an error and must list again. (`read_archive` has no such error: its files stay for an hour.)
- Readers must ignore names that begin with `_`, as Spark and Arrow do; a pattern must do so too:
  `subject=*/day=*/*.parquet`. One that goes through every folder (`**`) finds what a run is writing.
- Where two folders cannot be swapped in one step (NFS, for instance), nothing is put together, and
  the summary says so.

A run that ends between a commit and the swap leaves the old set, which is complete. The next run
begins with `show_all`. It also converts archives of earlier versions, whose files, replaced ones too, have
only the second name.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from kumquat.spark.pipelines.archive.commits import write_commit
from kumquat.spark.pipelines.archive.format import REPLACED, STAGING, is_data, shown_files, stored
from kumquat.spark.pipelines.common.durable import swap, sync

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kumquat.spark.pipelines.archive.commits import Commit, State

KEEP_LISTED_MS = 600_000


def commit_and_show(folder: Path, state: State, commit: Commit) -> None:
    """Returns when the commit is durable and every reader finds what it says."""
    write_commit(folder, state, commit)
    days = {_day(path) for path in [*commit.remove, *(file.path for file in commit.add)]}
    wanted = _by_day(state.files)
    for day in sorted(days):
        _show(folder, day, wanted[day], commit.at_ms)


def show_all(folder: Path, state: State, now_ms: int) -> None:
    """The caller must hold the lock, and no commit may be missing (`leftovers`)."""
    shown = [path.relative_to(folder).as_posix() for path in shown_files(folder)]
    for path in shown:
        if not stored(folder, path).exists():
            _link(folder / path, stored(folder, path))
    wanted = _by_day(state.files)
    for day in sorted({*wanted, *map(_day, shown)}):
        _show(folder, day, wanted[day], now_ms)
    _remove_old_folders(folder, now_ms)


def can_swap(folder: Path) -> bool:
    """Whether two folders can change places in one step, tried out."""
    place = folder / STAGING / secrets.token_hex(4)
    one, other = place / "one", place / "other"
    one.mkdir(parents=True)
    other.mkdir()
    try:
        swap(one, other)
    except OSError:
        return False
    finally:
        shutil.rmtree(place)
    return True


def _show(folder: Path, day: str, wanted: set[str], now_ms: int) -> None:
    place = folder / day
    shown = {path.name for path in place.glob("*.parquet") if is_data(path.name)}
    if shown <= wanted:
        for name in sorted(wanted - shown):
            _link(stored(folder, f"{day}/{name}"), place / name)
    else:
        _swap_in(folder, day, wanted, now_ms)
    if shown != wanted:
        for changed in (place, place.parent, folder):
            sync(changed)


def _swap_in(folder: Path, day: str, wanted: set[str], now_ms: int) -> None:
    fresh = folder / REPLACED / f"{now_ms:013}-{secrets.token_hex(4)}" / day
    fresh.mkdir(parents=True)
    for name in sorted(wanted):
        _link(stored(folder, f"{day}/{name}"), fresh / name)
    sync(fresh)
    try:
        swap(fresh, folder / day)
    except OSError:
        # An archive of an earlier version, where two folders cannot be swapped: its replaced files are
        # counted twice until they are gone.
        _remove_one_by_one(folder / day, wanted)
        shutil.rmtree(fresh)
        for name in sorted(wanted):
            _link(stored(folder, f"{day}/{name}"), folder / day / name)
    else:
        _bring_back_foreign(fresh, folder / day)


def _remove_one_by_one(place: Path, wanted: set[str]) -> None:
    for path in [*place.glob("*.parquet")]:
        if is_data(path.name) and path.name not in wanted:
            path.unlink()


def _remove_old_folders(folder: Path, now_ms: int) -> None:
    for parent in (folder / REPLACED).glob("*-*"):
        written = parent.name.partition("-")[0]
        days = [*parent.glob("subject=*/day=*")]
        for old in days:  # at once: a run may have ended between the swap and this
            _bring_back_foreign(old, folder / old.relative_to(parent))
        if not written.isdecimal() or now_ms - int(written) < KEEP_LISTED_MS:
            continue
        for old in days:
            for path in [*old.iterdir()]:
                if is_data(path.name):
                    path.unlink()
        for emptied in [*parent.glob("subject=*/day=*"), *parent.glob("subject=*"), parent]:
            with suppress(OSError):  # it has files that are not ours
                emptied.rmdir()


def _bring_back_foreign(old: Path, place: Path) -> None:
    """Files that are not ours stay in the folder."""
    for path in [*old.iterdir()]:
        if not is_data(path.name) and not (place / path.name).exists():
            path.rename(place / path.name)


def _by_day(files: Mapping[str, object] | Iterable[str]) -> defaultdict[str, set[str]]:
    days: defaultdict[str, set[str]] = defaultdict(set)
    for path in files:
        days[_day(path)].add(path.rpartition("/")[2])
    return days


def _day(path: str) -> str:
    return path.rpartition("/")[0]


def _link(path: Path, name: Path) -> None:
    """The file under another name, which appears only when it is complete."""
    name.parent.mkdir(parents=True, exist_ok=True)
    if name.exists():
        return
    try:
        os.link(path, name)
    except FileExistsError:
        return
    except OSError:  # no links on this file system
        partial = name.with_name(f".{name.name}.{secrets.token_hex(4)}")
        shutil.copyfile(path, partial)
        sync(partial)
        partial.replace(name)
