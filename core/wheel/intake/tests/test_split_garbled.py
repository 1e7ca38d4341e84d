"""Bytes that a client garbled, by mistake or not, end as a split or an error: nothing half, no crash."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kumquat.core.errors import InvalidRecord, KumquatError
from kumquat.core.logs.messages.parked import heads_of, parked_damage
from kumquat.core.records import read_head
from kumquat.core.records.batch import HEAD_SIZE
from kumquat.core.wheel.intake.split import split
from kumquat.core.wheel.intake.tests.test_split import LIMIT, NOW, YEAR, Sent, batch_of


def mixed() -> memoryview:
    return batch_of(
        [("qmq-delay-ms", b"60000")],
        [("plain", b"1")],
        [("a", b"b"), ("qmq-deliver-at", b"%d" % NOW), ("qmq-delay-id", b"name")],
        [("qmq-delay-cancel", b"name"), ("qmq-delay-ms", b"7")],
        Sent(None, None, [("qmq-deliver-at", b"%d" % NOW)]),
    )


def coherent(batch: memoryview, data: bytes) -> None:
    """A split, none, or an error; and the parts of a split are whole."""
    head = read_head(batch)
    try:
        found = split(batch, head, data, NOW, YEAR, LIMIT)
    except KumquatError:
        return
    if found is None:
        return
    lengths = []
    for at, parked in heads_of(found.parked, 0):
        assert parked_damage(found.parked[at : at + parked.length]) is None
        lengths.append(parked.length)
    assert sum(lengths) == len(found.parked)
    kept = 0 if found.plain is None else read_head(found.plain).record_count
    assert kept + len(found.starts) + len(found.cancels) == head.record_count
    assert all(NOW <= due <= NOW + YEAR for due in found.dues)


def test_every_flipped_bit_gives_a_split_or_an_error() -> None:
    batch = mixed()
    for at in range(HEAD_SIZE, len(batch)):
        for bit in range(8):
            data = bytearray(batch[HEAD_SIZE:])
            data[at - HEAD_SIZE] ^= 1 << bit
            coherent(batch, bytes(data))


def test_every_truncation_is_refused() -> None:
    batch = mixed()
    for size in range(HEAD_SIZE, len(batch)):
        with pytest.raises(InvalidRecord):
            split(batch, read_head(batch), batch[HEAD_SIZE:size], NOW, YEAR, LIMIT)


@settings(max_examples=3 * settings().max_examples)
@given(st.data())
def test_garbage_gives_a_split_or_an_error(data: st.DataObject) -> None:
    batch = mixed()
    records = bytearray(batch[HEAD_SIZE:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(records) - 1))
        gone = data.draw(st.integers(0, 4))
        records[at : at + gone] = data.draw(st.binary(max_size=6))
    coherent(batch, bytes(records))


def garbled(change: Callable[[bytearray], None]) -> str:
    batch = batch_of([("qmq-delay-ms", b"60000")], [("qmq-delay-ms", b"60000")])
    data = bytearray(batch[HEAD_SIZE:])
    change(data)
    with pytest.raises(InvalidRecord) as caught:
        split(batch, read_head(batch), bytes(data), NOW, YEAR, LIMIT)
    return str(caught.value)


def test_records_that_do_not_fill_the_batch_are_refused() -> None:
    assert garbled(lambda data: data.extend(b"more")) == "4 bytes follow the records of the batch"


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    batch = batch_of([("qmq-delay-ms", b"60000")])
    struct.pack_into(">q", batch, 27, 2**63 - 1)
    data = bytes(batch[HEAD_SIZE:])
    later = data[:2] + b"\x02" + data[3:]
    with pytest.raises(InvalidRecord, match="timestamp"):
        split(batch, read_head(batch), later, NOW, YEAR, LIMIT)


def test_an_endless_varint_is_refused_by_record() -> None:
    def change(data: bytearray) -> None:
        data[2:3] = b"\xff" * 11

    assert garbled(change).startswith("record 0 of the batch: a varint")


def test_records_in_another_order_are_refused() -> None:
    def change(data: bytearray) -> None:
        data[3] = 2

    assert garbled(change) == "record 0 of the batch: its offset delta is 1"
