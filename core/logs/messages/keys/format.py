"""What lies in a file of keys, byte by byte. Format version 1; big-endian throughout.

`00000000000000000000.keys` stands beside the sealed segment of that name and holds, for each subject
that is indexed, one entry for each message with a key (an empty key is one, null is none):

    head    magic "KQK1" 4, format version 2, zero 2, segment base 8, segment end 8, hash probe 8, rows 4,
            CRC-32C of the rows 4, CRC-32C of the 40 bytes before 4
    rows    one for each subject, sorted by subject id: subject id 4, state 4, CRC-32C of the subject's
            entries in the `.index` file 4, pages 4, first page 8, entries 8
    pages   of 4096 bytes: CRC-32C of the rest of the page 4, subject id 4, number of the page within
            its subject 4, entries in it 4, then the entries; zeros behind the last one
    entry   hash of the key 8, sequence 8. All entries of a subject are sorted, through all its pages

Sorted bytes are sorted numbers, so entries are compared as they stand. All that a look-up uses is checked:
the head, the rows, each page that it reads. What was indexed is checked too: the segment must have the same
base and end, and the subject the same batches (the CRC in its row is that of its row in the `.index` file).

State COMPLETE: every message of the subject in this segment that has a key has an entry. State SCAN: a
batch could not be opened when the file was made; there are no pages, and the segment is scanned for
this subject.

The hash is StringZilla's, 64 bits. Two keys may have the same: whoever looks one up reads the messages
and compares. Another version or machine might hash otherwise, so the head has a *probe*, the hash over
hashes of texts of many lengths: where it differs, the file is made again.

To change the format: raise VERSION. A file of another version counts as missing, and is made again.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from crc32c import crc32c
from stringzilla import hash as _hash

MAGIC: Final = b"KQK1"
VERSION: Final = 1

COMPLETE: Final = 0
SCAN: Final = 1

_HEAD = struct.Struct(">4sHHqqQII")
_CRC = struct.Struct(">I")
HEAD_SIZE: Final = _HEAD.size + _CRC.size
assert HEAD_SIZE == 44
_ROW = struct.Struct(">IIIIqq")
ROW_SIZE: Final = _ROW.size
assert ROW_SIZE == 32
PAGE_SIZE: Final = 4096
_PAGE = struct.Struct(">III")
_PAGE_HEAD = _CRC.size + _PAGE.size
assert _PAGE_HEAD == 16
ENTRY: Final = struct.Struct(">Qq")
ENTRY_SIZE: Final = ENTRY.size
assert ENTRY_SIZE == 16
PER_PAGE: Final = (PAGE_SIZE - _PAGE_HEAD) // ENTRY_SIZE
assert PER_PAGE == 255

Hash = Callable[[bytes], int]
"""64 bits of a key."""


class KeysDamaged(Exception):
    """The file is missing, cut, of another version or does not match its checksums: make it again."""


class Row(NamedTuple):
    subject_id: int
    state: int
    indexed: int
    """CRC of the entries in the `.index` file that this was made from."""
    pages: int
    first_page: int
    entries: int


def hash_key(key: bytes) -> int:
    return int(_hash(key))


def probe(hashed: Hash) -> int:
    """Differs where another version of the hash gives other numbers."""
    text = bytes(range(256)) * 2
    return hashed(b"".join(hashed(text[:n]).to_bytes(8, "big") for n in range(0, 300, 7)))


class Rows:
    """The rows of a file, to be searched by subject."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.count = len(data) // ROW_SIZE
        self.pages_at = HEAD_SIZE + len(data)
        """Where the first page begins in the file."""

    def at(self, i: int) -> Row:
        return Row(*_ROW.unpack_from(self._data, i * ROW_SIZE))

    def find(self, subject_id: int) -> Row | None:
        i = bisect_left(range(self.count), subject_id, key=lambda k: self.at(k).subject_id)
        row = self.at(i) if i < self.count else None
        return row if row is not None and row.subject_id == subject_id else None


def pack_start(base: int, end: int, probed: int, rows: Iterable[Row]) -> bytes:
    """The head and the rows."""
    packed = b"".join(_ROW.pack(*row) for row in rows)
    count, crc = len(packed) // ROW_SIZE, crc32c(packed)
    head = _HEAD.pack(MAGIC, VERSION, 0, base, end, probed, count, crc)
    return head + _CRC.pack(crc32c(head)) + packed


def parse_head(data: bytes, base: int, end: int, probed: int) -> tuple[int, int]:
    """How many rows there are, and their CRC, if this is the head of a file about that segment."""
    if len(data) < HEAD_SIZE:
        raise KeysDamaged(f"{len(data)} bytes, the head alone is {HEAD_SIZE}")
    magic, version, _, found_base, found_end, found_probe, count, crc = _HEAD.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        raise KeysDamaged(f"expected {MAGIC!r} version {VERSION}, found {magic!r} {version}")
    (head_crc,) = _CRC.unpack_from(data, _HEAD.size)
    if head_crc != crc32c(data[: _HEAD.size]):
        raise KeysDamaged(f"the head does not match its CRC {head_crc:#010x}")
    if (found_base, found_end) != (base, end):
        raise KeysDamaged(f"it is about positions {found_base} to {found_end}, not {base} to {end}")
    if found_probe != probed:
        raise KeysDamaged("it was made with another hash")
    return int(count), int(crc)


def read_bounds(data: bytes) -> tuple[int, int]:
    """The base and the end of the segment that a file says it is about."""
    if len(data) < HEAD_SIZE:
        raise KeysDamaged(f"{len(data)} bytes, the head alone is {HEAD_SIZE}")
    fields = _HEAD.unpack_from(data)
    return fields[3], fields[4]


def parse_rows(data: bytes, crc: int) -> Rows:
    if crc32c(data) != crc:
        raise KeysDamaged(f"the rows do not match their CRC {crc:#010x}")
    return Rows(data)


def pack_page(subject_id: int, number: int, entries: bytes) -> bytes:
    """`entries`: PER_PAGE of them at most."""
    page = _PAGE.pack(subject_id, number, len(entries) // ENTRY_SIZE) + entries
    page = page.ljust(PAGE_SIZE - _CRC.size, b"\0")
    return _CRC.pack(crc32c(page)) + page


def parse_page(data: bytes, subject_id: int, number: int) -> bytes:
    """The entries of a page."""
    if len(data) != PAGE_SIZE:
        raise KeysDamaged(f"page {number} of subject {subject_id} has {len(data)} bytes")
    (crc,) = _CRC.unpack_from(data)
    if crc != crc32c(memoryview(data)[_CRC.size :]):
        raise KeysDamaged(f"page {number} of subject {subject_id} does not match its CRC {crc:#x}")
    found = _PAGE.unpack_from(data, _CRC.size)
    if found[:2] != (subject_id, number) or not 0 < found[2] <= PER_PAGE:
        raise KeysDamaged(f"expected page {number} of subject {subject_id}, found {found}")
    return data[_PAGE_HEAD : _PAGE_HEAD + found[2] * ENTRY_SIZE]
