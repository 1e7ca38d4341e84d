"""A record that changed, or lost its history, when the broker added to it."""

import struct
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from kumquat.core.errors import InvalidRecord
from kumquat.core.records import batch as batches
from kumquat.core.records import read_head
from kumquat.core.records.cut import Cutter
from kumquat.core.records.rewrite import (
    NOTHING,
    Body,
    bodies,
    build,
    fields_of,
    header,
    with_header,
)
from kumquat.core.records.tests.test_batch import resummed
from kumquat.core.records.tests.test_cut import read, stored

BASE = (7 << 48) + (1 << 24)
Fields = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]
"""Timestamp, key, value, headers."""

short = st.binary(max_size=9)
names = st.text(st.characters(codec="utf-8"), max_size=5)
records_drawn = st.lists(
    st.tuples(
        st.integers(0, 1 << 42),
        st.none() | short,
        st.none() | short | st.just(bytes(9_000)),
        st.lists(st.tuples(names, short), max_size=4),
    ),
    min_size=1,
    max_size=6,
)


def written(records: Sequence[Fields], codec: int) -> bytearray:
    """A batch as kafka-python writes it."""
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for timestamp, key, value, headers in records:
        builder.append(timestamp=timestamp, key=key, value=value, headers=list(headers))
    builder.close()
    return bytearray(builder.buffer())


def append_time(data: bytearray, now: int) -> bytearray:
    batches.stamp_append_time(memoryview(data), now)
    return data


@settings(deadline=None)
@given(records_drawn, st.data(), st.sampled_from([0, 1, 2, 3, 4]), st.booleans())
def test_records_with_one_more_header_are_else_as_they_were(
    records: list[Fields], data: st.DataObject, codec: int, by_log: bool
) -> None:
    made = written(records, codec)
    batch = stored(append_time(made, 55) if by_log else made)
    first = data.draw(st.integers(0, len(records) - 1))
    last = data.draw(st.integers(first, len(records) + 1))
    points = Cutter(1 << 20).load(1, batch)
    found = with_header(points, batch, first, last, BASE, header(b"qmq-attempt", b"12"))
    assert read(found) == [
        (BASE + i, 55 if by_log else at, key, value, [*headers, ("qmq-attempt", b"12")])
        for i, (at, key, value, headers) in enumerate(records)
        if first <= i <= last
    ]
    assert read_head(found[0]).leader_epoch == -1


@settings(deadline=None)
@given(
    st.lists(st.tuples(records_drawn, st.sampled_from([0, 1, 2, 3, 4])), min_size=1, max_size=3),
    st.lists(st.tuples(names, short), max_size=3),
    st.booleans(),
)
def test_a_batch_that_is_built_of_records_of_several_holds_them_with_their_own_headers_first(
    given_batches: list[tuple[list[Fields], int]], added: list[tuple[str, bytes]], by_log: bool
) -> None:
    taken: list[tuple[Body, list[bytes]]] = []
    expected = []
    for records, codec in given_batches:
        made = written(records, codec)
        batch = stored(append_time(made, 55) if by_log else made)
        points = Cutter(1 << 20).load(1, batch)
        for i, body in bodies(points, batch, 0, len(records) - 1):
            more = [(name, value + b"%d" % i) for name, value in added]
            taken.append((body, [header(name.encode(), value) for name, value in more]))
            at, key, value, headers = records[i]
            expected.append((55 if by_log else at, key, value, [*headers, *more]))
    whole = build(taken)
    assert batches.check(memoryview(whole)).record_count == len(expected)
    assert [fields[1:] for fields in read([memoryview(whole)])] == expected
    head = read_head(whole)
    assert (head.producer_id, head.attributes) == (-1, 0)
    assert head.max_timestamp == max(fields[0] for fields in expected)


