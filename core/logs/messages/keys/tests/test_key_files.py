"""A file of keys: all that a look-up uses is checked, what it says is what the segment has."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest

from kumquat.core.logs.dump import dump
from kumquat.core.logs.messages.keys import build
from kumquat.core.logs.messages.keys.build import Build, wanted_in
from kumquat.core.logs.messages.keys.files import Found, KeyFiles
from kumquat.core.logs.messages.keys.format import (
    PER_PAGE,
    KeysDamaged,
    hash_key,
    pack_page,
    parse_page,
    probe,
)
from kumquat.core.logs.messages.reader import Place
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.subject import Subject
from kumquat.core.logs.messages.tail import Batch
from kumquat.core.logs.tests.driver import Driver
from kumquat.core.logs.tests.keyed import Sent, packed
from kumquat.core.records import read_head

MESSAGES = 3000
KEYS = 40
ALL = {"most": 1 << 20, "newest": False}


@pytest.fixture(scope="module")
def driver() -> Driver:
    """A sealed segment with two pages of one subject per key range, and another subject between."""
    made = Driver(segment_bytes=200_000, index_max_entries=10_000, tail_bytes=1000)
    for name in ("orders", "other"):
        made.create(name)
    for first in range(0, MESSAGES, 10):
        for name in ("orders", "other"):
            sent = [Sent(b"%d" % (n % KEYS), b"x") for n in range(first, first + 10)]
            data = memoryview(packed(sent))
            made.log.append_nowait(made.subject(name), data, read_head(data))
            made.write()
    made.settle()
    made.log.roll_when_ready()
    made.settle()
    made.seal()
    assert made.log.state.segments[0].unindexed is None
    return made


def make(driver: Driver, files: KeyFiles, *names: str) -> Segment:
    segment = driver.log.state.segments[0]
    subjects = [driver.subject(name) for name in names]
    wanted = wanted_in(driver.reader, files, segment, subjects)
    assert wanted
    work = Build(driver.reader, files, segment, wanted, 64 << 20)
    while not work.step(0.0):
        pass
    work.abandon()
    return segment


def look_up(driver: Driver, files: KeyFiles, name: str, key: bytes, **how: object) -> Found | None:
    segment, subject = driver.log.state.segments[0], driver.subject(name)
    row = driver.reader.locator.rows(segment).find(subject.id)
    assert row is not None
    options = {"low": 0, "high": row.next_sequence, **ALL, **how}
    return files.find(segment, subject.id, row.entries_crc, key, **options)  # type: ignore[arg-type]


@pytest.fixture
def files(driver: Driver) -> Iterator[KeyFiles]:
    yield KeyFiles(driver.log.open_files)
    path = driver.log.state.segments[0].keys_path
    if driver.files.exists(path):
        driver.files.unlink(path)
    driver.log.open_files.forget(path)


@pytest.mark.parametrize("entries", [100, 1 << 20])
def test_every_message_is_found_by_its_key_and_by_no_other(
    driver: Driver, files: KeyFiles, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    """Also where the memory for its entries is small, so that it takes many passes."""
    monkeypatch.setattr(build, "MOST_ENTRIES", entries)
    make(driver, files, "orders")
    end = driver.log.state.segments[0]
    row = driver.reader.locator.rows(end).find(driver.subject("orders").id)
    assert row is not None
    assert row.next_sequence > 2 * PER_PAGE
    for key in range(KEYS):
        found = look_up(driver, files, "orders", b"%d" % key)
        assert found is not None
        assert found.sequences == list(range(key, row.next_sequence, KEYS))
        newest = look_up(driver, files, "orders", b"%d" % key, low=100, most=3, newest=True)
        assert newest is not None
        assert newest.more
        assert newest.sequences == found.sequences[:-4:-1]
    missing = look_up(driver, files, "orders", b"no such key")
    assert missing == (Found([], False, missing.bytes_read if missing else 0))


def test_one_key_for_all_messages_is_no_special_case(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_PER_BUCKET", 1)
    files = KeyFiles(driver.log.open_files, lambda key: 7)
    make(driver, files, "orders")
    found = look_up(driver, files, "orders", b"any")
    assert found is not None
    assert found.sequences == list(range(len(found.sequences)))
    driver.files.unlink(driver.log.state.segments[0].keys_path)


def test_a_subject_that_is_added_later_keeps_what_was_indexed(
    driver: Driver, files: KeyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(driver, files, "orders")
    assert look_up(driver, files, "other", b"1") is None
    load, read = driver.reader.load, list[int]()

    def watched(subject: Subject, places: Sequence[Place]) -> list[Batch]:
        read.append(subject.id)
        return load(subject, places)

    monkeypatch.setattr(driver.reader, "load", watched)
    make(driver, files, "orders", "other")
    assert set(read) == {driver.subject("other").id}
    for name in ("orders", "other"):
        found = look_up(driver, files, name, b"1")
        assert found is not None
        assert found.sequences[:3] == [1, 41, 81]


def test_no_flipped_bit_and_no_missing_end_gives_a_wrong_answer(
    driver: Driver, files: KeyFiles
) -> None:
    segment = make(driver, files, "orders", "other")
    whole = driver.files.content(segment.keys_path)
    key = b"17"
    right = look_up(driver, files, "orders", key)
    assert right is not None
    rng = Random(1)
    places = [*range(120), *(rng.randrange(len(whole)) for _ in range(300))]
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.randrange(8)
        for content in (bytes(flipped), whole[:place]):
            driver.files.damage(segment.keys_path, content)
            files.forget(segment)
            found = look_up(driver, files, "orders", key)
            assert found is None or found.sequences == right.sequences


def test_another_hash_makes_the_file_useless_and_it_is_made_again(driver: Driver) -> None:
    first, second = (
        KeyFiles(driver.log.open_files),
        KeyFiles(driver.log.open_files, lambda key: hash_key(key) ^ 1),
    )
    make(driver, first, "orders")
    assert look_up(driver, second, "orders", b"1") is None
    make(driver, second, "orders")
    assert look_up(driver, second, "orders", b"1") is not None
    driver.files.unlink(driver.log.state.segments[0].keys_path)


def test_the_probe_shows_a_hash_that_differs_for_some_lengths_only() -> None:
    def other(low: int, key: bytes) -> int:
        return hash_key(key) ^ (len(key) >= low)

    usual = probe(hash_key)
    for low in (0, 16, 33, 65, 130):
        assert probe(partial(other, low)) != usual


def test_a_page_of_another_subject_or_place_is_not_taken() -> None:
    page = pack_page(7, 2, bytes(32))
    assert parse_page(page, 7, 2) == bytes(32)
    for subject, number in ((7, 1), (8, 2)):
        with pytest.raises(KeysDamaged, match="expected page"):
            parse_page(page, subject, number)


def test_dump_shows_what_is_there_and_what_is_bad(tmp_path: Path, driver: Driver) -> None:
    files = KeyFiles(driver.log.open_files)
    segment = make(driver, files, "orders")
    content = driver.files.content(segment.keys_path)
    driver.files.unlink(segment.keys_path)
    path, out = tmp_path / segment.keys_path.name, io.StringIO()
    path.write_bytes(content)
    assert dump(path, out) == 0
    assert "complete" in out.getvalue()
    path.write_bytes(content[:-1] + b"\1")
    assert dump(path, out) == 1
    assert "does not match its CRC" in out.getvalue()
    path.write_bytes(b"KQK1")
    assert dump(path, out) == 1
