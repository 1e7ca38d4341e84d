"""Reads messages that become others: their records, taken out of the batches that they lie in.

Three things may be in the way, and they are not alike:

- What the disk does not give for now is a StorageError. It is raised: a passing error is no verdict.
- What does not match its checksum (the log reads twice before it says so), or cannot be opened, is
  `unreadable`. So is what retention took. A single record that is garbled is so alone: nobody has looked at
  records when they came, and its neighbours may be sound.
- A sequence that no record has, as after messages for later, or in a batch that holds fewer records than it
  claims, is no message: it is left out.

A large batch is inflated in a thread, within the bounds of all inflation.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kumquat.core.errors import (
    CorruptMessage,
    InvalidRecord,
    OffsetOutOfRange,
    UnsupportedCompression,
    WouldBlock,
)
from kumquat.core.inflation import QUICK
from kumquat.core.records.batch import CODEC_MASK, HEAD_SIZE, read_head
from kumquat.core.records.compression import held
from kumquat.core.records.cut import CutPoints, Cutter
from kumquat.core.records.rewrite import Body, bodies

if TYPE_CHECKING:
    from kumquat.core.logs.messages.service import MessageService
    from kumquat.core.logs.messages.subject import Subject

READ_BYTES = 1 << 20
_GARBLED = (CorruptMessage, InvalidRecord, UnsupportedCompression)


class Unreadable(NamedTuple):
    """Messages that can never be read."""

    first: int
    end: int
    why: str
    gone: bool
    """Retention took them."""


class Loaded(NamedTuple):
    messages: list[tuple[int, Body]]
    """By sequence."""
    unreadable: list[Unreadable]
    until: int
    """All below were looked at."""
    size: int


class MessageReader:
    def __init__(self, log: MessageService) -> None:
        self._log = log
        self._cutter = Cutter(log.log.options.max_decompressed_bytes)
        self._last: tuple[int, int, int, memoryview] | None = None
        """Subject, base and end of the batch that was read last, and its bytes: the next message is often
        in the same."""

    async def load(
        self, subject: Subject, first: int, end: int, most_bytes: int = READ_BYTES
    ) -> Loaded:
        """The messages from `first` to `end`, at least one if there is one, until that many bytes are
        read."""
        loaded, at, size = Loaded([], [], first, 0), first, 0
        while at < end and (at == first or size < most_bytes):
            try:
                batch = await self._read(subject, at)
            except OffsetOutOfRange:
                gone = at < subject.earliest
                behind = min(end, subject.earliest) if gone else end
                why = "retention took the message" if gone else "the log has no such message"
                loaded.unreadable.append(Unreadable(at, behind, why, gone))
            except CorruptMessage as error:
                behind = min(end, (await self._log.bounds(subject, at))[1])
                behind = max(behind, at + 1)
                loaded.unreadable.append(Unreadable(at, behind, str(error), gone=False))
            else:
                head = read_head(batch)
                behind = min(end, head.base_offset + head.last_offset_delta + 1)
                try:
                    points = await self._points(subject.id, batch)
                except _GARBLED as error:
                    loaded.unreadable.append(Unreadable(at, behind, str(error), gone=False))
                else:
                    found, garbled = _taken(points, batch, head.base_offset, at, behind)
                    loaded.messages.extend(found)
                    loaded.unreadable.extend(garbled)
                    size += sum(len(body.fields) + len(body.headers) for _, body in found)
            at = behind
        return loaded._replace(until=at, size=size)

    def forget(self) -> None:
        """Hold on to no batch."""
        self._last = None

    async def _read(self, subject: Subject, at: int) -> memoryview:
        """The batch that holds a sequence."""
        if self._last is not None:
            subject_id, base, behind, batch = self._last
            if subject_id == subject.id and max(base, subject.earliest) <= at < behind:
                return batch
        batches = await self._log.read(subject, at, 1, True)
        if not batches:
            raise OffsetOutOfRange(f"{subject.name!r} has no message {at}")
        batch = memoryview(batches[0])
        head = read_head(batch)
        behind = head.base_offset + head.last_offset_delta + 1
        self._last = subject.id, head.base_offset, behind, batch
        return batch

    async def _points(self, subject_id: int, batch: memoryview) -> CutPoints:
        try:
            return self._cutter.load_nowait(subject_id, batch)
        except WouldBlock:
            inflation = self._log.inflation
            codec = read_head(batch).attributes & CODEC_MASK
            needed = held(codec, batch[HEAD_SIZE:], inflation.limit)
            load = partial(self._cutter.load, subject_id, batch)
            return await inflation.run(load, needed + QUICK, needed + inflation.limit)


def _taken(
    points: CutPoints, batch: memoryview, base: int, first: int, end: int
) -> tuple[list[tuple[int, Body]], list[Unreadable]]:
    """The messages of a batch from `first` to `end`, and those that are garbled."""
    try:
        found = bodies(points, batch, first - base, end - 1 - base)
        return [(base + delta, body) for delta, body in found], []
    except InvalidRecord as error:
        if end - first == 1:
            return [], [Unreadable(first, end, str(error), gone=False)]
    messages: list[tuple[int, Body]] = []
    garbled: list[Unreadable] = []
    for at in range(first, end):
        sound, bad = _taken(points, batch, base, at, at + 1)
        messages += sound
        garbled += bad
    return messages, garbled
