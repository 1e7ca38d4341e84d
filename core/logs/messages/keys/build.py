"""Making the file of keys of a sealed segment, in small steps.

    build = Build(...)
    while not build.step(0.01):   # each about so many seconds of a core, in a thread
        ...                       # others have their turn
    build.abandon()               # instead, when it is not to be finished: nothing is left behind

The wanted subjects are indexed one after the other. What an older file of the segment says and is still
true is copied, page by page. For the others, batches are read as readers do, keys are hashed, and
entries put into buckets by the first bits of their hashes. Buckets are sorted one by one, which sorts
all; no step holds the interpreter for long. MOST_ENTRIES of a subject are held at a time: if it has
more, its batches are gone through again for the next part of the hashes.

The file is written under another name, synced, and then renamed. A batch that is damaged or cannot be
opened makes its subject one to be scanned in this segment (state SCAN). An error of the machine is
raised (StorageError, OSError), and OffsetOutOfRange where the segment was deleted: nothing is concluded
from either.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from time import thread_time
from typing import NamedTuple, TypeVar

from kumquat.core.errors import (
    CorruptMessage,
    InvalidRecord,
    UnsupportedCompression,
)
from kumquat.core.logs.messages.keys.files import KeyFiles
from kumquat.core.logs.messages.keys.format import (
    COMPLETE,
    ENTRY,
    ENTRY_SIZE,
    HEAD_SIZE,
    PAGE_SIZE,
    PER_PAGE,
    ROW_SIZE,
    SCAN,
    KeysDamaged,
    Row,
    pack_page,
    pack_start,
)
from kumquat.core.logs.messages.locator import Entries
from kumquat.core.logs.messages.reader import Place, Reader
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.state import LOST
from kumquat.core.logs.messages.subject import ENTRY as FIELDS
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.records.keys import keys_of

MOST_ENTRIES = 2_000_000
_PER_BUCKET = 256
_READ_BYTES = 256 << 10
_PAGES_AT_ONCE = 64
_HASH_SIZE = 8
T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields where a step may end, and then gives a T."""
_GARBLED = (CorruptMessage, InvalidRecord, UnsupportedCompression)


class Wanted(NamedTuple):
    """A subject that has batches in the segment."""

    subject: Subject
    entries: Entries
    end: int
    indexed: int
    """The CRC of the entries, from the `.index` file."""


def wanted_in(
    reader: Reader, files: KeyFiles, segment: Segment, subjects: Iterable[Subject]
) -> list[Wanted]:
    """Blocks: those of the subjects that have batches in a sealed segment; none if its file answers for
    all of them."""
    rows, wanted, answered = reader.locator.rows(segment), [], not files.is_damaged(segment)
    for subject in subjects:
        row = rows.find(subject.id)
        if row is None or not row.entries or row.next_sequence <= subject.earliest:
            continue
        try:
            answered = answered and files.row(segment, subject.id, row.entries_crc) is not None
        except (KeysDamaged, OSError):
            answered = False
        entries = reader.locator.entries(segment, row)
        if entries:  # none: the index was just made again, and the subject is not in it
            wanted.append(Wanted(subject, entries, row.next_sequence, row.entries_crc))
    return [] if answered else wanted


