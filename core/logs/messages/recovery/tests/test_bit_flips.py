"""One flipped bit, anywhere: never wrong bytes, never silence, never more lost than the frame it
hit.

Below the synced border a bad frame is corruption: its own batch answers with an error, all else is
served, sequences and ids go on as if nothing were missing. Above it nothing was promised: the log
is cut there.
"""

import copy
from collections.abc import Iterator

import pytest

from kumquat.core.logs.messages.format import (
    HEADER_SIZE,
    KIND_NAMES,
    MESSAGES,
    SUBJECT_CREATED,
    FrameHeader,
    parse_header,
)
from kumquat.core.logs.tests.damage import (
    active,
    assert_goes_on,
    flipped,
    next_sequences,
    reopened,
    rich_log,
    spoiled,
    unreadable,
)
from kumquat.core.logs.tests.driver import Driver


@pytest.fixture(scope="module")
def rich() -> Driver:
    return rich_log()


def frames(content: bytes, base: int, size: int) -> Iterator[FrameHeader]:
    at = 0
    while at < size:
        header = parse_header(content, at, base + at)
        assert isinstance(header, FrameHeader)
        yield header
        at = header.end - base


def places(header: FrameHeader, base: int) -> list[int]:
    """Where to flip: every byte of the header, and some of the payload with its first and last."""
    start, end = header.position - base, header.end - base
    payload = range(start + HEADER_SIZE, end, 7)
    return [*range(start, start + HEADER_SIZE), *payload, end - 1]


def expected_loss(driver: Driver, header: FrameHeader) -> set[tuple[str, int]]:
    """The batch in this frame, if there is one."""
    if header.kind != MESSAGES:
        return set()
    return {
        (subject.name, header.base_sequence)
        for subject in driver.log.state.subjects
        if subject.id == header.subject_id and header.base_sequence >= subject.earliest
    }


def test_a_bit_below_the_border_costs_its_own_batch_and_nothing_else(rich: Driver) -> None:
    segment, before = active(rich), next_sequences(rich)
    content = rich.files.content(segment.path)
    kinds = set()
    for header in frames(content, segment.base, segment.size):
        kinds.add(header.kind)
        for at in places(header, segment.base):
            opened = spoiled(rich, segment.path, flipped(content, at))
            what = f"{KIND_NAMES[header.kind]}, byte {at - (header.position - segment.base)}"
            assert any("corruption" in line for line in opened.errors), f"silent: {what}"
            here = next_sequences(opened)
            if header.kind != SUBJECT_CREATED:
                assert here == before, what
                inside = at - (header.position - segment.base) >= HEADER_SIZE
                lost = expected_loss(rich, header) if inside else set()
                assert unreadable(opened) == lost, what
            assert {"a", "b"} <= here.keys() <= {"a", "b", "new"}, what
            assert opened.log.state.producer_ceiling == 1000, f"an id comes twice: {what}"
            assert opened.log.state.subjects.next_id == rich.log.state.subjects.next_id, what
            assert opened.subject("a").earliest == 1, f"what was deleted is back: {what}"
            assert opened.log.state.cluster_id == rich.log.state.cluster_id, what
            if at % 50 == 0:
                opened.promises = copy.deepcopy(rich.promises)
                assert_goes_on(opened)
    assert len(kinds) == 8, "not every kind of frame was hit"


def test_a_bit_in_a_sealed_segment_costs_its_own_batch_and_nothing_else(rich: Driver) -> None:
    segment = rich.log.state.segments[0]
    content = rich.files.content(segment.path)
    for header in frames(content, segment.base, segment.size):
        for at in places(header, segment.base)[::5]:
            opened = spoiled(rich, segment.path, flipped(content, at))
            inside = at - (header.position - segment.base) >= HEADER_SIZE
            assert unreadable(opened) == (expected_loss(rich, header) if inside else set())


def test_a_bit_above_the_border_cuts_the_log_there_without_alarm(rich: Driver) -> None:
    segment = active(rich)
    killed = reopened(rich, rich.files.after_kill())
    killed.promises = copy.deepcopy(rich.promises)
    border = killed.log.written_end
    for size in (200, 30, 900):
        killed.append("a", size)
        killed.append("b", size)
    content = killed.files.content(segment.path)
    for header in frames(content, segment.base, killed.log.written_end - segment.base):
        if header.position < border:
            continue
        for at in places(header, segment.base):
            opened = spoiled(killed, segment.path, flipped(content, at))
            assert not opened.errors, f"byte {at - (header.position - segment.base)}"
            assert opened.log.written_end == header.position
            opened.check()


def test_a_bit_in_a_derived_file_costs_nothing(rich: Driver) -> None:
    derived = [segment.index_path for segment in rich.log.state.segments[:-1]]
    derived.append(active(rich).checkpoint_path)
    for path in derived:
        content = rich.files.content(path)
        for at in range(len(content)):
            opened = spoiled(rich, path, flipped(content, at))
            opened.check()
            assert next_sequences(opened) == next_sequences(rich)
