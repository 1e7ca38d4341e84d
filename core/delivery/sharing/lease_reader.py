"""The bytes of leased messages, stamped with the pull offsets of the member that they were leased to.

A lease is a run of sequences that need not fit the producers' batches: a whole batch gets a new head in
front of the stored bytes, a part is cut out (core/records/cut.py). The batch that a hand-out ends in is
kept, since the next one most likely begins there; a bounded number of bytes of such batches, the oldest go
first.

A message that was delivered before gets a header that says so (`qmq-attempt`), so its batch is rebuilt.

Messages that retention took in the meantime, or that are damaged on disk, are reported and skipped: the
client sees a gap, as in a compacted topic. What the disk does not give for now (StorageError) is neither:
it stays leased, and is read when it is asked for again. What does not fit the size limit is left for the
next Fetch.

A batch may have holes, where messages for later stood. Those in front of a message are acked with it.
Those behind the last one that was read are reported (`holes`): no client would ever ack them. A batch may
also hold fewer records than it claims, or none that can be read: what is missing is reported (`lost`) up
to the end of the batch, leased or not, so that the group is past it at once.

A `Loading` is done in one go when all is in memory. It stops, with WouldBlock, where a thread has to help,
and goes on from there.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.delivery.pull_log import pull_offset
from kumquat.core.errors import (
    CorruptMessage,
    InvalidRecord,
    KumquatError,
    OffsetOutOfRange,
    UnsupportedCompression,
    WouldBlock,
)
from kumquat.core.inflation import QUICK
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, OVERHEAD, STAMP, read_head
from kumquat.core.records.compression import held
from kumquat.core.records.cut import NO_EPOCH, CutPoints, Cutter, part, restamped
from kumquat.core.records.rewrite import header, with_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kumquat.core.delivery.pull_log import Lease
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject
    from kumquat.core.logs.messages.tail import Batch

ATTEMPT = b"qmq-attempt"
"""The header that says which delivery of the message it is, from the second on."""
KEPT_BYTES = 32 << 20
KEPT_BATCHES = 8
"""Of one subject: several groups may be at different places of it."""
UNREADABLE = (CorruptMessage, OffsetOutOfRange, InvalidRecord, UnsupportedCompression)
_FIRST_GUESS = 1 << 10
"""Bytes per message, where none has been read yet."""
_EXTENT = Struct(">q15xi30xi").unpack_from
"""Base offset, last offset delta and record count of a batch."""


class Lost(NamedTuple):
    """Sequences that cannot be read, and why."""

    first: int
    size: int
    why: str
    damaged: bool = False
    """There were messages, and their bytes do not match their checksum any more. Else there never were any,
    or nobody could ever read them, or retention took them."""

    @property
    def end(self) -> int:
        return self.first + self.size


class LeaseReader:
    def __init__(self, log: MessageService) -> None:
        self.log = log
        self.cutter = Cutter(log.log.options.max_decompressed_bytes)
        self._kept: OrderedDict[int, deque[tuple[int, int, Batch]]] = OrderedDict()
        """Base, end and bytes, by subject id; the newest first within a subject, last among subjects."""
        self._kept_bytes = 0
        self._weights: dict[int, float] = {}
        """Bytes per message of each subject, as they were last."""
        self._lengths: dict[int, int] = {}
        """Messages per batch of each subject, as they were last."""

    def fits(self, subject: Subject, limit: int) -> int:
        """About how many messages of a subject fit into so many bytes; at least one."""
        return max(1, int(limit / self._weights.get(subject.id, _FIRST_GUESS)))

    def bytes_of(self, subject: Subject, messages: int) -> int:
        """About how many bytes so many messages have; hardly less than that."""
        return int(messages * self._weights.get(subject.id, _FIRST_GUESS) * 1.1) + 1

    def length(self, subject: Subject) -> int:
        """How many messages a batch of the subject has, if it is like the one that was read last."""
        return self._lengths.get(subject.id, 1)

    def weigh(self, subject: Subject, loading: Loading) -> None:
        """Learn from what was read."""
        self._weights[subject.id] = loading.size / loading.messages
        self._lengths[subject.id] = loading.length

    def forget(self, subject_id: int) -> None:
        self._weights.pop(subject_id, None)
        self._lengths.pop(subject_id, None)
        self._kept_bytes -= sum(len(each[2]) for each in self._kept.pop(subject_id, ()))

    async def finish(self, loading: Loading) -> None:
        """Load the rest, with the help of threads; and see to what cannot be read."""
        while True:
            try:
                loading.run()
            except WouldBlock:
                await self._help(loading)
            except UNREADABLE as error:
                loading.skip(await self._behind(loading.subject, loading.at), error)
            else:
                return

    async def _help(self, loading: Loading) -> None:
        subject, inflating = loading.subject, loading.inflating
        try:
            if inflating is None:
                loading.ready = await self.log.read(subject, loading.at, loading.wanted, True)
                return
        except UNREADABLE as error:
            loading.skip(await self._behind(subject, loading.at), error)
            return
        try:
            loading.inflating = None
            points = await self._open(subject.id, inflating)
            loading.loaded = read_head(inflating).base_offset, points
            loading.ready = (inflating,)
        except UNREADABLE as error:
            loading.skip_batch(inflating, str(error))

    async def _open(self, subject_id: int, batch: memoryview) -> CutPoints:
        """The cut points of a batch that is large, inflated."""
        inflation = self.log.inflation
        needed = held(read_head(batch).attributes & CODEC_MASK, batch[HEAD_SIZE:], inflation.limit)
        load = partial(self.cutter.load, subject_id, batch)
        return await inflation.run(load, needed + QUICK, needed + inflation.limit)

    async def _behind(self, subject: Subject, at: int) -> int:
        """Where there may be something to read again, after a sequence that cannot be read."""
        if at < subject.earliest:
            return subject.earliest
        if at >= subject.readable_end:
            return at
        behind = (await self.log.bounds(subject, at))[1]
        return min(behind, subject.readable_end)

    # --- batches of which a part was given -------------------------------------------------------

    def read_nowait(self, subject: Subject, at: int, size: int) -> Sequence[Batch]:
        """At least one batch from the one that holds `at` on."""
        for base, behind, batch in self._kept.get(subject.id, ()):
            if base <= at < behind and at >= subject.earliest:
                return (batch,)
        return self.log.read_nowait(subject, at, size, True)

    def kept_until(self, subject: Subject, sequence: int) -> int | None:
        """Where the batch that holds a sequence ends, if it was kept."""
        for base, behind, _ in self._kept.get(subject.id, ()):
            if base <= sequence < behind:
                return behind
        return None

    def keep(self, subject_id: int, base: int, behind: int, batch: Batch) -> None:
        kept = self._kept.setdefault(subject_id, deque())
        if any(known[0] == base for known in kept):
            return
        kept.appendleft((base, behind, batch))
        self._kept_bytes += len(batch)
        if len(kept) > KEPT_BATCHES:
            self._kept_bytes -= len(kept.pop()[2])
        self._kept.move_to_end(subject_id)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= sum(len(each[2]) for each in dropped)


class Loading:
    """Some leases on their way into a Fetch's answer: at least one batch, then as many as fit the limit."""

    __slots__ = (
        "_attempt",
        "_end",
        "_leases",
        "_limit",
        "_reader",
        "_shift",
        "_slot",
        "at",
        "buffers",
        "holes",
        "inflating",
        "length",
        "loaded",
        "lost",
        "messages",
        "ready",
        "size",
        "stopped",
        "subject",
    )

    def __init__(
        self, reader: LeaseReader, subject: Subject, slot: int, leases: list[Lease], limit: int
    ) -> None:
        """`slot`: of the pull offsets that the records are stamped with; 0: with their sequences."""
        self._reader = reader
        self._slot = slot
        self._leases = iter(leases)
        self._limit = limit
        self._shift = 0
        self._attempt = 1
        """Of the lease at hand."""
        self._end = 0
        self.subject = subject
        self.at = 0
        """The sequence that comes next, of the lease that ends at `_end`."""
        self.ready: Sequence[Batch] | None = None
        """Batches that a thread has read."""
        self.inflating: memoryview | None = None
        """A batch that a thread has to inflate."""
        self.loaded: tuple[int, CutPoints] | None = None
        """Its base and cut points, once that is done."""
        self.buffers: list[bytes | memoryview] = []
        self.size = 0
        self.messages = 0
        self.length = 1
        """How many messages the last batch had."""
        self.lost: list[Lost] = []
        self.stopped = False
        """There is nothing to read where a lease is."""
        self.holes: list[tuple[int, int]] = []
        """First sequences and sizes of what no message has, behind the last one."""

    @property
    def wanted(self) -> int:
        """About how many bytes are still to be read of the lease at hand."""
        left = self._reader.bytes_of(self.subject, self._end - self.at)
        return min(left, self._limit - self.size)

    def run(self) -> None:
        """Load all, or as much as fits. WouldBlock, or one of UNREADABLE: it stopped at `at`."""
        while not self.stopped:
            while self.at < self._end:
                if not self._load():
                    return
            lease = next(self._leases, None)
            if lease is None:
                return
            self.at, self._end, self._attempt = lease.first, lease.behind, lease.attempt
            if self.lost and self.lost[-1].first <= self.at:
                self.at = min(max(self.at, self.lost[-1].end), self._end)
            if self._slot:
                self._shift = pull_offset(self._slot, lease.pull) - lease.first

    def skip(self, behind: int, error: KumquatError) -> None:
        """What comes next cannot be read."""
        behind = min(behind, self._end)
        if behind > self.at:
            damaged = isinstance(error, CorruptMessage)
            self.lost.append(Lost(self.at, behind - self.at, str(error), damaged))
            self.at = behind
        else:
            self.stopped = True

    def unread(self) -> list[tuple[int, int]]:
        """First and end of what is not loaded, when it is not to be continued."""
        rest = [(self.at, self._end)] if self.at < self._end else []
        return rest + [(lease.first, lease.behind) for lease in self._leases]

    def skip_batch(self, batch: memoryview, why: str) -> None:
        """Nothing of a batch can be read, and what comes next is in it."""
        base, last, _ = _EXTENT(batch)
        self._miss(base + last + 1, why)

    def _miss(self, behind: int, why: str) -> None:
        """There is nothing from `at` to the end of its batch."""
        self.lost.append(Lost(self.at, behind - self.at, why))
        self.at = min(behind, self._end)

    def _load(self) -> bool:
        """Add the next batches of the lease at hand; False when no more fits. The one loop over batches."""
        at, end, shift, limit, total = self.at, self._end, self._shift, self._limit, self.size
        add = self.buffers.append
        batches, self.ready = self.ready, None
        last, began, start, full = 0, at, at, False
        for batch in batches or self._reader.read_nowait(self.subject, at, self.wanted):
            base, last, count = _EXTENT(batch)
            behind = base + last + 1
            if base >= end:
                break
            if base == at and behind <= end and count > last and self._attempt == 1:
                size = len(batch)
                if full := total > 0 and total + size > limit:
                    break
                add(STAMP.pack(base + shift, size - OVERHEAD, NO_EPOCH))
                add(memoryview(batch)[STAMP.size :])
            else:
                try:
                    points = self._points(batch, base)
                except UNREADABLE as error:
                    self._miss(behind, str(error))
                    began = at = self.at
                    continue
                cut = self._cut(points, batch, base, behind)
                size = sum(map(len, cut))
                if full := total > 0 and total + size > limit:
                    break
                self._look_for_gaps(points, base, behind, count)
                behind = min(end, behind)
                self.buffers += cut
            if self.holes and count > last and size:
                self.holes.clear()
            total += size
            self.at = at = behind
            self.size, self.messages = total, self.messages + behind - began
            began = behind
        self.length = last + 1
        return at > start and not full and total < limit

    def _points(self, batch: Batch, base: int) -> CutPoints:
        """Where the records of a batch begin."""
        self.inflating, loaded, self.loaded = None, self.loaded, None
        if loaded is not None and loaded[0] == base:
            return loaded[1]
        view = memoryview(batch)
        try:
            return self._reader.cutter.load_nowait(self.subject.id, view)
        except WouldBlock:
            self.inflating = view
            raise

    def _cut(
        self, points: CutPoints, batch: Batch, base: int, behind: int
    ) -> list[bytes | memoryview]:
        """What is wanted of a batch, from `at` on."""
        end, view = min(self._end, behind), memoryview(batch)
        if end < behind:
            self._reader.keep(self.subject.id, base, behind, batch)
        if self._attempt > 1:
            return self._marked(points, view, base, end)
        if end == behind and base == self.at and points.shortage is None:
            return restamped(view, base + self._shift)
        return part(points, view, self.at - base, end - 1 - base, base + self._shift)

    def _marked(
        self, points: CutPoints, view: memoryview, base: int, end: int
    ) -> list[bytes | memoryview]:
        """Records that were delivered before say so, in a header. One that the broker cannot take apart
        stays as it is: nobody has checked what is in it."""
        cut = (points, view, self.at - base, end - 1 - base, base + self._shift)
        try:
            return with_header(*cut, header(ATTEMPT, b"%d" % self._attempt))
        except InvalidRecord:
            return part(*cut)

    def _look_for_gaps(self, points: CutPoints, base: int, behind: int, count: int) -> None:
        """Between `at` and what was wanted of a batch; where records are missing, up to its end."""
        end, missing = min(self._end, behind), points.missing_from()
        if missing is not None and base + missing < end:
            end = max(self.at, base + missing)
            why = f"{points.why}, which claims {count}"
            self.lost.append(Lost(end, behind - end, why))
        last = points.last_in(self.at - base, end - 1 - base)
        if last is not None:
            self.holes.clear()
        first = self.at if last is None else base + last + 1
        if first < end:
            self.holes.append((first, end - first))
