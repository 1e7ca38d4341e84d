"""A slice of a search: which batches are read next. It blocks, and runs in a thread.

A search goes through a subject in one direction. Each slice begins where the one before has come to,
and ends after SLICE_SECONDS, when there are enough messages, or at the end of the segment's part of the
subject. Batches are chosen without reading them:

- by the index of keys, where the segment has one: those that hold a message whose key has the right hash;
- by their highest timestamp, which the consume log has: those that are too old are stepped over, and whole
  segments of them. (The lowest timestamp is not known: `until` does not spare any reading.)

What cannot be read or opened is reported, and does not end the search.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import takewhile
from time import perf_counter
from typing import TYPE_CHECKING

from kumquat.core.errors import CorruptMessage, OffsetOutOfRange, StorageError
from kumquat.core.logs.messages.reader import Place
from kumquat.core.logs.messages.state import LOST
from kumquat.core.logs.messages.subject import ENTRY
from kumquat.gateway.search.matching import Matches
from kumquat.gateway.search.query import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kumquat.core.logs.messages.keys.files import KeyFiles
    from kumquat.core.logs.messages.locator import Block
    from kumquat.core.logs.messages.reader import Reader
    from kumquat.core.logs.messages.tail import Batch
    from kumquat.gateway.search.query import Query

SLICE_SECONDS = 0.02
READ_BYTES = 256 << 10
_MOST_BATCHES = 256
"""Read at once; and looked up at once in an index."""
_MOST_SKIPPED = 4096
"""Batches that are stepped over without a look at the clock."""


@dataclass(slots=True)
class Slice:
    """What one slice found."""

    at: int
    """It has come to here: all before (in the direction of the search) was looked at."""
    matches: Matches
    unreadable: list[Unreadable] = field(default_factory=list)
    batches: int = 0
    bytes: int = 0
    by_index: bool = False


class Slicer:
    def __init__(
        self, query: Query, reader: Reader, keys: KeyFiles, limit: int, check: Callable[[], None]
    ) -> None:
        """`limit`: `max.decompressed.bytes`. `check` raises when nobody waits for the answer any more."""
        self._query = query
        self._subject = query.subject
        self._reader = reader
        self._keys = keys
        self._check = check
        self._limit = limit
        self._high = self._subject.readable_end
        if query.end is not None:
            self._high = min(self._high, query.end)
        if query.newest and query.after is not None:
            self._high = min(self._high, query.after)
        self._first = query.first or 0
        if not query.newest and query.after is not None:
            self._first = max(self._first, query.after + 1)

    @property
    def low(self) -> int:
        """The lowest offset that may be found; it may rise meanwhile."""
        return max(self._first, self._subject.earliest)

    @property
    def begin(self) -> int:
        """Where the first slice begins."""
        return self._high if self._query.newest else min(self.low, self._high)

    def is_over(self, at: int) -> bool:
        return at <= self.low if self._query.newest else max(at, self.low) >= self._high

    def run(self, at: int, room: int, most_bytes: int) -> Slice:
        """Blocks: from where the last slice has come to; `room` messages of `most_bytes` together at the
        most, but at least one."""
        found = self._run(at, Matches(self._query, room, most_bytes))
        found.at = max(found.at, self._first) if self._query.newest else min(found.at, self._high)
        return found

    def _run(self, at: int, matches: Matches) -> Slice:
        newest = self._query.newest
        sequence = at - 1 if newest else max(at, self.low)
        block = self._reader.locator.block(self._subject, sequence)
        found = Slice(at, matches)
        if not block.entries:
            first, end = max(block.begin, self.low), min(block.end, self._high)
            if first < end:  # else retention took them meanwhile
                why = "the segment that held them is gone or damaged"
                found.unreadable.append(Unreadable(first, end, why))
            found.at = first if newest else end
            return found
        since = self._query.since
        if since is not None and block.row is not None and block.row.max_timestamp < since:
            found.at = block.begin if newest else block.end
            return found
        self._go_through(block, sequence, found)
        return found

    def _go_through(self, block: Block, sequence: int, found: Slice) -> None:
        newest, ends = self._query.newest, perf_counter() + SLICE_SECONDS
        numbers, reach = self._choose(block, sequence, found)
        for some, passed in self._reads(block, numbers):
            for place, end, batch in self._load(some):
                if not isinstance(batch, str) and found.matches.rules_out(batch):
                    found.batches += 1
                    found.bytes += len(batch)
                    continue
                first, high = max(place.base, self.low), min(end, self._high)
                if newest:
                    high = min(high, sequence + 1)
                else:
                    first = max(first, sequence)
                if first < high:
                    self._look_through(batch, first, high, found)
                if found.matches.is_full:
                    last = found.matches.messages[-1].offset
                    found.at = last if newest else last + 1
                    return
            found.at = passed
            self._check()
            if perf_counter() > ends:
                return
        found.at = reach

    def _choose(self, block: Block, sequence: int, found: Slice) -> tuple[Sequence[int], int]:
        """The numbers of the batches in a block that may hold matches, in the direction of the search; and
        up to where that is all."""
        newest, count = self._query.newest, len(block.entries) // ENTRY
        low, high = (block.begin, sequence + 1) if newest else (sequence, block.end)
        candidates = self._candidates(block, low, high, found)
        if candidates is None:
            at = _number_of(block, sequence, count)
            reach = block.begin if newest else block.end
            return range(at, -1, -1) if newest else range(at, count), reach
        sequences, more = candidates
        numbers = list(dict.fromkeys(_number_of(block, each, count) for each in sequences))
        reach = low if newest else high
        if more:
            base, _, end = _batch(block, numbers[-1])
            reach = base.base if newest else end
        return numbers, reach

    def _candidates(
        self, block: Block, low: int, high: int, found: Slice
    ) -> tuple[list[int], bool] | None:
        """What the index of keys says; None: it says nothing."""
        query = self._query
        if query.key is None or not self._subject.config.index_keys:
            return None
        if block.segment is None or block.row is None:
            return None
        answer = self._keys.find(
            block.segment,
            self._subject.id,
            block.row.entries_crc,
            query.key,
            low,
            high,
            most=_MOST_BATCHES,
            newest=query.newest,
        )
        if answer is None:
            return None
        found.by_index = True
        found.bytes += answer.bytes_read
        return answer.sequences, answer.more

    def _reads(
        self, block: Block, numbers: Sequence[int]
    ) -> Iterator[tuple[list[tuple[Place, int]], int]]:
        """Batches with their ends, as many as are read at once, and where the search is with them."""
        newest, since = self._query.newest, self._query.since
        places: list[tuple[Place, int]] = []
        size, passed = 0, 0
        low, high = self.low, self._high
        for seen, number in enumerate(numbers, 1):
            place, highest, end = _batch(block, number)
            if place.base >= high:
                if newest:
                    continue
                break
            if end <= low:
                if newest:
                    break
                continue
            passed = place.base if newest else end
            if since is None or highest >= since or place.length == LOST:
                places.append((place, end))
                size += place.length
            if size >= READ_BYTES or len(places) == _MOST_BATCHES or seen % _MOST_SKIPPED == 0:
                yield places, passed
                places, size = [], 0
        if places:
            yield places, passed

    def _load(self, some: list[tuple[Place, int]]) -> Iterator[tuple[Place, int, Batch | str]]:
        """Each batch with its end, or why it cannot be read, in the direction of the search."""
        left = some[::-1] if self._query.newest else some
        loaded: list[tuple[Place, int, Batch | str]] = []
        while left:
            try:
                if left[0][0].length == LOST:
                    raise CorruptMessage(
                        "their batch is lost: it was damaged when the log was opened"
                    )
                readable = takewhile(lambda one: one[0].length != LOST, left)
                batches = self._reader.load(self._subject, [place for place, _ in readable])
            except (CorruptMessage, StorageError) as error:
                loaded.append((*left[0], str(error)))
                left = left[1:]
            except OffsetOutOfRange:
                left = left[1:]  # it was deleted meanwhile
            else:
                loaded += [(*one, batch) for one, batch in zip(left, batches, strict=False)]
                left = left[len(batches) :]
        return reversed(loaded) if self._query.newest else iter(loaded)

    def _look_through(self, batch: Batch | str, first: int, end: int, found: Slice) -> None:
        if isinstance(batch, str):
            found.unreadable.append(Unreadable(first, end, batch))
            return
        found.batches += 1
        found.bytes += len(batch)
        error = found.matches.look_through(memoryview(batch), first, end, self._limit, self._check)
        if error is not None:
            found.unreadable.append(Unreadable(first, end, error))


def _number_of(block: Block, sequence: int, count: int) -> int:
    """Which batch of a block holds a sequence."""
    entries = block.entries
    return bisect_right(range(count), sequence, key=lambda k: entries[k * ENTRY]) - 1


def _batch(block: Block, number: int) -> tuple[Place, int, int]:
    """The place of a batch, its highest timestamp and its end."""
    entries, k = block.entries, number * ENTRY
    end = entries[k + ENTRY] if k + ENTRY < len(entries) else block.end
    return Place(*entries[k : k + 3]), entries[k + 3], end
