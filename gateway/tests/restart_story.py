"""The story of one restart: a log of several segments, read while housekeeping puts it in order.

    life 1   a topic fills segments. Then kill -9.
    life 2   its segments have no index files yet. Two members that share the topic read it, and so does a
             plain consumer, while housekeeping writes one file after the other. A fault that strikes one of
             them and passes leaves earlier segments without an index and later ones with one, until
             housekeeping tries again, seconds later. By then all has been read.

Nothing is damaged, so nothing may count as lost, and all comes in order to the plain consumer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import trio

from kumquat.gateway.tests.lives import World, lives
from kumquat.gateway.tests.patient_clients import (
    MOST_TRIES,
    Book,
    GroupBook,
    Producer,
    Reader,
    Sharer,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kumquat.gateway.tests.faulty_files import Trace

TOPIC = "read-after-a-restart"
_BATCHES, _RECORDS = 60, 10


class RestartStory:
    def __init__(self, world: World) -> None:
        self._world = world
        self._book = Book()
        self._groups = GroupBook()
        self._producer = Producer(world, self._book)
        self._reader = Reader(world)
        self._members = [
            Sharer(world, name, "sharers", TOPIC, self._groups) for name in ("one", "two")
        ]
        self.before: Counter[str] = Counter()
        """The calls of each site before life 2."""

    async def tell(self) -> None:
        await self._life_1()
        await self._world.kill()
        self.before = self._world.trace.calls.copy()
        await self._world.start()
        self._world.files.cold = True
        sealed = len(self._world.broker.log.log.state.segments) - 1
        assert sealed > 5, "too few segments"
        await self._read_all()
        await self._drain()
        await trio.sleep(20)
        await self._read_all()
        assert self._groups.committed == set(self._book.acked.values())
        assert self._world.damage() == (0, 0), "something readable counts as lost, or as damaged"
        assert not self._world.broker.log.log.unindexed_segments(), "housekeeping did not go on"

    async def _life_1(self) -> None:
        broker = self._world.broker
        await broker.registry.alter_group("sharers", {"consume.mode": "shared"})
        await broker.subjects.create(TOPIC, {"index.keys": "true"})
        await self._producer.begin()
        for member in self._members:
            await member.begin()
        for n in range(_BATCHES):
            values = [b"%d-%d " % (n, k) + b"." * 100 for k in range(_RECORDS)]
            await self._producer.plain(TOPIC, *values)

    async def _read_all(self) -> None:
        records, first = await self._reader.read(TOPIC)
        assert first == 0
        self._book.check(TOPIC, records, first, over=True)
        assert [record.offset for record in records] == list(range(_BATCHES * _RECORDS))
        subject = self._world.broker.log.subjects.by_name[TOPIC]
        for sequence in range(0, subject.readable_end, _RECORDS):
            # What a search, or a Fetch by time, goes by.
            block = self._world.broker.log.reader.locator.block(subject, sequence)
            assert block.entries, f"a search does not find {sequence}"

    async def _drain(self) -> None:
        left = MOST_TRIES
        while len(self._groups.committed) < len(self._book.acked):
            assert left, "the group does not come to the end"
            left -= 1
            if not sum([await member.turn() for member in self._members]):
                await self._world.patience()


async def tell(folder: Path, trace: Trace) -> Counter[str]:
    """Gives the calls of each site before the restart."""
    async with lives(folder, trace) as world:
        story = RestartStory(world)
        await story.tell()
        return story.before
