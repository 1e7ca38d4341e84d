"""What the event loop does while a thread reads: appends, rolls, deletes. Each at the worst moment."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from kumquat.core.errors import OffsetOutOfRange
from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.locator import Block, Entries, Locator
from kumquat.core.logs.messages.reader import Place, Reader
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.messages.subject import ENTRY, Subject
from kumquat.core.logs.messages.tail import Batch
from kumquat.core.logs.tests.batches import batch, body
from kumquat.core.logs.tests.driver import Driver


def bases(found: Iterator[Entries]) -> list[int]:
    return [base for entries in found for base in entries[::ENTRY]]


def test_a_message_that_comes_while_retention_looks_is_not_deleted_with_the_old_ones() -> None:
    driver = Driver()
    subject = driver.create("s")
    driver.append("s", 10)
    driver.settle()

    class Late(Locator):
        def _batches(self, subject: Subject) -> Iterator[tuple[int, int, int, int]]:
            yield from super()._batches(subject)
            driver.append("s", 10)
            driver.sync()

    assert Late(driver.log).sequence_since(subject, driver.now + 1_000) == 1
    assert subject.readable_end == 2


class Watched(dict[int, "array[int]"]):
    """The entries of a segment; what is to happen as they are looked at happens once."""

    def __init__(self, before: Callable[[], None] | None, after: Callable[[], None] | None) -> None:
        super().__init__()
        self._before, self._after = before, after

    def get(self, key: int, default: array[int] | None = None) -> array[int] | None:  # type: ignore[override]
        before, self._before = self._before, None
        if before is not None:
            before()
        found = super().get(key, default)
        after, self._after = self._after, None
        if after is not None:
            after()
        return found


@pytest.mark.parametrize("first", [True, False], ids=["before its segment", "behind its segment"])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_roll_while_batches_are_listed_hides_none_and_shows_none_twice(
    first: bool, indexed: bool
) -> None:
    driver = Driver()
    subject = driver.create("s")
    for _ in range(3):
        driver.append("s", 10)
    driver.settle()

    def roll() -> None:
        driver.log.roll()
        driver.settle()
        if indexed:
            driver.seal()

    driver.log.state.active.unindexed = Watched(roll if first else None, None if first else roll)
    assert bases(driver.reader.locator.entries_since(subject, -1)) == [0, 1, 2]
    assert len(driver.log.state.segments) == 2


@pytest.mark.parametrize("located", [True, False])
def test_what_is_deleted_while_it_is_read_is_out_of_range_and_not_corrupt(located: bool) -> None:
    driver = Driver(total_bytes=1, tail_bytes=1)
    subject = driver.create("s")
    driver.append("s", 3000)
    driver.settle()
    driver.log.roll()
    driver.create("other")
    driver.append("other", 10)  # out of the tail with the first one
    driver.settle()
    driver.seal()

    class SlowLocator(Locator):
        def _look_in_memory(self, subject: Subject, sequence: int) -> Block | None:
            if not located:
                assert driver.retire()
            return super()._look_in_memory(subject, sequence)

    class Slow(Reader):
        def _load(self, subject: Subject, places: list[Place], nowait: bool) -> list[Batch]:  # type: ignore[override]
            assert driver.retire()
            return super()._load(subject, places, nowait)

    reader = Slow(driver.log)
    reader.locator = SlowLocator(driver.log)
    with pytest.raises(OffsetOutOfRange):
        reader.read(subject, 0, 5_000, True, nowait=False)
    assert reader.corrupt_reads == 0


def test_small_batches_far_apart_do_not_hold_what_lies_between_them(tmp_path: Path) -> None:
    async def story() -> None:
        options = LogOptions(directory=tmp_path, tail_bytes=1, reserve_bytes=1 << 20)
        opened = MessageService.open(options)
        async with trio.open_nursery() as nursery:
            await nursery.start(opened.run)
            subject, other = (opened.create_subject_nowait(name) for name in ("s", "other"))
            expected = []
            for number in range(200):
                small, large = batch(b"%d" % number), batch(bytes(50_000))
                expected.append(body(small))
                opened.append_nowait(subject, memoryview(small))
                opened.append_nowait(other, memoryview(large))
            await opened.wait_synced()
            reader = Reader(opened.log)
            for nowait in (True, False):
                found = reader.read(subject, 0, 1 << 20, True, nowait=nowait)
                assert [body(each) for each in found] == expected
                held = {id(obj): len(obj) for obj in (memoryview(each).obj for each in found)}  # type: ignore[arg-type]
                assert sum(held.values()) < 200 * 200
            nursery.cancel_scope.cancel()

    trio.run(story)
