"""The manifest of the schedule: which files count, and how far the log has been brought into them.

    manifest: magic "KQM1" 4, version 2, filled 8, delivered until: due 8 and schedule id 8, number of files
              4, of subjects with pending messages 4, of remembered cancels 4, of those done 4;
              a file: from 8, to 8, number of its name 4, entries 8, size 8, CRC of its footer 4;
              pending: subject id 4, messages 8;
              remembered: subject id 4, until 8, length of the id 2, the id;
              done: schedule id 8;
              CRC-32C of all before 4

- `filled`: all that frames of the log below it park, cancel and deliver is in the files.
- `delivered_until`: (due, schedule id); every entry of the files up to it is delivered or cancelled.
- `done`: entries of the files behind it that are delivered too.
- `remembered`: cancels that came before the message with their id, and until when they hold.

It is replaced as a whole, atomically, so it is always of one moment. The order of a change is: write the
new file, save the manifest, unlink the files that it no longer names. So a file that no manifest names is
a leftover, and `open_files` removes it. A manifest is saved before the first file is: a folder with
schedule files and without a manifest has lost it.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from crc32c import crc32c

from core.errors import StartError
from core.logs.files import Files, write_file_atomically
from core.logs.parked import SCHEDULE_ID
from core.wheel.schedule_file import ScheduleFile
from core.wheel.schedule_format import (
    SUFFIX,
    TEMPORARY,
    ScheduleDamaged,
    ScheduleLost,
    file_name,
)

log = logging.getLogger("kumquat.schedule")

T = TypeVar("T")

_PAUSES = (0.1, 0.2, 0.4, 0.8)
"""Seconds between tries to read at a start."""
VERSION = 1
MAGIC = b"KQM1"
MANIFEST = "manifest"

_HEAD = struct.Struct(">4sHqqqIIII")
assert _HEAD.size == 46
_FILE = struct.Struct(">qqIQQI")
assert _FILE.size == 40
_PENDING = struct.Struct(">Iq")
_REMEMBERED = struct.Struct(">IqH")


class Listed(NamedTuple):
    """A schedule file as the manifest knows it."""

    stretch: tuple[int, int]
    number: int
    entries: int
    """Messages in it; tombstones are not counted."""
    size: int
    crc: int

    @property
    def name(self) -> str:
        return file_name(self.stretch, self.number)

    @classmethod
    def of(cls, file: ScheduleFile) -> Listed:
        return cls(file.stretch, file.number, file.entry_count, file.size, file.crc)


class Lost(NamedTuple):
    """A listed file that is missing or damaged. What its stretch of the log holds can be filled anew."""

    listed: Listed
    reason: str


@dataclass
class Manifest:
    filled: int = 0
    delivered_until: tuple[int, int] = (-1, -1)
    files: list[Listed] = field(default_factory=list)
    """By stretch; they do not overlap."""
    pending: dict[int, int] = field(default_factory=dict)
    """Messages to be delivered, by subject id."""
    remembered: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """Until when, by subject id and delay id."""
    done: set[int] = field(default_factory=set)


def load(files: Files, directory: Path) -> Manifest:
    """What the folder's manifest says. A folder that is missing or empty gets both, durably. ScheduleLost
    when the manifest is missing though there are schedule files, or when it is damaged; StartError when
    a newer broker wrote it."""
    path = directory / MANIFEST
    if files.exists(directory) and files.exists(path):
        return parse(path, _content(files, path))
    files.mkdir(directory)
    files.fsync_dir(directory.parent)
    orphans = [name for name in files.listdir(directory) if name.endswith(SUFFIX)]
    if orphans:
        raise ScheduleLost(
            f"{path} is missing, but there are {len(orphans)} schedule files. {_WHAT_TO_DO}"
        )
    manifest = Manifest()
    save(files, directory, manifest)
    return manifest


_WHAT_TO_DO = (
    "It says which messages for later are still to be delivered. Bring it back from a backup; or move "
    "the folder away: then what the log still holds is scheduled from it, and all that is older is lost"
)


def save(files: Files, directory: Path, manifest: Manifest) -> None:
    """Durable when it returns."""
    write_file_atomically(files, directory / MANIFEST, pack(manifest))


def open_files(
    files: Files, directory: Path, manifest: Manifest
) -> tuple[list[ScheduleFile], list[Lost]]:
    """The listed files, open, in order; and those that are missing or not the ones that were listed.
    Leftovers are removed. StartError when the disk cannot be read: that may pass, nothing is given up."""
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
            "good, move it away: what the log still has of it is filled anew"
        ) from error
    except ScheduleDamaged as damage:
        return Lost(listed, f"{damage}; it held {listed.entries} messages")
    if Listed.of(file) == listed:
        return file
    file.close()
    return Lost(listed, f"{path}: expected {listed}, found {Listed.of(file)}")


def _patiently(work: Callable[[], T]) -> T:
    """What the disk or the machine refuses is asked for again, for a second and a half."""
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


def pack(manifest: Manifest) -> bytes:
    sizes = map(len, (manifest.files, manifest.pending, manifest.remembered, manifest.done))
    parts = [_HEAD.pack(MAGIC, VERSION, manifest.filled, *manifest.delivered_until, *sizes)]
    parts += [_FILE.pack(*stretch, *rest) for stretch, *rest in manifest.files]
    parts += [_PENDING.pack(*one) for one in manifest.pending.items()]
    for (subject_id, delay_id), until in manifest.remembered.items():
        parts += (_REMEMBERED.pack(subject_id, until, len(delay_id)), delay_id)
    parts += map(SCHEDULE_ID.pack, sorted(manifest.done))
    data = b"".join(parts)
    return data + crc32c(data).to_bytes(4, "big")


def parse(path: Path, data: bytes) -> Manifest:
    """ScheduleLost when it is damaged, StartError when a newer broker wrote it."""
    if len(data) < _HEAD.size + 4:
        raise ScheduleLost(f"{path} is damaged: {len(data)} bytes. {_WHAT_TO_DO}")
    crc, found = int.from_bytes(data[-4:], "big"), crc32c(data[:-4])
    if data[:4] != MAGIC or crc != found:
        raise ScheduleLost(
            f"{path} is damaged: expected magic {MAGIC.hex()} and CRC {crc:#010x}, "
            f"found {data[:4].hex()} and {found:#010x}. {_WHAT_TO_DO}"
        )
    _, version, filled, due, sid, *sizes = _HEAD.unpack_from(data)
    if version > VERSION:
        raise StartError(
            f"{path}: format version {version}, this broker knows {VERSION}: "
            "start the newer broker that wrote it"
        )
    manifest = Manifest(filled, (due, sid))
    _parse_lists(manifest, data, *sizes)
    return manifest


def _parse_lists(
    manifest: Manifest, data: bytes, file_count: int, pending: int, remembered: int, done: int
) -> None:
    at = _HEAD.size
    end = at + file_count * _FILE.size
    for begin, until, *rest in _FILE.iter_unpack(data[at:end]):
        manifest.files.append(Listed((begin, until), *rest))
    at, end = end, end + pending * _PENDING.size
    manifest.pending.update(_PENDING.iter_unpack(data[at:end]))
    at = end
    for _ in range(remembered):
        subject_id, until, length = _REMEMBERED.unpack_from(data, at)
        at += _REMEMBERED.size
        manifest.remembered[subject_id, data[at : at + length]] = until
        at += length
    end = at + done * SCHEDULE_ID.size
    manifest.done.update(sid for (sid,) in SCHEDULE_ID.iter_unpack(data[at:end]))
