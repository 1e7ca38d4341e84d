"""Which records go into one batch, and which messages that batch settles. Decisions only.

Messages come in ranges; a range is settled as a whole, also where it has sequences that are no message. A
batch has at most 500 records and 1 MiB, unless a single record is larger; no batch is larger than its
subject takes. A record that is too large even alone is left out, and its sequence is not settled. What is
left to settle when no record is there to carry it comes out as `bare`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kumquat.core.logs.messages.settles import Settled
from kumquat.core.records.batch import HEAD_SIZE
from kumquat.core.records.rewrite import Body

BATCH_RECORDS = 500
BATCH_BYTES = 1 << 20
_AROUND = 32
"""More than the lengths and deltas of a record take."""

Records = list[tuple[Body, Sequence[bytes]]]


class Packed(NamedTuple):
    records: Records
    items: list[Settled]
    size: int
    reasons: Counter[str]
    """Why they are dead letters, and how many each."""


class Packer:
    def __init__(self, gid: int, subject_id: int, max_bytes: int) -> None:
        self._gid = gid
        self._subject_id = subject_id
        self._max_bytes = max_bytes
        self._batches: list[Packed] = []
        self._records: Records = []
        self._items: list[Settled] = []
        self._size = HEAD_SIZE
        self._reasons = Counter[str]()
        self._begin = 0
        self.too_large: list[tuple[int, int]] = []
        """Sequences, and how many bytes their batches would have."""

    def begin(self, first: int) -> None:
        """A range begins."""
        self._begin = first

    def add(self, sequence: int, body: Body, added: Sequence[bytes], reason: str = "") -> None:
        size = len(body.fields) + len(body.headers) + sum(map(len, added)) + _AROUND
        if HEAD_SIZE + size > self._max_bytes:
            self.too_large.append((sequence, HEAD_SIZE + size))
            self.end(sequence)
            self._begin = sequence + 1
            return
        limit = min(BATCH_BYTES, self._max_bytes)
        if self._records and (len(self._records) == BATCH_RECORDS or self._size + size > limit):
            self.end(sequence)
            self._flush()
        self._records.append((body, added))
        self._reasons[reason] += 1
        self._size += size

    def end(self, end: int) -> None:
        """The range is taken up to there."""
        if self._begin < end:
            self._items.append(Settled(self._gid, self._subject_id, self._begin, end - self._begin))
            self._begin = end

    def finish(self) -> tuple[list[Packed], list[Settled]]:
        """All batches, and what is `bare`."""
        if self._records:
            self._flush()
        bare, self._items = self._items, []
        return self._batches, bare

    def _flush(self) -> None:
        self._batches.append(Packed(self._records, self._items, self._size, self._reasons))
        self._records, self._items, self._size = [], [], HEAD_SIZE
        self._reasons = Counter()
