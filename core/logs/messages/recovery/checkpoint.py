"""The checkpoint of the active segment: which of its frames are synced, and where each begins.

It is appended to after each sync and is never synced itself. A chunk is only about frames that were on disk
before the chunk was written. So every chunk that is whole tells the truth, and a lost or torn chunk costs
nothing but a longer look at the log. Recovery uses it for two things:

- its synced end is the border between a tear and corruption, up to date even after kill -9;
- its rows say where frames begin, so that recovery can step over a frame whose header is damaged, and knows
  which subject it belonged to. (The log is never searched for a magic: a message's value could forge one.)

    chunk: magic "KQC1" 4, row count 4, synced end 8, flags 4 (1: the preamble is complete), CRC-32C 4 of
           the 20 bytes before and the rows
    row:   position 8, base sequence 8, subject id 4, payload length 4, sequences 4, kind 1, zero 3
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from kumquat.core.logs.disk.files import Files
from kumquat.core.logs.disk.unreadable import read_around
from kumquat.core.logs.messages.format import HEADER_SIZE

log = logging.getLogger("kumquat.log")

MAGIC = b"KQC1"
_HEAD = struct.Struct(">4sIqI")
_CRC = struct.Struct(">I")
_HEAD_SIZE = _HEAD.size + _CRC.size
assert _HEAD_SIZE == 24
ROW = struct.Struct(">qqIIIB3x")
assert ROW.size == 32
PREAMBLE_COMPLETE = 1
_MOST_UNWRITTEN = 1 << 20


class Row(NamedTuple):
    position: int
    base_sequence: int
    subject_id: int
    length: int
    sequences: int
    kind: int

    @property
    def end(self) -> int:
        return self.position + HEADER_SIZE + self.length


class Checkpoint(NamedTuple):
    """What a checkpoint file says, as far as it is whole."""

    rows: bytes
    synced_end: int
    preamble_complete: bool
    size: int
    """How many bytes of the file are good: the next chunk goes there."""

    def row_at(self, position: int) -> Row | None:
        """The row of the frame at `position`, else of the first one behind it."""
        low, high = 0, len(self.rows) // ROW.size
        while low < high:
            middle = (low + high) // 2
            if ROW.unpack_from(self.rows, middle * ROW.size)[0] < position:
                low = middle + 1
            else:
                high = middle
        if low * ROW.size >= len(self.rows):
            return None
        return Row(*ROW.unpack_from(self.rows, low * ROW.size))


NONE = Checkpoint(b"", 0, False, 0)


def pack_chunk(rows: bytes, synced_end: int, preamble_complete: bool) -> bytes:
    flags = PREAMBLE_COMPLETE if preamble_complete else 0
    head = _HEAD.pack(MAGIC, len(rows) // ROW.size, synced_end, flags)
    return head + _CRC.pack(crc32c(rows, crc32c(head))) + rows


def parse(data: bytes) -> Checkpoint:
    """All chunks up to the first that is not whole."""
    rows: list[memoryview] = []
    synced_end, complete, at = 0, False, 0
    view = memoryview(data)
    while len(data) - at >= _HEAD_SIZE:
        magic, count, synced, flags = _HEAD.unpack_from(data, at)
        end = at + _HEAD_SIZE + count * ROW.size
        if magic != MAGIC or end > len(data):
            break
        (crc,) = _CRC.unpack_from(data, at + _HEAD.size)
        body = view[at + _HEAD_SIZE : end]
        if crc32c(body, crc32c(view[at : at + _HEAD.size])) != crc:
            break
        rows.append(body)
        synced_end, complete, at = max(synced_end, synced), bool(flags & PREAMBLE_COMPLETE), end
    return Checkpoint(b"".join(rows), synced_end, complete, at)


def load(files: Files, path: Path) -> Checkpoint:
    """The checkpoint at `path`, as far as the disk gives it; nothing known when there is none. OSError:
    it may be there, and could not be opened."""
    try:
        fd = files.open(path, readonly=True)
    except FileNotFoundError:
        return NONE
    try:
        data, holes = read_around(files, fd, files.size(fd), 0)
    finally:
        files.close(fd)
    if holes:
        log.error("%s: the disk cannot read all of it; the log itself has to tell", path)
    return parse(data)


class CheckpointWriter:
    """Appends chunks. It may fail without harm: what could not be written is tried again with the next
    chunk, and only what a crash takes by then has no row."""

    def __init__(self, files: Files, path: Path, size: int) -> None:
        self._files = files
        self._path = path
        self._size = size
        self._fd: int | None = None
        self._warned = False
        self._unwritten = b""

    def append(self, rows: bytes, synced_end: int, preamble_complete: bool) -> None:
        rows = self._unwritten + rows
        chunk = pack_chunk(rows, synced_end, preamble_complete)
        try:
            if self._fd is None:
                self._fd = self._files.open(self._path, create=True)
                self._files.truncate(self._fd, self._size)
            self._files.pwritev(self._fd, [chunk], self._size)
        except OSError as error:
            if not self._warned:
                log.warning("the checkpoint %s cannot be written: %s", self._path, error)
            self._warned = True
            self._unwritten = rows if len(rows) <= _MOST_UNWRITTEN else b""
            return
        self._size += len(chunk)
        self._unwritten, self._warned = b"", False

    def close(self) -> None:
        if self._fd is not None:
            with suppress(OSError):
                self._files.close(self._fd)
            self._fd = None


def note_synced(
    rolled: list[tuple[CheckpointWriter, bytes, int]],
    active: CheckpointWriter,
    rows: bytes,
    preamble_complete: bool,
    synced_end: int,
) -> None:
    """Blocks: note what a round has just synced. `rolled` are segments that were left before it began, each
    with the rows that its checkpoint still lacks and its end; their checkpoints are closed."""
    for writer, its_rows, end in rolled:
        writer.append(its_rows, end, True)
        writer.close()
    active.append(rows, synced_end, preamble_complete)
