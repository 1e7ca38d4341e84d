"""The bytes of the manifest of the schedule; what it means is in manifest.py. Big-endian.

    version 2:  magic "KQM1" 4, version 2, generation 8, filled 8, delivered until: due 8 and schedule id 8,
                done until 8, number of files 4, of subjects with pending messages 4, of remembered cancels
                and moves 4, of those done 4;
                a file: from 8, to 8, number of its name 4, entries 8, size 8, CRC of its footer 4;
                pending: subject id 4, messages 8;
                remembered: subject id 4, until 8, new due time 8 (-1: it cancels), length of the id 2,
                the id;
                done: schedule id 8;
                CRC-32C of all before 4
    version 1:  the same without generation, done until and new due times; it can still be read

Its end follows from its numbers, so bytes behind it are ignored.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from kumquat.core.errors import StartError
from kumquat.core.logs.messages.parked import SCHEDULE_ID
from kumquat.core.wheel.files.file import ScheduleFile
from kumquat.core.wheel.format import ScheduleDamaged, file_name
from kumquat.core.wheel.schedule.model import Remembered

VERSION = 2
MAGIC = b"KQM1"

_START = struct.Struct(">4sH")
_HEAD_1 = struct.Struct(">qqqIIII")
assert _START.size + _HEAD_1.size == 46
_HEAD = struct.Struct(">QqqqqIIII")
_FILE = struct.Struct(">qqIQQI")
assert _FILE.size == 40
_PENDING = struct.Struct(">Iq")
_REMEMBERED_1 = struct.Struct(">IqH")
_REMEMBERED = struct.Struct(">IqqH")
_CRC_SIZE = 4


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


@dataclass
class Manifest:
    filled: int = 0
    delivered_until: tuple[int, int] = (-1, -1)
    files: list[Listed] = field(default_factory=list)
    """By stretch; stretches do not overlap."""
    pending: dict[int, int] = field(default_factory=dict)
    """Messages to be delivered, by subject id."""
    remembered: dict[tuple[int, bytes], Remembered] = field(default_factory=dict)
    """By subject id and delay id."""
    done: set[int] = field(default_factory=set)
    done_until: int = -1
    """None of those in `done` is due later."""
    generation: int = 0
    """The newer of two manifests has the larger one."""
    rebuilt: bool = field(default=False, compare=False)
    """The manifest was lost, and made again from the schedule files: see rebuild.py."""


def pack(manifest: Manifest) -> bytes:
    sizes = map(len, (manifest.files, manifest.pending, manifest.remembered, manifest.done))
    places = (manifest.filled, *manifest.delivered_until, manifest.done_until)
    parts = [_START.pack(MAGIC, VERSION), _HEAD.pack(manifest.generation, *places, *sizes)]
    parts += [_FILE.pack(*stretch, *rest) for stretch, *rest in manifest.files]
    parts += [_PENDING.pack(*one) for one in manifest.pending.items()]
    for (subject_id, delay_id), (until, new_due) in manifest.remembered.items():
        due = -1 if new_due is None else new_due
        parts += (_REMEMBERED.pack(subject_id, until, due, len(delay_id)), delay_id)
    parts += map(SCHEDULE_ID.pack, sorted(manifest.done))
    data = b"".join(parts)
    return data + crc32c(data).to_bytes(_CRC_SIZE, "big")


def parse(path: Path, data: bytes) -> Manifest:
    """ScheduleDamaged: it is not whole. StartError: a newer broker wrote it."""
    if len(data) < _START.size or data[:4] != MAGIC:
        raise ScheduleDamaged(path, "byte 0", f"magic {MAGIC.hex()}", data[:4].hex())
    version = int(_START.unpack_from(data)[1])
    if version > VERSION and crc32c(data[:-_CRC_SIZE]) == int.from_bytes(data[-_CRC_SIZE:], "big"):
        raise StartError(
            f"{path}: format version {version}, this broker knows {VERSION}: "
            "start the newer broker that wrote it"
        )
    try:
        manifest, end = _parse(data, version)
    except (struct.error, ValueError) as error:
        raise ScheduleDamaged(path, "lists", "as many as the head says", str(error)) from error
    crc, found = int.from_bytes(data[end : end + _CRC_SIZE], "big"), crc32c(data[:end])
    if crc != found or len(data) < end + _CRC_SIZE:
        raise ScheduleDamaged(path, f"byte {end}", f"CRC {crc:#010x}", f"{found:#010x}")
    return manifest


def _parse(data: bytes, version: int) -> tuple[Manifest, int]:
    """What it says, and where its checksum must be."""
    at = _START.size
    if version == 1:
        filled, due, schedule_id, *sizes = _HEAD_1.unpack_from(data, at)
        manifest, at = Manifest(filled, (due, schedule_id)), at + _HEAD_1.size
    else:
        generation, filled, due, schedule_id, done_until, *sizes = _HEAD.unpack_from(data, at)
        manifest = Manifest(
            filled, (due, schedule_id), done_until=done_until, generation=generation
        )
        at += _HEAD.size
    files, pending, remembered, done = sizes
    end = at + files * _FILE.size
    for begin, until, *rest in _FILE.iter_unpack(data[at:end]):
        manifest.files.append(Listed((begin, until), *rest))
    at, end = end, end + pending * _PENDING.size
    manifest.pending.update(_PENDING.iter_unpack(data[at:end]))
    at = end
    for _ in range(remembered):
        at = _parse_remembered(manifest, data, at, version)
    end = at + done * SCHEDULE_ID.size
    manifest.done.update(schedule_id for (schedule_id,) in SCHEDULE_ID.iter_unpack(data[at:end]))
    return manifest, end


def _parse_remembered(manifest: Manifest, data: bytes, at: int, version: int) -> int:
    if version == 1:
        subject_id, until, length = _REMEMBERED_1.unpack_from(data, at)
        due, at = -1, at + _REMEMBERED_1.size
    else:
        subject_id, until, due, length = _REMEMBERED.unpack_from(data, at)
        at += _REMEMBERED.size
    delay_id = data[at : at + length]
    manifest.remembered[subject_id, delay_id] = Remembered(until, None if due < 0 else due)
    return at + int(length)
