"""Finding batches while some sealed segments have their index file and others have none, in any order."""

from __future__ import annotations

import errno
from array import array
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.errors import CorruptMessage, StorageError
from kumquat.core.logs.messages.index import write_index
from kumquat.core.logs.messages.segment import Segment
from kumquat.core.logs.messages.state import LOST
from kumquat.core.logs.messages.subject import ENTRY
from kumquat.core.logs.tests.driver import Driver, errors_told
from kumquat.core.logs.tests.power import Fault

SIZES = st.lists(st.sampled_from((1, 300, 900)), min_size=1, max_size=3)
BATCHES = st.lists(st.tuples(st.sampled_from("abc"), SIZES), min_size=1, max_size=40)


def seal(driver: Driver, segment: Segment) -> None:
    """As the service's chores do it."""
    write_index(driver.files, segment)
    segment.unindexed, segment.rows = None, {}


def filled(batches: list[tuple[str, list[int]]]) -> tuple[Driver, dict[str, list[int]]]:
    """A log of small segments, none of which has an index; and the size of each batch, by subject."""
    driver, sizes = Driver(segment_bytes=1200, tail_bytes=1), {name: [0] for name in "abc"}
    for name in "abc":
        driver.create(name)
    driver.settle()
    for name, records in batches:
        driver.append(name, *records)
        driver.settle()
        sizes[name].append(len(records))
    return driver, sizes


@settings(max_examples=150, deadline=None, derandomize=True)
@given(BATCHES, st.integers(0, (1 << 40) - 1), st.integers(0, 60))
def test_a_sequence_is_found_whichever_segments_have_an_index(
    batches: list[tuple[str, list[int]]], indexed: int, raised: int
) -> None:
    driver, sizes = filled(batches)
    for i, segment in enumerate(driver.log.unindexed_segments()):
        if indexed >> i & 1:
            seal(driver, segment)
    locator = driver.reader.locator
    for name in "abc":
        subject = driver.subject(name)
        ends = [sum(sizes[name][: i + 1]) for i in range(len(sizes[name]))]
        bounds = list(pairwise(ends))
        listed = [base for e in locator.entries_since(subject, -1) for base in e[::ENTRY]]
        assert listed == [base for base, _ in bounds]
        for base, end in bounds:
            for sequence in range(base, end):
                assert locator.bounds(subject, sequence, nowait=False) == (base, end)
                entries, i = locator.find(subject, sequence, nowait=False)
                assert entries[i * ENTRY] == base
                block = locator.block(subject, sequence)
                assert block.begin <= base
                assert end <= block.end
                last = block.entries[len(block.entries) - ENTRY]
                assert (last, block.end) in bounds
        earliest = min(raised, subject.readable_end)
        driver.raise_earliest(name, earliest)
        expected = [end for _, end in bounds if end > earliest]
        assert locator.sequence_since(subject, 0) == earliest
        assert (locator.retained_bytes(subject) > 0) == bool(expected)
    driver.check()


# --- an index is no reason for a verdict of loss ------------------------------------------------


def sealed() -> Driver:
    """Some sealed segments with batches of two subjects each, after a start."""
    driver = Driver(segment_bytes=2500, tail_bytes=1)
    for name in ("a", "b"):
        driver.create(name)
    driver.settle()
    for _ in range(12):
        driver.append("a", 300)
        driver.append("b", 300, 300)
        driver.settle()
        driver.seal()
    driver.start()
    assert len(driver.log.state.segments) > 4
    return driver


def rewrite(driver: Driver, number: int, name: str, *, lost: bool) -> None:
    """Make the index of a segment wrong: nothing of a subject is there, it says, or all is lost."""
    segment = driver.log.state.segments[number]
    locator, wrong = driver.reader.locator, Segment(segment.directory, segment.base)
    wrong.end, wrong.newest_store_time = segment.end, segment.newest_store_time
    rows = locator.rows(segment)
    subject_id, unindexed = driver.subject(name).id, {}
    for row in map(rows.at, range(len(rows))):
        if row.subject_id != subject_id or lost:
            wrong.rows[row.subject_id] = row.next_sequence
            unindexed[row.subject_id] = array("q", locator.entries(segment, row))
    if lost:
        for k in range(2, len(unindexed[subject_id]), ENTRY):
            unindexed[subject_id][k] = LOST
    wrong.unindexed = unindexed
    write_index(driver.files, wrong)
    driver.start()


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("number", range(4))
def test_an_index_that_knows_less_than_its_segment_costs_no_message(
    number: int, lost: bool
) -> None:
    driver = sealed()
    rewrite(driver, number, "b", lost=lost)
    with errors_told() as errors:
        driver.check()
    assert driver.reader.corrupt_reads == 0
    assert any("knows less than its segment" in line for line in errors)
    driver.start()
    with errors_told() as errors:
        driver.check()
    assert not errors, "the index is right again"


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO, errno.ENOMEM])
@pytest.mark.parametrize("call", ["open", "pread"])
def test_what_no_index_knows_is_not_lost_while_its_segment_cannot_be_read(
    call: str, error: int
) -> None:
    driver = sealed()
    rewrite(driver, 1, "b", lost=False)
    locator, subject, missing = driver.reader.locator, driver.subject("b"), -1
    for sequence in range(subject.readable_end):
        if locator._look(subject, sequence, nowait=False) is None:
            missing = sequence
            break
    assert missing > 0
    driver.reader._open_files._trim(0)
    driver.files.fail(Fault(call, error, name=".log", times=None))
    for ask in (
        lambda: driver.reader.read(subject, missing, 1, True, nowait=False),
        lambda: locator.bounds(subject, missing, nowait=False),
        lambda: locator.block(subject, missing),
    ):
        with pytest.raises(StorageError):
            ask()
    driver.files.heal()
    assert locator.block(subject, missing).entries
    driver.check()
    assert driver.reader.corrupt_reads == 0


def test_an_index_is_made_again_though_the_frame_with_a_subjects_state_is_damaged() -> None:
    """Its batches say whose they are."""
    driver = sealed()
    segment, subject = driver.log.state.segments[1], driver.subject("b")
    content = bytearray(driver.files.content(segment.path))
    at = content.index(b"b", content.index(subject.topic_id))
    content[at] ^= 1
    driver.files.damage(segment.path, bytes(content))
    driver.files.unlink(segment.index_path)
    driver.start()
    driver.check()
    assert driver.reader.corrupt_reads == 0


def test_what_is_damaged_on_disk_is_told_as_lost_after_one_look_at_its_segment() -> None:
    driver = sealed()
    segment, subject = driver.log.state.segments[1], driver.subject("b")
    row = driver.reader.locator.rows(segment).find(subject.id)
    assert row is not None
    base, position = driver.reader.locator.entries(segment, row)[:2]
    content = bytearray(driver.files.content(segment.path))
    at = position - segment.base
    content[at : at + 200] = bytes(200)
    driver.files.damage(segment.path, bytes(content))
    driver.files.unlink(segment.index_path)
    driver.start()
    with errors_told(), pytest.raises(CorruptMessage):
        driver.reader.read(subject, base, 1, True, nowait=False)
    driver.files.fail(Fault("pread", errno.EIO, name=".log", times=None))
    with errors_told(), pytest.raises(CorruptMessage):  # it is not read through for each read
        driver.reader.read(subject, base, 1, True, nowait=False)
