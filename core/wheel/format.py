"""What lies in the folder `schedule/`, byte by byte. Format version 2; big-endian throughout.

    00000000000000000000-00000000000004096000-0.schedule    what was parked in that stretch of the log
    manifest, manifest.copy                                 which files count (files/manifest.py), twice

A *schedule file* is filled from one stretch [from, to) of the message log, for all hours and subjects at
once, so that it costs one sync. It never changes; neighbours are merged into larger ones
(files/writing/merge.py). The last number of its name distinguishes files of the same stretch. When the
log no longer has the stretch, the schedule file is the only place that holds these messages.

What belongs to one hour (due // 3,600,000) and one subject is a *row*. Rows are of two kinds:

    MESSAGE     parked messages
    TOMBSTONE   messages of strictly older files that are finished: cancelled, moved or delivered. It is
                never about an entry of the same file

A file is, one behind the other:

    records   parked records as they lay in the log (messages/parked.py), in the order of the tables
    tables    32 an entry: due 8, schedule id 8, offset of its record in this file 8, length of the record 4
              (bit 31, NAMED: it has a delay id; bit 30, REFILED: `due` is not when it is due, that is in
              the record, see schedule.py), subject id 4. For a tombstone offset and length are 0.
              All tables of kind MESSAGE, then those of TOMBSTONE; by hour, subject, due, schedule id
    rows      20 each: hour 4, subject id 4, first entry 8 (counted within its kind), entries 4; in the
              order of the tables
    ledger    16 a row: subject id 4, hour 4, entries before it 8. Kind MESSAGE, then TOMBSTONE, each by
              subject, hour; `before` sums up in this order. So a count by subject takes two searches
    names     46 each: subject id 4, BLAKE2b-64 of the delay id 8, schedule id 8, due 8, until when it is
              kept 8, status 1, length of the id 1, where in `ids` it begins 8. By subject, hash, id
    ids       delay ids, UTF-8
    fences    20 a block: CRC-32C of the block 4, its first 16 bytes. For tables, rows, ledger, names, ids
    footer    96, see FOOTER below: stretch, counts, hours, CRC-32C of the fences, CRC-32C of itself

The five sections before the fences are cut into *blocks* of as many whole items as fit 64 KiB. A block is
read and checked as a whole, and found by its fence. Only fences are held in memory. The footer's CRC covers
the fences, a fence covers its block, and each record has its own CRC: every byte is checked.

If several names in a file have the same id, only the newest is kept, but for as long as any of them would
have been. Else, when the newer name is dropped with its hour, what an older file says would count again. So
the name of a message that was moved to an earlier time is kept until its old time.

Times are ms since the epoch, from 0 on; an hour fits 4 bytes.

Version 1 had no REFILED. To change the format: raise VERSION, keep reading the old one in files/file.py,
and say here what changed.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from kumquat.core.errors import CorruptMessage, StartError

VERSION = 2
MAGIC = b"KQS1"
SUFFIX = ".schedule"
TEMPORARY = ".tmp"

HOUR_MS = 3_600_000
LATEST_DUE = (1 << 32) * HOUR_MS - 1
"""The last time whose hour fits 4 bytes."""
LONGEST_ID = 255
"""Bytes of a delay id: its length has one byte."""
BLOCK = 64 << 10

MESSAGE = 0
TOMBSTONE = 1
KIND_NAMES = {MESSAGE: "messages", TOMBSTONE: "tombstones"}

PENDING = 0
"""Status of a name: it was parked, and may have been delivered since. The other values are the outcomes
of a cancel, see core/logs/messages/parked.py."""

ENTRY = struct.Struct(">qqqII")
ENTRY_SIZE = ENTRY.size
assert ENTRY_SIZE == 32
NAMED = 1 << 31
REFILED = 1 << 30
LENGTH = REFILED - 1
ROW = struct.Struct(">IIQI")
assert ROW.size == 20
ROW_KEY = struct.Struct(">II")
LEDGER = struct.Struct(">IIQ")
assert LEDGER.size == 16
NAME = struct.Struct(">I8sqqqBBQ")
assert NAME.size == 46
NAME_KEY = struct.Struct(">I8s")
DUE = struct.Struct(">q")
FENCE = struct.Struct(">I16s")
assert FENCE.size == 20
FOOTER = struct.Struct(">4sHxxqqQQQQQQQIIII")
assert FOOTER.size == 96


class ScheduleDamaged(CorruptMessage):
    """Bytes of a schedule file are not what was written. They are never used."""

    def __init__(self, path: Path, place: str, expected: object, found: object) -> None:
        super().__init__(f"{path}: {place}: expected {expected}, found {found}")
        self.path = path


class ScheduleClosed(Exception):
    """The file was closed while it was in use: it was merged or dropped. Look at the list of files
    again."""


class Parked(NamedTuple):
    due: int
    schedule_id: int
    subject_id: int
    record: bytes | memoryview
    """The whole parked record, as in the log."""


class Tombstone(NamedTuple):
    due: int
    schedule_id: int
    subject_id: int


class Name(NamedTuple):
    subject_id: int
    delay_id: bytes
    schedule_id: int
    due: int
    status: int
    keep: int = 0
    """It is dropped with the hour of this time, or of its due time if that is later. A name that was read
    has the later one here."""


class Row(NamedTuple):
    hour: int
    subject_id: int
    kind: int
    first: int
    """Its first entry, counted over all tables of the file."""
    entries: int


class Footer(NamedTuple):
    """The fields of a valid footer, in the order of the format, without magic and checksum."""

    version: int
    begin: int
    end: int
    records: int
    """Bytes of records. The numbers up to `ids` count items."""
    parked: int
    tombstones: int
    parked_rows: int
    tombstone_rows: int
    names: int
    ids: int
    first_hour: int
    last_hour: int
    fences_crc: int


def hour_of(due: int) -> int:
    return due // HOUR_MS


def name_hash(delay_id: bytes) -> bytes:
    return blake2b(delay_id, digest_size=8).digest()


def file_name(stretch: tuple[int, int], number: int) -> str:
    return f"{stretch[0]:020d}-{stretch[1]:020d}-{number}{SUFFIX}"


def number_of(name: str) -> int:
    """The last number of a schedule file's name; -1 when it has none."""
    number = name.removesuffix(SUFFIX).rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def pack_footer(footer: Footer) -> bytes:
    data = FOOTER.pack(MAGIC, *footer, 0)[:-4]
    return data + crc32c(data).to_bytes(4, "big")


def parse_footer(path: Path, data: bytes) -> tuple[Footer, int]:
    """The footer and its CRC, which identifies the content of the whole file."""
    if len(data) < FOOTER.size:
        raise ScheduleDamaged(path, "footer", f"{FOOTER.size} bytes", len(data))
    magic, *fields, crc = FOOTER.unpack(data)
    if magic != MAGIC:
        raise ScheduleDamaged(path, "footer", f"magic {MAGIC.hex()}", magic.hex())
    found = crc32c(data[:-4])
    if found != crc:
        raise ScheduleDamaged(path, "footer", f"CRC {crc:#010x}", f"{found:#010x}")
    footer = Footer(*fields)
    if footer.version > VERSION:
        raise StartError(
            f"{path}: format version {footer.version}, this broker knows {VERSION}: "
            "start the newer broker that wrote it"
        )
    return footer, crc