class Build:
    def __init__(
        self,
        reader: Reader,
        files: KeyFiles,
        segment: Segment,
        wanted: Iterable[Wanted],
        limit: int,
    ) -> None:
        """`limit`: `max.decompressed.bytes`."""
        self._reader = reader
        self._key_files = files
        self._files = files.open_files.files
        self._segment = segment
        self._wanted = sorted(wanted, key=lambda each: each.subject.id)
        self._limit = limit
        self._temporary = segment.keys_path.with_name(segment.keys_path.name + ".tmp")
        self._fd: int | None = None
        self._pages: list[bytes] = []
        self._written = 0
        """Pages that are in the file."""
        self._pages_at = HEAD_SIZE + ROW_SIZE * len(self._wanted)
        self._work = self._run()

    def step(self, seconds: float) -> bool:
        """Blocks: about so many seconds of work, the disk not counted; True when all is done."""
        ends = thread_time() + seconds
        return all(thread_time() <= ends for _ in self._work)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._work.close()
        self._close()
        with suppress(OSError):
            self._files.unlink(self._temporary)

    def _run(self) -> Steps[None]:
        """All of it. A step may end wherever it yields."""
        self._fd = self._files.open(self._temporary, create=True)
        self._files.truncate(self._fd, 0)
        rows: list[Row] = []
        for wanted in self._wanted:
            first = self._written + len(self._pages)
            entries = yield from self._copy(wanted)
            if entries is None:
                entries = yield from self._index(wanted)
            pages = self._written + len(self._pages) - first
            state = COMPLETE if entries is not None else SCAN
            rows.append(Row(wanted.subject.id, state, wanted.indexed, pages, first, entries or 0))
        self._write_pages()
        base, end = self._segment.base, self._segment.end
        start = pack_start(base, end, self._key_files.probe, rows)
        self._files.pwritev(self._fd, [start], 0)
        self._files.fdatasync(self._fd)
        self._close()
        self._files.rename(self._temporary, self._segment.keys_path)
        self._files.fsync_dir(self._segment.directory)
        self._key_files.forget(self._segment)

    def _close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._files.close(fd)

    # --- pages ---------------------------------------------------------------------------------

    def _add(self, page: bytes) -> None:
        self._pages.append(page)
        if len(self._pages) == _PAGES_AT_ONCE:
            self._write_pages()

    def _write_pages(self) -> None:
        assert self._fd is not None
        if self._pages:
            at = self._pages_at + self._written * PAGE_SIZE
            self._files.pwritev(self._fd, self._pages, at)
            self._written += len(self._pages)
            self._pages = []

    def _take_back(self, first: int) -> None:
        """What was begun for a subject does not count: its pages are written over."""
        self._pages = self._pages[: max(0, first - self._written)]
        self._written = min(self._written, first)

    # --- one subject ---------------------------------------------------------------------------

    def _copy(self, wanted: Wanted) -> Steps[int | None]:
        """How many entries the file that there is has for this subject, copied; None: it cannot be used."""
        first = self._written + len(self._pages)
        try:
            row = self._key_files.row(self._segment, wanted.subject.id, wanted.indexed)
            rows = self._key_files.rows(self._segment)
            if row is None or rows is None or row.state != COMPLETE:
                return None
            for number in range(row.pages):
                entries = self._key_files.page(self._segment, rows, row, number)
                self._add(pack_page(row.subject_id, number, entries))
                yield
        except (KeysDamaged, OSError):
            self._take_back(first)
            return None
        return row.entries

    def _index(self, wanted: Wanted) -> Steps[int | None]:
        """How many entries the subject has, indexed; None: it has to be scanned."""
        first = self._written + len(self._pages)
        messages = wanted.end - wanted.entries[0]
        parts = max(1, math.ceil(messages / MOST_ENTRIES))
        buckets = max(1, messages // parts // _PER_BUCKET)
        pager = _Pager(wanted.subject.id)
        for part in range(parts):
            try:
                in_order = yield from self._collect(wanted, part, parts, buckets)
            except _GARBLED:
                self._take_back(first)
                return None
            for bucket in in_order:
                for entries in _sorted(bucket):
                    for page in pager.add(entries):
                        self._add(page)
                    yield
        for page in pager.rest():
            self._add(page)
        return pager.entries

    def _collect(
        self, wanted: Wanted, part: int, parts: int, buckets: int
    ) -> Steps[list[bytearray]]:
        """The entries of one part of the hashes, in buckets that are in order; in each bucket, in the order
        of their sequences."""
        found = [bytearray() for _ in range(buckets)]
        hashed, pack, spread, skip = (
            self._key_files.hash,
            ENTRY.pack,
            parts * buckets,
            part * buckets,
        )
        before = -1
        for places in _reads(wanted.entries):
            left: Sequence[Place] = places
            while left:
                batches = self._reader.load(wanted.subject, left)
                for batch in batches:
                    for sequence, key in keys_of(memoryview(batch), self._limit):
                        if sequence <= before:
                            raise InvalidRecord(f"sequence {sequence} comes behind {before}")
                        before, number = sequence, hashed(key)
                        bucket = (number * spread >> 64) - skip
                        if 0 <= bucket < buckets:
                            found[bucket] += pack(number, sequence)
                    yield
                left = left[len(batches) :]
        return found


class _Pager:
    """Cuts the entries of a subject, as they come, into pages."""

    def __init__(self, subject_id: int) -> None:
        self._subject_id = subject_id
        self._held = b""
        self._pages = 0
        self.entries = 0

    def add(self, entries: bytes | bytearray) -> Iterator[bytes]:
        self.entries += len(entries) // ENTRY_SIZE
        whole, view, at = PER_PAGE * ENTRY_SIZE, memoryview(entries), 0
        while len(self._held) + len(view) - at >= whole:
            taken = whole - len(self._held)
            yield self._page(self._held + view[at : at + taken])
            self._held, at = b"", at + taken
        self._held += view[at:]

    def rest(self) -> Iterator[bytes]:
        if self._held:
            yield self._page(self._held)

    def _page(self, entries: bytes) -> bytes:
        self._pages += 1
        return pack_page(self._subject_id, self._pages - 1, entries)


def _sorted(bucket: bytearray) -> Iterator[bytes | bytearray]:
    """The entries of a bucket in order, in portions. A large one has a few keys that many messages have:
    those of one key are in order already."""
    data, size = bytes(bucket), ENTRY_SIZE
    if len(data) <= 8 * _PER_BUCKET * size:
        yield b"".join(sorted(data[i : i + size] for i in range(0, len(data), size)))
        return
    by_hash: dict[bytes, bytearray] = {}
    for i in range(0, len(data), size):
        hashed = data[i : i + _HASH_SIZE]
        if hashed not in by_hash:
            by_hash[hashed] = bytearray()
        by_hash[hashed] += data[i : i + size]
        if i % _READ_BYTES == 0:
            yield b""
    for hashed in sorted(by_hash):
        yield by_hash[hashed]


def _reads(entries: Entries) -> Iterator[list[Place]]:
    """The places of all batches, as many at a time as are read at once."""
    places: list[Place] = []
    size = 0
    for k in range(0, len(entries), FIELDS):
        place = Place(*entries[k : k + 3])
        if place.length == LOST:
            raise CorruptMessage(f"the batch of sequence {place.base} is lost")
        if places and size + place.length > _READ_BYTES:
            yield places
            places, size = [], 0
        places.append(place)
        size += place.length
    if places:
        yield places
