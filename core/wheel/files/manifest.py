"""The manifest of the schedule: which files count, and up to where the log is in them.

- `filled`: all that frames of the log below it park, cancel and deliver is in the files.
- `delivered_until`: (due, schedule id); every entry of the files up to it is delivered or cancelled.
- `done`: entries of the files behind it that are delivered too; none is due after `done_until`.
- `remembered`: cancels and moves that came before the message with their id, and until when they wait.

There are two copies with the same content (bytes: manifest_format.py), `manifest` and `manifest.copy`. Each
is replaced as a whole, atomically, one after the other. A start takes the newer one of those that are
whole, and writes both again if they differ. So a flipped bit or a power cut costs nothing. If neither is
whole, or both are gone although there are schedule files, the manifest is made from these files
(rebuild.py), with an error in the log: the broker starts.

The order of a change is: write the new file, save the manifest, unlink the files that it no longer names.
So a file that no manifest names is a leftover, and `open_files` removes it. A manifest is saved before the
first file is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from kumquat.core.errors import StartError
from kumquat.core.logs.disk.files import Files, write_file_atomically
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.files.manifest_format import Listed, Manifest, pack, parse
from kumquat.core.wheel.files.rebuild import rebuild
from kumquat.core.wheel.format import SUFFIX, TEMPORARY, ScheduleDamaged

log = logging.getLogger("kumquat.schedule")
T = TypeVar("T")

MANIFEST = "manifest"
COPY = "manifest.copy"

_PAUSES = (0.1, 0.2, 0.4, 0.8)
"""Seconds between attempts to read at a start."""


class Lost(NamedTuple):
    """A listed file that is missing or damaged. It can be filled again while the log has its stretch."""

    listed: Listed
    reason: str


def load(files: Files, directory: Path) -> Manifest:
    """What the manifest of the folder says. A folder that is missing or empty gets both copies, durably.
    StartError: a newer broker wrote it, or it cannot be read at the moment."""
    if not files.exists(directory):
        files.mkdir(directory)
        files.fsync_dir(directory.parent)
    paths = [directory / name for name in (MANIFEST, COPY)]
    found = [_load(files, path) for path in paths if files.exists(path)]
    whole = [manifest for manifest in found if manifest is not None]
    if whole:
        manifest = max(whole, key=lambda one: one.generation)
    elif found or any(name.endswith(SUFFIX) for name in files.listdir(directory)):
        manifest = rebuild(files, directory)
    else:
        manifest = Manifest()
    differ = len(whole) < len(paths) or whole[0] != whole[1]
    if differ and not manifest.rebuilt:  # a rebuilt one is not complete yet
        manifest.generation += 1
        save(files, directory, manifest)
    return manifest


def _load(files: Files, path: Path) -> Manifest | None:
    try:
        return parse(path, _patiently(lambda: _content(files, path)))
    except ScheduleDamaged as damage:
        log.error("one of two copies of the schedule's manifest is damaged: %s", damage)
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error}. Check the disk, start again") from error
    return None


def save(files: Files, directory: Path, manifest: Manifest) -> None:
    """Durable when it returns. OSError: a start may find this manifest or the one before."""
    data = pack(manifest)
    for name in (MANIFEST, COPY):
        write_file_atomically(files, directory / name, data)


def open_files(
    files: Files, directory: Path, manifest: Manifest
) -> tuple[list[ScheduleFile], list[Lost]]:
    """The listed files, open, in order; and those that are missing or not the ones that were listed.
    Leftovers are removed. StartError: the disk cannot be read; that may pass, so nothing is given up."""
    if not manifest.rebuilt:  # until that is saved, the next start may have to make it again
        _remove_leftovers(files, directory, manifest)
    found: list[ScheduleFile] = []
    lost: list[Lost] = []
    try:
        for listed in manifest.files:
            file = _open(files, directory, listed)
            if isinstance(file, Lost):
                log.error("schedule file lost: %s", file.reason)
                lost.append(file)
            else:
                found.append(file)
    except BaseException:
        for file in found:
            file.close()
        raise
    return found, lost


def _open(files: Files, directory: Path, listed: Listed) -> ScheduleFile | Lost:
    path = directory / listed.name
    try:
        file = _patiently(lambda: ScheduleFile(files, path))
    except FileNotFoundError:
        return Lost(listed, f"{path} is missing; it held {listed.entries} messages")
    except OSError as error:
        raise StartError(
            f"{path} cannot be read: {error}. Check the disk and start again; if the file is gone for "
            "good, move it away: what the log still has of it is filled again"
        ) from error
    except ScheduleDamaged as damage:
        return Lost(listed, f"{damage}; it held {listed.entries} messages")
    if Listed.of(file) == listed:
        return file
    file.close()
    return Lost(listed, f"{path}: expected {listed}, found {Listed.of(file)}")


def _patiently(work: Callable[[], T]) -> T:
    """Try again for a second and a half when the disk or the machine refuses."""
    for pause in _PAUSES:
        try:
            return work()
        except FileNotFoundError:
            raise
        except OSError:
            time.sleep(pause)
    return work()


def _remove_leftovers(files: Files, directory: Path, manifest: Manifest) -> None:
    known = {listed.name for listed in manifest.files}
    for name in files.listdir(directory):
        if name.endswith((SUFFIX, TEMPORARY)) and name not in known:
            with suppress(FileNotFoundError):
                files.unlink(directory / name)


def _content(files: Files, path: Path) -> bytes:
    fd = files.open(path, readonly=True)
    try:
        return files.pread(fd, files.size(fd), 0)
    finally:
        files.close(fd)
