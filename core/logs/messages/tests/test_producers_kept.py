"""Producers that are remembered for ever, or whose number stops the loop when a segment is rolled."""

from pathlib import Path

import pytest
import trio

from kumquat.core.logs.disk.options import LogOptions
from kumquat.core.logs.messages.format import pack_subject_state, parse_subject_state
from kumquat.core.logs.messages.preamble import MANY
from kumquat.core.logs.messages.service import MessageService
from kumquat.core.logs.tests.batches import batch
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.logs.tests.power import FakeFiles

DAY = 24 * 3_600_000


def produced(driver: Driver, producer: int, first: int = 0) -> None:
    driver.stage_batch("a", batch(b"x", producer_id=producer, epoch=0, first=first))
    driver.write()


def test_a_producer_that_is_silent_is_forgotten_without_a_roll(tmp_path: Path) -> None:
    async def story() -> None:
        files = FakeFiles(tmp_path)
        now = 1_000_000
        options = LogOptions(directory=tmp_path, reserve_bytes=8192, producer_id_expiration_ms=DAY)
        service = MessageService.open(options, files, lambda: now)
        async with trio.open_nursery() as nursery:
            await nursery.start(service.run)
            subject = service.create_subject_nowait("a")
            for producer in range(5000):
                data = batch(b"x", producer_id=producer, epoch=0, first=0)
                service.append_nowait(subject, memoryview(data))
            service.write_nowait()
            now += DAY - 1
            service.append_nowait(subject, memoryview(batch(b"y", producer_id=7, epoch=0, first=1)))
            await service.apply_retention()
            assert subject.producers is not None
            assert len(subject.producers) == 5000
            now += 2
            await service.apply_retention()
            assert list(subject.producers or ()) == [7]
            now += DAY
            await service.apply_retention()
            assert subject.producers is None
            nursery.cancel_scope.cancel()

    trio.run(story)


def test_the_producer_that_sent_last_is_forgotten_last() -> None:
    driver = Driver(segment_bytes=1 << 20)
    driver.create("a")
    for producer in (1, 2, 3):
        produced(driver, producer)
    produced(driver, 1, first=1)
    subject = driver.subject("a")
    assert list(subject.producers or ()) == [2, 3, 1]
    last = (subject.producers or {})[1][1][-1].store_time
    assert not subject.forget_producers(last, 10)
    assert list(subject.producers or ()) == [1]


@pytest.mark.parametrize("step", [1, 300, 10_000])
def test_many_producers_are_packed_before_the_roll_and_all_are_there_after_it(step: int) -> None:
    driver = Driver(segment_bytes=300_000, index_max_entries=1_000_000)
    driver.create("a")
    driver.settle()
    for producer in range(MANY + 1):
        produced(driver, producer)
        driver.sync()
    driver.append("a", 300_000)
    driver.settle()
    assert len(driver.log.state.segments) == 1, "the roll waits until they are packed"
    assert driver.log.has_chores
    steps = 0
    while driver.log.pack_step(step):
        steps += 1
        if steps == 1:
            produced(driver, 3, first=1)  # it is packed again with the preamble
            produced(driver, MANY + 7)
    assert len(driver.log.state.segments) == 2
    assert steps >= min(MANY // step, 1)
    driver.settle()
    before = driver.subject("a").producers
    driver.start()
    assert {p: s[0] for p, s in (driver.subject("a").producers or {}).items()} == {
        p: s[0] for p, s in (before or {}).items()
    }
    assert _numbers(driver.subject("a").producers) == _numbers(before)
    driver.check()


def test_a_producer_that_appears_before_the_first_is_packed_is_in_the_preamble() -> None:
    driver = Driver(segment_bytes=300_000, index_max_entries=1_000_000)
    driver.create("a")
    driver.settle()
    for producer in range(MANY + 1):
        produced(driver, producer)
        driver.sync()
    driver.append("a", 300_000)
    driver.sync()
    assert driver.log.has_chores, "the roll waits until they are packed"
    produced(driver, MANY + 7)
    driver.sync()
    while driver.log.pack_step(500):
        pass
    driver.settle()
    assert len(driver.log.state.segments) == 2
    driver.start()
    assert MANY + 7 in (driver.subject("a").producers or {})
    driver.check()


def _numbers(producers: object) -> object:
    assert isinstance(producers, dict)
    return {p: [b[:4] for b in batches] for p, (_, batches) in producers.items()}


def test_what_was_packed_ahead_is_what_is_packed_at_once() -> None:
    driver = Driver(segment_bytes=1 << 20)
    driver.create("a")
    for producer in range(50):
        for first in range(producer % 7):
            produced(driver, producer, first)
    subject = driver.subject("a")
    for begin in range(0, 60, 20):
        subject.pack(list(range(begin, begin + 20)))
        produced(driver, 13, 6 + begin // 20)
        produced(driver, 100 + begin)
    ahead = pack_subject_state(subject.state(), subject.packed)
    at_once = pack_subject_state(subject.state())
    assert parse_subject_state(ahead) == parse_subject_state(at_once)
