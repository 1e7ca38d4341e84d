"""A log with everything in it, to be damaged, and what its readers get afterwards."""

from dataclasses import replace
from pathlib import Path

from kumquat.core.errors import CorruptMessage
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.tests.batches import body
from kumquat.core.logs.tests.driver import Driver, errors_told
from kumquat.core.logs.tests.power import FakeFiles
from kumquat.core.records.batch import read_head


def rich_log() -> Driver:
    """Two sealed segments and an active one with frames of every kind; all of it synced."""
    driver = Driver(segment_bytes=1000)
    for name in ("a", "b", "doomed"):
        driver.create(name)
    while len(driver.log.state.segments) < 3:
        driver.append("a", 100, 20)
        driver.append("b", 300)
        driver.append("doomed", 10)
        driver.settle()
        driver.seal()
    driver.options = driver.log.options = replace(driver.options, segment_bytes=1 << 20)
    producer = driver.take_producer_ids()
    driver.append("a", 3)
    driver.append("b", 2, 2, producer=(producer, 0, 0))
    driver.delete("doomed")
    driver.raise_earliest("a", 1)
    driver.create("new")
    driver.append("new", 4)
    driver.settle()
    driver.append("a", 5)
    driver.append("b", 1)
    driver.settle()
    driver.check()
    return driver


def active(driver: Driver) -> Segment:
    return driver.log.state.active


def reopened(driver: Driver, files: FakeFiles) -> Driver:
    return Driver(files, driver.promises, segment_bytes=driver.options.segment_bytes)


def spoiled(driver: Driver, path: Path, content: bytes) -> Driver:
    """The log opened on the same disk, but for one file."""
    files = driver.files.after_kill()
    files.damage(path, content)
    return reopened(driver, files)


def flipped(content: bytes, at: int) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1 << (at % 8)
    return bytes(changed)


def unreadable(driver: Driver) -> set[tuple[str, int]]:
    """The acked batches that answer with an error; asserts that all others are there, byte for byte."""
    with errors_told():
        return _unreadable(driver)


def _unreadable(driver: Driver) -> set[tuple[str, int]]:
    bad = set()
    for told in driver.promises.subjects.values():
        if told.deleted or told.topic_id not in driver.log.state.subjects.by_topic_id:
            continue
        subject = driver.subject(told.name)
        for base, content in told.acked.items():
            if base < subject.earliest:
                continue
            try:
                data = driver.reader.read(subject, base, 1, True, nowait=False)[0]
            except CorruptMessage:
                bad.add((told.name, base))
            else:
                assert (read_head(data).base_offset, body(data)) == (base, content)
    return bad


def next_sequences(driver: Driver) -> dict[str, int]:
    return {subject.name: subject.next_sequence for subject in driver.log.state.subjects}


def assert_goes_on(driver: Driver) -> None:
    """New messages follow the old ones, and stay over the next start; what is bad stays bad."""
    bad, before = unreadable(driver), next_sequences(driver)
    for name in before:
        if driver.subject(name).topic_id in driver.promises.subjects:
            assert driver.append(name, 60).base_sequence == before[name]
    driver.settle()
    assert unreadable(driver) == bad
    driver.start()
    assert unreadable(driver) == bad
