"""Looking up a key in the file of a sealed segment, and knowing which files can be used.

A look-up bisects over pages: some twenty reads of a page in a file of millions of entries. It gives
sequences, of which some may be those of another key with the same hash. It gives None where the file
does not answer for this subject (missing, damaged, cut, made before the config was set, or from other
batches than `.index` names now): then the segment is to be scanned. What is damaged is noted, for the
task that makes it again; an error of the machine (no descriptors, an error of the device) is logged and
changes nothing.

Any thread may look up. A file may be replaced meanwhile: its rows and its pages then do not fit each other,
which a page's own fields show, and the look-up is begun again.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import OrderedDict
from typing import NamedTuple

from kumquat.core.complaints import Complaints
from kumquat.core.logs.disk.unreadable import is_damage, read_patiently
from kumquat.core.logs.messages.keys.format import (
    COMPLETE,
    ENTRY,
    ENTRY_SIZE,
    HEAD_SIZE,
    PAGE_SIZE,
    PER_PAGE,
    ROW_SIZE,
    Hash,
    KeysDamaged,
    Row,
    Rows,
    hash_key,
    parse_head,
    parse_page,
    parse_rows,
    probe,
)
from kumquat.core.logs.messages.segment import OpenFiles, Segment

log = logging.getLogger("kumquat.keys")

_MOST_HELD = 64
"""Files whose rows are kept in memory."""


class Found(NamedTuple):
    """Sequences of messages whose key has the hash that was asked for, in the order that was asked for."""

    sequences: list[int]
    more: bool
    """Whether there are more behind them."""
    bytes_read: int


class KeyFiles:
    def __init__(self, open_files: OpenFiles, hashed: Hash = hash_key) -> None:
        self.open_files = open_files
        self.hash = hashed
        self.probe = probe(hashed)
        self.complaints = Complaints(log)
        self._rows: OrderedDict[int, Rows | None] = OrderedDict()
        """By the base of the segment; None: there is no file."""
        self._replaced: dict[int, int] = {}
        """How often the file of a segment was replaced."""
        self._damaged: set[int] = set()
        self._lock = threading.Lock()

    def find(
        self,
        segment: Segment,
        subject_id: int,
        indexed: int,
        key: bytes,
        low: int,
        high: int,
        *,
        most: int,
        newest: bool,
    ) -> Found | None:
        """Where messages with this key may be, from `low` to below `high`; `most` of them: the first, or
        the last with `newest`. `indexed`: the CRC of the subject's entries in the `.index` file."""
        while segment.base not in self._damaged:
            replaced = self._replaced.get(segment.base, 0)
            try:
                row = self.row(segment, subject_id, indexed)
                if row is None or row.state != COMPLETE:
                    return None
                return self._look_up(segment, row, self.hash(key), low, high, most, newest)
            except KeysDamaged as damage:
                if self._replaced.get(segment.base, 0) == replaced:
                    self.note_damage(segment, str(damage))
                    return None
            except OSError as error:
                if self._replaced.get(segment.base, 0) == replaced:
                    self.note_trouble(segment, error)
                    return None
        return None

    def row(self, segment: Segment, subject_id: int, indexed: int) -> Row | None:
        """What the file says of a subject; None: nothing. KeysDamaged, OSError."""
        rows = self.rows(segment)
        row = rows.find(subject_id) if rows is not None else None
        if row is not None and row.indexed != indexed:
            raise KeysDamaged(f"it was made of other batches of subject {subject_id}")
        return row

    def rows(self, segment: Segment) -> Rows | None:
        """None: there is no file. KeysDamaged, OSError."""
        with self._lock:
            if segment.base in self._rows:
                self._rows.move_to_end(segment.base)
                return self._rows[segment.base]
            replaced = self._replaced.get(segment.base, 0)
        rows = self._load(segment)
        with self._lock:
            if self._replaced.get(segment.base, 0) == replaced:
                self._rows[segment.base] = rows
                while len(self._rows) > _MOST_HELD:
                    self._rows.popitem(last=False)
        return rows

    def _load(self, segment: Segment) -> Rows | None:
        files = self.open_files.files
        try:
            with self.open_files.pinned(segment.keys_path) as fd:
                first = read_patiently(files, fd, HEAD_SIZE, 0)
                count, crc = parse_head(first, segment.base, segment.end, self.probe)
                return parse_rows(read_patiently(files, fd, count * ROW_SIZE, HEAD_SIZE), crc)
        except FileNotFoundError:
            return None
        except OSError as error:
            if is_damage(error):
                raise KeysDamaged(str(error)) from error
            raise

    def page(self, segment: Segment, rows: Rows, row: Row, number: int) -> bytes:
        """The entries of a page of a subject. KeysDamaged, OSError."""
        at = rows.pages_at + (row.first_page + number) * PAGE_SIZE
        try:
            with self.open_files.pinned(segment.keys_path) as fd:
                data = read_patiently(self.open_files.files, fd, PAGE_SIZE, at)
        except OSError as error:
            if is_damage(error) or isinstance(error, FileNotFoundError):
                raise KeysDamaged(str(error)) from error
            raise
        return parse_page(data, row.subject_id, number)

    def _look_up(
        self, segment: Segment, row: Row, hashed: int, low: int, high: int, most: int, newest: bool
    ) -> Found:
        rows = self.rows(segment)
        if rows is None:
            raise KeysDamaged("it is gone")
        pages: dict[int, bytes] = {}

        def page(number: int) -> bytes:
            if number not in pages:
                pages[number] = self.page(segment, rows, row, number)
            return pages[number]

        def position(wanted: bytes) -> int:
            """The number of the first entry that is not lower."""
            at = bisect_left(range(row.pages), wanted, key=lambda n: page(n)[-ENTRY_SIZE:])
            if at == row.pages:
                return row.entries
            entries = page(at)
            count = len(entries) // ENTRY_SIZE
            return at * PER_PAGE + bisect_left(
                range(count), wanted, key=lambda k: entries[k * ENTRY_SIZE : (k + 1) * ENTRY_SIZE]
            )

        first, end = position(ENTRY.pack(hashed, low)), position(ENTRY.pack(hashed, high))
        more = end - first > most
        numbers = (
            range(max(first, end - most), end) if newest else range(first, min(end, first + most))
        )
        found = []
        for number in reversed(numbers) if newest else numbers:
            at, k = divmod(number, PER_PAGE)
            found.append(ENTRY.unpack_from(page(at), k * ENTRY_SIZE)[1])
        return Found(found, more, len(pages) * PAGE_SIZE)

    # --- which can be used ---------------------------------------------------------------------

    def note_damage(self, segment: Segment, why: str) -> None:
        with self._lock:
            self._damaged.add(segment.base)
        path = segment.keys_path
        self.complaints.error(path, f"{path}: {why}; its segment is scanned until it is made again")

    def note_trouble(self, segment: Segment, error: OSError) -> None:
        path = segment.keys_path
        self.complaints.error(
            path, f"{path} cannot be read for now: {error}; its segment is scanned"
        )

    def is_damaged(self, segment: Segment) -> bool:
        """Whether its file is not used any more, and is to be made again."""
        return segment.base in self._damaged

    def forget(self, segment: Segment) -> None:
        """The file is another one, or gone."""
        with self._lock:
            self._damaged.discard(segment.base)
            self._replaced[segment.base] = self._replaced.get(segment.base, 0) + 1
            self._rows.pop(segment.base, None)
        self.open_files.forget(segment.keys_path)