def test_records_with_holes_between_them_keep_their_offsets() -> None:
    batch = stored(holed(written([(1, b"a", b"1", []), (2, b"b", b"2", [])], 0)))
    points = Cutter(1 << 20).load(1, batch)
    found = with_header(points, batch, 0, 9, 500, header(b"h", b"x"))
    assert read(found) == [(500, 1, b"a", b"1", [("h", b"x")]), (505, 2, b"b", b"2", [("h", b"x")])]
    assert read_head(found[0]).last_offset_delta == 5
    assert with_header(points, batch, 1, 4, 500, header(b"h", b"x")) == []
    ((delta, body),) = bodies(points, batch, 1, 5)
    assert (delta, bytes(body.fields)) == (5, b"\x02b\x022")


def holed(data: bytearray) -> bytearray:
    """The second record gets offset delta 5: its length, attributes and time take a byte each."""
    second = 61 + 1 + data[61] // 2
    data[second + 3] = 2 * 5
    struct.pack_into(">i", data, 23, 5)
    return resummed(data)


def test_a_record_without_key_and_value_is_built() -> None:
    made = build([(Body(7, NOTHING, 0, b""), [header(b"qmq-dead-reason", b"unreadable")])])
    assert read([memoryview(made)]) == [(0, 7, None, None, [("qmq-dead-reason", b"unreadable")])]


@pytest.mark.parametrize("timestamp", [-1, 0, (1 << 63) - 1, -(1 << 63)])
def test_no_timestamp_of_a_client_keeps_its_record_from_being_rewritten(timestamp: int) -> None:
    data = written([(5, b"k", b"v", []), (9, b"k", b"v", [])], 0)
    struct.pack_into(">q", data, 27, timestamp)
    batch = stored(resummed(data))
    points = Cutter(1 << 20).load(1, batch)
    taken = [(body, [header(b"h", b"x")]) for _, body in bodies(points, batch, 0, 1)]
    taken.append((Body(1_700_000_000_000, NOTHING, 0, b""), []))
    assert len(read([memoryview(build(taken))])) == 3


@pytest.mark.parametrize("at", [4, 6, 8])
def test_a_record_whose_fields_do_not_fit_it_is_refused(at: int) -> None:
    """Key length, value length and header count of the one record."""
    data = written([(1, b"k", b"v", [])], 0)
    data[61 + at] = 0x7F if at == 8 else 0x7E
    batch = stored(resummed(data))
    points = Cutter(1 << 20).load(1, batch)
    with pytest.raises(InvalidRecord):
        with_header(points, batch, 0, 0, 0, header(b"h", b"x"))
    with pytest.raises(InvalidRecord):
        bodies(points, batch, 0, 0)


@given(st.lists(st.tuples(st.integers(61, 200), st.integers(0, 255)), min_size=1, max_size=6))
def test_whatever_a_client_wrote_into_records_only_says_that_they_are_garbled(
    written_over: list[tuple[int, int]],
) -> None:
    """Another error would stop who reads the batch, again and again."""
    data = written([(1, b"k", b"v", [("h", b"x")]), (2, b"key", None, [("a", b""), ("b", b"")])], 0)
    for at, byte in written_over:
        data[61 + (at - 61) % (len(data) - 61)] = byte
    batch = stored(resummed(data))
    points = Cutter(1 << 20).load(1, batch)
    with suppress(InvalidRecord):
        with_header(points, batch, 0, 1, 0, header(b"h", b"x"))
    with suppress(InvalidRecord):
        for _, body in bodies(points, batch, 0, 1):
            with suppress(InvalidRecord):
                fields_of(body)


def test_a_header_count_that_breaks_off_with_the_batch_is_garbled() -> None:
    data = written([(1, b"k", b"v", [])], 0)
    data[-1] = 0x80
    batch = stored(resummed(data))
    points = Cutter(1 << 20).load(1, batch)
    with pytest.raises(InvalidRecord):
        with_header(points, batch, 0, 0, 0, header(b"h", b"x"))
    with pytest.raises(InvalidRecord):
        bodies(points, batch, 0, 0)
