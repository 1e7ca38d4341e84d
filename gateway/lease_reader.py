"""The bytes of leased messages, stamped with the pull offsets of the member that they were leased to.

A lease is a run of sequences that need not fit the producers' batches: a whole batch gets a new head in
front of the stored bytes, a part is cut out (core/records/cut.py). The batch that a hand-out ends in is
kept, since the next one most likely begins there; a bounded number of bytes of such batches, the oldest go
first.

Messages that retention took in the meantime, or that are damaged on disk, are told of and skipped: the
client sees a gap, as in a compacted topic. What does not fit the size limit is left for the next Fetch.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

import trio

from core.delivery.progress import pull_offset
from core.errors import (
    CorruptMessage,
    InvalidRecord,
    OffsetOutOfRange,
    UnsupportedCompression,
    WouldBlock,
)
from core.records import read_head
from core.records.cut import Cutter, restamped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from core.delivery.progress import Lease
    from core.logs.service import MessageService
    from core.logs.subject import Subject
    from core.logs.tail import Batch

KEPT_BYTES = 32 << 20
KEPT_BATCHES = 8
"""Of one subject: several groups may be at different places of it."""
UNREADABLE = (CorruptMessage, OffsetOutOfRange, InvalidRecord, UnsupportedCompression)
_FIRST_GUESS = 1 << 10
"""Bytes per message, where none has been read yet."""


class Lost(NamedTuple):
    """Sequences that cannot be read, and why."""

    first: int
    size: int
    why: str


class Loaded:
    """What became of some leases."""

    __slots__ = ("buffers", "lost", "size")

    def __init__(self) -> None:
        self.buffers: list[bytes | memoryview] = []
        self.size = 0
        self.lost: list[Lost] = []


class LeaseReader:
    def __init__(self, log: MessageService) -> None:
        self._log = log
        self._cutter = Cutter(log.log.options.max_decompressed_bytes)
        self._kept: OrderedDict[int, deque[tuple[int, int, Batch]]] = OrderedDict()
        """Base, end and bytes, by subject id; the newest first within a subject, last among subjects."""
        self._kept_bytes = 0
        self._weights: dict[int, float] = {}
        """Bytes per message of each subject, as they were last."""

    def fits(self, subject: Subject, limit: int) -> int:
        """About how many messages of a subject fit into so many bytes; at least one."""
        return max(1, int(limit / self._weights.get(subject.id, _FIRST_GUESS)))

    def forget(self, subject_id: int) -> None:
        self._weights.pop(subject_id, None)
        self._kept_bytes -= sum(len(each[2]) for each in self._kept.pop(subject_id, ()))

    async def load(
        self, subject: Subject, slot: int, leases: Iterable[Lease], limit: int
    ) -> Loaded:
        """At least one batch, if one can be read; then as many as fit the limit."""
        loaded = Loaded()
        for lease in leases:
            at, end = lease.first, lease.first + lease.size
            shift = pull_offset(slot, lease.pull) - lease.first
            while at < end:
                if loaded.size >= limit and loaded.size:
                    return loaded
                try:
                    following = await self._add(subject, at, end, shift, limit, loaded)
                except UNREADABLE as error:
                    following = min(end, await self._behind(subject, at))
                    loaded.lost.append(Lost(at, following - at, str(error)))
                if following == at:
                    return loaded
                at = following
        return loaded

    async def _add(
        self, subject: Subject, at: int, end: int, shift: int, limit: int, loaded: Loaded
    ) -> int:
        """Add what comes next; gives the sequence behind it, or `at` when it does not fit."""
        for batch in self._find(subject.id, at) or await self._read(
            subject, at, end, limit - loaded.size
        ):
            head = read_head(batch)
            base, behind = head.base_offset, head.base_offset + head.last_offset_delta + 1
            if base >= end:
                break
            self._weights[subject.id] = len(batch) / (behind - base)
            if at == base and behind <= end:
                part = restamped(memoryview(batch), head, base + shift)
            else:
                stop = min(end, behind)
                part = await self._cut(subject.id, memoryview(batch), at, stop, base, shift)
                if stop < behind:
                    self._keep(subject.id, base, behind, batch)
                behind = stop
            size = sum(map(len, part))
            if loaded.size and loaded.size + size > limit:
                break
            loaded.buffers += part
            loaded.size += size
            at = behind
        return at

    async def _cut(
        self, sid: int, batch: memoryview, at: int, stop: int, base: int, shift: int
    ) -> list[bytes | memoryview]:
        first, last = at - base, stop - 1 - base
        if self._cutter.is_heavy(sid, batch, first, last):
            await trio.to_thread.run_sync(self._cutter.load, sid, batch)
        return self._cutter.cut(sid, batch, first, last, base + shift)

    async def _read(self, subject: Subject, at: int, end: int, room: int) -> list[Batch]:
        """At least one batch, and hardly more than is wanted."""
        wanted = int((end - at) * self._weights.get(subject.id, _FIRST_GUESS) * 1.1) + 1
        try:
            return self._log.read_nowait(subject, at, min(room, wanted), True)
        except WouldBlock:
            return await self._log.read(subject, at, min(room, wanted), True)

    async def _behind(self, subject: Subject, at: int) -> int:
        """Where there may be something to read again, after a sequence that cannot be read."""
        if at < subject.earliest:
            return subject.earliest
        if at >= subject.high_watermark:
            return at
        try:
            return (await self._log.bounds(subject, at))[1]
        except OffsetOutOfRange:  # deleted meanwhile
            return max(at, subject.earliest)
        except CorruptMessage:
            return subject.high_watermark

    # --- batches of which a part was given -------------------------------------------------------

    def _find(self, sid: int, sequence: int) -> list[Batch] | None:
        for base, behind, batch in self._kept.get(sid, ()):
            if base <= sequence < behind:
                return [batch]
        return None

    def _keep(self, sid: int, base: int, behind: int, batch: Batch) -> None:
        kept = self._kept.setdefault(sid, deque())
        if any(known[0] == base for known in kept):
            return
        kept.appendleft((base, behind, batch))
        self._kept_bytes += len(batch)
        if len(kept) > KEPT_BATCHES:
            self._kept_bytes -= len(kept.pop()[2])
        self._kept.move_to_end(sid)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= sum(len(each[2]) for each in dropped)
